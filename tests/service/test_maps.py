"""Frozen maps over HTTP: made once, promoted by those who have seen the current one, read for nothing."""

import numpy as np
import pytest

from tests.calibrant.test_map_formulas import CASES, by_python, fitted
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits"
FIT = {
    "method": "temperature", "scope": "full", "class": None, "input": "logit", "parameters": {"temperature": 2.0},
    "digest": "d1", "n": 100, "raters": "pooled", "state_version": "s1", "before": None, "after": None,
    "heldout": None, "window": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
}  # fmt: skip
BETTER = {
    "beats": True,
    "reason": None,
    "detail": None,
    "gain": {"nll": {"value": 0.1, "interval": [0.05, 0.15]}},
}
WORSE = {
    "beats": False, "reason": "not_better", "detail": "the interval of the gain does not lie above 0",
    "gain": {"nll": {"value": 0.001, "interval": [-0.1, 0.1]}},
}  # fmt: skip


@pytest.fixture
async def made(client, inbox):
    """A client of a model with three versions."""
    await client.put(URL, json={"classes": 3})
    for number in (1, 2, 3):
        inbox.answers["calibration_map"] = FIT | {"digest": f"d{number}"}
        answer = await client.post(
            f"{URL}/maps", json={"method": "temperature", "note": f"no. {number}"}
        )
        assert answer.status_code == 201, answer.text
        assert answer.headers["location"] == f"{URL}/maps/{number}"
    inbox.answers["map_comparison"] = BETTER
    return client


async def promote(client, version, headers, **more):
    body = {"version": version, "reason": "a test", **more}
    return await client.put(f"{URL}/maps/current", json=body, headers=headers)


FIRST = {"If-None-Match": "*"}


async def test_a_version_is_the_fit_as_it_was(made, inbox):
    shown = (await made.get(f"{URL}/maps/2")).json()
    assert {name: shown[name] for name in FIT} == FIT | {"digest": "d2"}
    assert (shown["version"], shown["note"], shown["created_by"]) == (2, "no. 2", "default")
    again = await made.post(f"{URL}/maps", json={"method": "temperature"})
    assert (again.status_code, again.json()["version"]) == (200, 3)
    assert inbox.asked[-1][0] == "calibration_map" and "note" not in inbox.asked[-1][2]
    etag = (await made.get(f"{URL}/maps/2")).headers["etag"]
    assert (await made.get(f"{URL}/maps/2", headers={"If-None-Match": etag})).status_code == 304
    listed = (await made.get(f"{URL}/maps")).json()
    assert [each["version"] for each in listed["versions"]] == [1, 2, 3]
    assert "parameters" not in listed["versions"][0]
    assert {"sample", "fitted_to", "recommendation", "warnings"} <= set(listed["versions"][0])
    assert (listed["current"], listed["promotions"]) == (None, [])


async def test_what_cannot_be_frozen(client, inbox):
    await client.put(URL, json={"classes": 3})
    inbox.answers["calibration_map"] = FIT | {"parameters": None, "reason": "no_labels"}
    answer = await client.post(f"{URL}/maps", json={"method": "temperature"})
    assert problem(answer, 422, "invalid-input")["errors"][0]["rule"] == "no_map"
    for body, rule in (
        ({"method": "magic"}, "unknown_value"),
        ({"made_up": 1}, "unknown_field"),
        ({"bins": 0}, None),
    ):
        found = problem(await client.post(f"{URL}/maps", json=body), 422, "invalid-input")
        assert rule is None or found["errors"][0]["rule"] == rule
    problem(await client.post(f"{URL}/maps", json=[1]), 422, "invalid-input")
    problem(await client.post("/v1/models/none/maps", json={}), 404, "model-unknown")
    problem(await client.get(f"{URL}/maps/1"), 404, "map-unknown")
    assert (await client.get(f"{URL}/maps/0")).status_code == 422
    problem(await client.get(f"{URL}/maps/current"), 404, "map-unknown")
    problem(await client.get("/v1/models/none/maps/current"), 404, "model-unknown")


async def test_the_current_map_is_polled_for_one_read(made, inbox):
    first = await promote(made, 1, FIRST)
    assert first.status_code == 200, first.text
    asked = len(inbox.asked)
    read = await made.get(f"{URL}/maps/current")
    assert read.content == first.content and read.headers["etag"] == first.headers["etag"]
    assert "stale-if-error=86400" in read.headers["cache-control"]
    assert read.json()["parameters"] == {"temperature": 2.0}
    promotion = read.json()["promotion"]
    assert (promotion["promotion"], promotion["reason"], promotion["promoted_by"]) == (
        1,
        "a test",
        "default",
    )
    assert promotion["evidence"]["beats"] is True
    unchanged = await made.get(
        f"{URL}/maps/current", headers={"If-None-Match": read.headers["etag"]}
    )
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert "stale-if-error=86400" in unchanged.headers["cache-control"]
    assert len(inbox.asked) == asked


@pytest.mark.parametrize(
    ("declared", "scope", "held", "warned"),
    [
        ({"label_horizon": "P1D"}, "full", {}, True),
        ({"label_horizon": "P1D"}, "full", {"joined": 0, "pending": 0, "waiting": 3}, True),
        ({"label_horizon": "P1D", "alarm": {"scores": "raw"}}, "full", {}, False),
        ({}, "full", {}, False),
        ({"label_horizon": "P1D"}, "top_label", {}, False),
        ({"label_horizon": "P1D"}, "full", {"joined": 1, "pending": 0}, False),
        ({"label_horizon": "P1D"}, "full", {"joined": 0, "pending": 1}, False),
    ],
)
async def test_a_promotion_that_blinds_the_alarm_says_so(
    client, inbox, monkeypatch, declared, scope, held, warned
):
    async def tallies(model):
        return held

    monkeypatch.setattr(inbox, "tallies", tallies)
    assert (await client.put(URL, json={"classes": 3, **declared})).status_code == 201
    inbox.answers |= {"calibration_map": FIT | {"scope": scope}}
    inbox.answers |= dict.fromkeys(("map_comparison", "map_procedure"), BETTER)
    await client.post(f"{URL}/maps", json={})
    promoted = await promote(client, 1, FIRST)
    warnings = promoted.json()["promotion"]["warnings"]
    assert [each["rule"] for each in warnings] == ["alarm_blind"] * warned
    assert (await client.get(f"{URL}/maps/current")).json()["promotion"]["warnings"] == warnings
    assert all(
        "alarm.scores to raw" in each["detail"] and each["pointer"] == "/version"
        for each in warnings
    )


async def test_a_promotion_names_the_one_that_it_follows(made):
    problem(await promote(made, 1, {}), 428, "precondition-required")
    none = problem(await promote(made, 1, {"If-Match": "*"}), 412, "precondition-failed")
    assert none["detail"].startswith("No map is current yet")
    problem(await promote(made, 1, {"If-None-Match": '"any"'}), 428, "precondition-required")
    first = (await promote(made, 1, FIRST)).headers["etag"]
    problem(await promote(made, 2, FIRST), 412, "precondition-failed")
    problem(await promote(made, 2, FIRST | {"If-Match": first}), 412, "precondition-failed")
    problem(await promote(made, 2, {"If-None-Match": '"another"'}), 428, "precondition-required")
    second = await promote(made, 2, {"If-Match": first})
    assert second.json()["version"] == 2 and second.headers["etag"] != first
    problem(await promote(made, 3, {"If-Match": first}), 412, "precondition-failed")
    same = await promote(made, 2, {"If-Match": second.headers["etag"]})
    assert same.content == second.content
    listed = (await made.get(f"{URL}/maps")).json()
    assert listed["current"] == 2
    assert [(each["version"], each["previous"]) for each in listed["promotions"]] == [
        (1, None),
        (2, 1),
    ]


async def test_a_version_that_did_not_win_needs_an_override(made, inbox):
    first = (await promote(made, 1, FIRST)).headers["etag"]
    inbox.answers["map_comparison"] = WORSE
    rejected = problem(await promote(made, 2, {"If-Match": first}), 409, "map-not-better")
    assert rejected["errors"][0]["rule"] == "not_better"
    kind, _, params, window, _ = inbox.asked[-1]
    assert kind == "map_comparison"
    assert set(params["current"]) == {"method", "scope", "class", "parameters"}
    assert window.to_dict()["from"] == "2026-01-02T00:00:00Z"
    forced = await promote(made, 2, {"If-Match": first}, override=True)
    assert forced.json()["promotion"]["override"] is True
    back = await promote(made, 1, {"If-Match": forced.headers["etag"]}, override=True)
    assert back.json()["version"] == 1 and back.json()["promotion"]["promotion"] == 3
    assert back.headers["etag"] not in (first, forced.headers["etag"])


async def test_a_version_of_a_slice_is_judged_on_every_prediction(client, inbox):
    """Unless the current map is of that slice too. It becomes the map of all predictions by an override only."""
    assert (
        await client.put(URL, json={"classes": 3, "slices": {"site": ["A"]}})
    ).status_code == 201
    inbox.answers["map_comparison"] = BETTER
    for number, name in enumerate((None, "site:A", "site:A"), 1):
        inbox.answers["calibration_map"] = FIT | {"digest": f"d{number}", "slice": name}
        await client.post(f"{URL}/maps", json={})
    etag = (await promote(client, 1, FIRST)).headers["etag"]
    judged = []
    for number in (2, 3):
        rejected = problem(await promote(client, number, {"If-Match": etag}), 409, "map-not-better")
        assert rejected["errors"][0]["rule"] == "of_slice"
        assert f"Version {number} was fitted to site:A only" in rejected["detail"]
        assert f"calibration-map/apply?version={number}" in rejected["detail"]
        answer = await promote(client, number, {"If-Match": etag}, override=True)
        assert answer.status_code == 200, answer.text
        etag = answer.headers["etag"]
        [warning] = answer.json()["promotion"]["warnings"]
        assert warning["rule"] == "of_slice" and "site:A only" in warning["detail"]
        judged.append([each[-1] for each in inbox.asked if each[0] == "map_comparison"][-1])
    assert judged == ["", "site:A"]


async def test_a_promotion_names_the_slices_that_the_map_makes_worse(client, inbox):
    declared = {"classes": 3, "slices": {"scanner": ["GE", "SIE"]}}
    assert (await client.put(URL, json=declared)).status_code == 201
    inbox.answers |= {"calibration_map": FIT | {"warnings": ["certain_values"]}}
    inbox.answers |= {"map_comparison": BETTER}
    inbox.answers["map_on_slice"] = {
        "is_worse": True,
        "n_units": 1200,
        "before": 0.018,
        "after": 0.026,
    }
    await client.post(f"{URL}/maps", json={})
    first, then, certain = (await promote(client, 1, FIRST)).json()["promotion"]["warnings"]
    assert first["rule"] == then["rule"] == "slice_worse" and certain["rule"] == "certain_values"
    assert first["detail"].startswith(
        "scanner:GE gets worse (1,200 labelled units). Its calibration error is 0.018 before the map and 0.026 after it."
    )
    assert then["detail"].startswith("scanner:SIE gets worse")
    assert "exactly 0 or 1" in certain["detail"]
    compared = [each for each in inbox.asked if each[0] == "map_on_slice"]
    assert [each[-1] for each in compared] == ["scanner:GE", "scanner:SIE"]
    assert {each[2]["ci"] for each in compared} == {0.975}
    assert {each[3].to_dict()["from"] for each in compared} == {FIT["window"]["from"]}


async def test_a_rejection_says_which_labels_were_compared_and_that_waiting_helps(made, inbox):
    window = {"from": "2026-01-02T00:00:00Z", "to": "2026-01-05T00:00:00Z"}
    inbox.answers["map_comparison"] = WORSE | {"n_units": 230, "window": window}
    detail = problem(await promote(made, 1, FIRST), 409, "map-not-better")["detail"]
    assert "Compared: 230 units with labels of 2 Jan 2026 to 4 Jan 2026." in detail
    assert "Wait for more labels, and promote it again." in detail
    worse = {"nll": {"value": -0.1, "interval": [-0.2, -0.05]}}
    inbox.answers["map_comparison"] = WORSE | {"n_units": 230, "window": window, "gain": worse}
    detail = problem(await promote(made, 1, FIRST), 409, "map-not-better")["detail"]
    assert "Wait" not in detail


async def test_a_window_that_is_not_over_has_no_later_labels(made, inbox):
    first = (await promote(made, 1, FIRST)).headers["etag"]
    inbox.answers["calibration_map"] = FIT | {
        "window": FIT["window"] | {"to": "2999-01-01T00:00:00Z"},
        "digest": "d9",
    }
    await made.post(f"{URL}/maps", json={})
    inbox.answers["map_procedure"] = WORSE | {"evidence_of": "procedure"}
    rejected = problem(await promote(made, 4, {"If-Match": first}), 409, "map-not-better")
    assert rejected["errors"][0]["rule"] == "not_better"
    assert "when cross-fitted by unit" in rejected["detail"]
    kind, _, params, window, _ = inbox.asked[-1]
    assert kind == "map_procedure"
    assert params["fit"]["method"] == "temperature" and params["current"]["parameters"]
    assert window.to_dict() == FIT["window"] | {"to": "2999-01-01T00:00:00Z"}
    inbox.answers["map_procedure"] = BETTER | {"evidence_of": "procedure"}
    evidence = (await promote(made, 4, {"If-Match": first})).json()["promotion"]["evidence"]
    assert (evidence["evidence_of"], evidence["later_labels"]) == ("procedure", "no_labels")
    assert evidence["result"] == "shown"


async def test_the_first_map_needs_evidence_or_an_override(made, inbox):
    inbox.answers["map_comparison"] = WORSE
    rejected = problem(await promote(made, 1, FIRST), 409, "map-not-better")
    assert "not shown to beat the probabilities as sent on later labels" in rejected["detail"]
    evidence = (await promote(made, 1, FIRST, override=True)).json()["promotion"]["evidence"]
    assert evidence["result"] == "not_shown"
    assert evidence["limits"].endswith("another scanner or site.")


async def test_later_labels_that_are_too_few_decide_nothing(made, inbox):
    few = WORSE | {"reason": "few_units", "detail": "fewer than 20 units"}
    inbox.answers |= {"map_comparison": few, "map_procedure": BETTER}
    evidence = (await promote(made, 1, FIRST)).json()["promotion"]["evidence"]
    assert (evidence["beats"], evidence["later_labels"]) == (True, "few_units")


@pytest.mark.parametrize("body", [{}, {"version": 1}, {"version": "1", "reason": "x"}, {"version": 1, "reason": ""},
                                  {"version": 1, "reason": "x", "more": 1}])  # fmt: skip
async def test_a_promotion_says_which_and_why(made, body):
    answer = await made.put(f"{URL}/maps/current", json=body, headers=FIRST)
    problem(answer, 422, "invalid-input")


async def test_frozen_maps_are_applied_without_asking_a_worker(made, inbox):
    body = {"probabilities": [[0.7, 0.2, 0.1]]}
    url = f"{URL}/calibration-map/apply"
    problem(await made.post(url, params={"map": "current"}, json=body), 404, "map-unknown")
    asked = len(inbox.asked)
    answer = (await made.post(url, params={"version": 2}, json=body)).json()
    assert (answer["version"], answer["digest"]) == (2, "d2")
    power = [p**0.5 for p in (0.7, 0.2, 0.1)]
    assert answer["probabilities"][0] == pytest.approx([p / sum(power) for p in power], abs=1e-15)
    assert len(inbox.asked) == asked
    await promote(made, 3, FIRST)
    asked = len(inbox.asked)
    answer = (await made.post(url, params={"map": "current"}, json=body)).json()
    assert (answer["version"], answer["digest"], len(inbox.asked)) == (3, "d3", asked)
    fitted = (await made.post(url, json=body)).json()
    assert (fitted["version"], fitted["digest"]) == (None, "d3")
    problem(await made.post(url, params={"version": 9}, json=body), 404, "map-unknown")


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"version": 1, "map": "current"}, "/map"),
        ({"version": 1, "method": "beta"}, "/method"),
        ({"map": "current", "window": "P1D"}, "/window"),
        ({"map": "current", "class": "1"}, "/class"),
        ({"map": "latest"}, "/map"),
        ({"version": 0}, "/version"),
    ],
)
async def test_a_frozen_map_is_named_once_and_nothing_is_fitted_beside_it(made, params, pointer):
    body = {"probabilities": [[0.7, 0.2, 0.1]]}
    answer = await made.post(f"{URL}/calibration-map/apply", params=params, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer, answer.text


@pytest.mark.parametrize(("method", "scope"), CASES)
async def test_posted_rows_come_back_as_the_page_computes_them(client, inbox, method, scope):
    answer, there = fitted(method, scope)
    rows = there.probabilities if scope == "full" else there.probabilities[:, 1]
    await client.put(URL, json={"classes": there.n_classes, "task": there.task})
    inbox.answers["calibration_map"] = FIT | answer
    assert (await client.post(f"{URL}/maps", json={})).status_code == 201
    name = "probabilities" if scope == "full" else "confidences"
    url = f"{URL}/calibration-map/apply?version=1"
    posted = (await client.post(url, json={name: rows.tolist()})).json()
    assert (posted["scope"], posted["class"]) == (answer["scope"], answer["class"])
    written = by_python(answer, rows.tolist())
    assert np.abs(np.array(posted[name]) - written).max() < 1e-12


async def test_a_number_that_is_none_and_a_method_that_is_not_answered(made):
    for number in ("abc", "0", "1000001"):
        rejected = problem(await made.get(f"{URL}/maps/{number}"), 422, "invalid-name")
        assert rejected["detail"].startswith(f"Received '{number}' for version; expected ")
        assert rejected["errors"][0]["pointer"] == "/version"
    rejected = await made.delete(f"{URL}/maps/current")
    assert problem(rejected, 405, "method-not-allowed")["detail"].endswith(
        "allowed: GET, HEAD, PUT."
    )
    assert rejected.headers["allow"] == "GET, HEAD, PUT"


async def test_the_class_is_named_that_probabilities_are_of(client, inbox):
    await client.put(URL, json={"classes": 3})
    curve = {"slope": 1.0, "intercept": 0.0, "clip": 1e-12}
    inbox.answers["calibration_map"] = FIT | {
        "method": "platt",
        "scope": "class",
        "class": 2,
        "parameters": curve,
    }
    answer = await client.post(
        f"{URL}/calibration-map/apply",
        params={"method": "platt", "class": "2"},
        json={"probabilities": [[0.7, 0.1, 0.2]]},
    )
    found = answer.json()
    assert (found["scope"], found["class"]) == ("class", 2)
    assert found["confidences"] == pytest.approx([0.2], abs=1e-12)


async def test_observe_mode_of_a_model_makes_maps_advice(made, inbox):
    first = await promote(made, 1, FIRST)
    assert (await made.get(URL)).json()["mode"] == "serve"
    settings = (await made.get(URL)).headers["etag"]
    observed = await made.patch(
        URL,
        content=b'{"mode": "observe"}',
        headers={"If-Match": settings, "Content-Type": "application/merge-patch+json"},
    )
    assert observed.json()["mode"] == "observe", observed.text
    for response in (
        await promote(made, 2, {"If-Match": first.headers["etag"]}),
        await made.get(f"{URL}/maps/current"),
        await made.post(
            f"{URL}/calibration-map/apply?map=current", json={"probabilities": [[0.2, 0.3, 0.5]]}
        ),
    ):
        rejected = problem(response, 409, "observe-only")
        assert "'digits' is in observe mode" in rejected["detail"]
    # Fits, and what was frozen and promoted before, can be read; a new version can be frozen.
    listed = (await made.get(f"{URL}/maps")).json()
    assert listed["current"] == 1 and len(listed["promotions"]) == 1
    inbox.answers["calibration_map"] = FIT | {"digest": "d4"}
    assert (await made.post(f"{URL}/maps", json={"method": "temperature"})).status_code == 201
    report = await made.get(f"{URL}/maps/4")
    assert report.json()["version"] == 4


async def test_observe_mode_of_the_service_holds_for_every_model(made):
    app = made._transport.app
    app.state.settings = app.state.settings.model_copy(update={"mode": "observe"})
    rejected = problem(await promote(made, 1, FIRST), 409, "observe-only")
    assert "CALIBRANT_MODE" in rejected["detail"]


async def test_a_mode_is_one_of_two(client):
    rejected = problem(
        await client.put(URL, json={"classes": 3, "mode": "watch"}), 422, "invalid-input"
    )
    assert rejected["errors"][0]["pointer"] == "/mode"
