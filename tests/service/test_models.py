"""The registry over HTTP: versions, preconditions, what can change."""

import json

import pytest

from calibrant.core.durations import duration_of, parse_duration
from calibrant.results.base import ALWAYS
from calibrant_server.service.reads import fleet
from calibrant_server.workers.queries.ask import ResultFailedError, ResultTimeoutError
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits"


async def test_a_model_is_made_read_listed_changed_and_deleted(client):
    made = await client.put(URL, json={"classes": 10, "retention": "P90D", "unit": "patient"})
    assert made.status_code == 201 and made.headers["location"] == URL
    shown = made.json()
    assert (shown["n_classes"], shown["pane"], shown["retention"]) == (10, "PT1H", "P90D")
    read = await client.get(URL)
    assert read.json() == shown and read.headers["etag"] == made.headers["etag"]
    assert (await client.get("/v1/models")).json() == {"models": [shown], "next": None}
    headers = {"If-Match": read.headers["etag"]}
    changed = await client.patch(
        URL, json={"retention": None, "alarm": {"tolerance": 0.01}}, headers=headers
    )
    assert changed.status_code == 200, changed.text
    assert (changed.json()["retention"], changed.json()["unit"]) == (None, "patient")
    assert changed.headers["etag"] != read.headers["etag"]
    problem(await client.delete(URL, headers=headers), 412, "precondition-failed")
    assert (await client.delete(URL)).status_code == 204
    problem(await client.get(URL), 404, "model-unknown")
    problem(await client.delete(URL), 404, "model-unknown")


async def test_a_status_that_is_not_ready_is_null_with_the_reason(client, inbox):
    await client.put(URL, json={"classes": 3})
    [plain] = (await client.get("/v1/models")).json()["models"]
    assert not plain.keys() & {"status", "reason"} and not inbox.asked
    inbox.answers["model_status"] = {
        "error": dict.fromkeys(ALWAYS) | {"value": 0.5, "n": 3},
        "label_coverage": 0.75,
        "temperature": None,
    }
    inbox.failing["drift"] = ResultTimeoutError("late")
    [found] = (await client.get("/v1/models?view=status&include=details")).json()["models"]
    assert found.pop("as_of")
    few = ("model", "task", "n_classes", "pane", "label_horizon", "mode", "revision")
    assert found == {name: plain[name] for name in few} | {
        "flagged": [],
        **dict.fromkeys(("calibration", "change", "scores")),
        "status": None,
        "error": dict.fromkeys(ALWAYS) | {"value": 0.5, "n": 3},
        "temperature": None,
        "map_version": None,
        "label_coverage": 0.75,
        "last_seen": None,
        "turned_at": None,
        "reason": "not_ready",
    }
    inbox.failing["drift"] = ResultFailedError("failed")
    [found] = (await client.get("/v1/models?view=status")).json()["models"]
    assert (found["label_coverage"], found["reason"]) == (0.75, "not_computed")
    nulls = dict.fromkeys(("interval", "null_mean", "null_q95", "above_null", "reason"))
    assert found["error"] == {"value": 0.5, "n": 3} | nulls
    assert not found.keys() & {"task", "n_classes", "pane", "mode", "revision"}
    problem(await client.get("/v1/models?view=all"), 422, "invalid-query")


async def test_the_statuses_of_a_page_have_one_deadline(client, inbox, monkeypatch):
    monkeypatch.setattr(fleet, "STATUS_DEADLINE_S", 0.0)
    for name in "abc":
        await client.put(f"/v1/models/{name}", json={"classes": 3})
    page = (await client.get("/v1/models?view=status&limit=2")).json()
    assert [each["model"] for each in page["models"]] == ["a", "b"] and page["next"]
    assert {each["reason"] for each in page["models"]} == {"not_ready"} and not inbox.asked


async def test_tags_are_set_by_a_patch_and_select_models_of_the_list(client):
    for name in ("a", "b", "c"):
        await client.put(f"/v1/models/{name}", json={"classes": 3})
    assert "tags" not in (await client.get("/v1/models/a")).json()
    headers = {"If-Match": "*"}
    for name, tags in (("a", {"owner": "ann", "site": "B: north"}), ("b", {"owner": "ann"})):
        changed = await client.patch(f"/v1/models/{name}", json={"tags": tags}, headers=headers)
        assert changed.json()["tags"] == tags

    async def listed(tag: str) -> list[str]:
        page = await client.get("/v1/models", params={"tag": tag})
        return [each["model"] for each in page.json()["models"]]

    assert await listed("owner:ann") == ["a", "b"]
    assert await listed("site:B: north") == ["a"]
    assert await listed("owner:an") == []
    left = await client.patch("/v1/models/a", json={"tags": {"owner": None}}, headers=headers)
    assert left.json()["tags"] == {"site": "B: north"}
    problem(await client.get("/v1/models?tag=owner"), 422, "invalid-query")


async def test_unchanged_models_are_304(client):
    etag = (await client.put(URL, json={"classes": 3})).headers["etag"]
    assert (await client.get(URL, headers={"If-None-Match": etag})).status_code == 304


async def test_a_repeat_that_meets_its_first_attempt_finds_what_it_has_declared(
    client, registry, monkeypatch
):
    """The first attempt is written between the read and the write of the repeat."""
    settings = {"task": "binary"}
    assert (await client.put(URL, json=settings)).status_code == 201

    async def absent(tenant, model):
        return None

    monkeypatch.setattr(registry, "get", absent)
    again = await client.put(URL, json=settings)
    assert again.status_code == 200 and again.json()["task"] == "binary"
    other = await client.put(URL, json=settings | {"unit": "item"})
    problem(other, 428, "precondition-required")
    only_new = await client.put(URL, json=settings, headers={"If-None-Match": "*"})
    problem(only_new, 412, "precondition-failed")


async def test_the_same_settings_again_change_nothing(client):
    made = await client.put(URL, json={"classes": 3})
    again = await client.put(URL, json={"classes": 3})
    assert (again.status_code, again.json()) == (200, made.json())


async def test_changes_need_the_version_that_they_change(client):
    made = await client.put(URL, json={"classes": 3})
    blind = await client.put(URL, json={"classes": 3, "unit": "item"})
    problem(blind, 428, "precondition-required")
    problem(await client.patch(URL, json={"unit": "item"}), 428, "precondition-required")
    stale = {"If-Match": '"0.0"'}
    problem(await client.patch(URL, json={"unit": "x"}, headers=stale), 412, "precondition-failed")
    right = {"If-Match": made.headers["etag"]}
    assert (await client.patch(URL, json={"unit": "item"}, headers=right)).status_code == 200
    any_version = {"If-Match": "*"}
    assert (await client.patch(URL, json={"unit": "x"}, headers=any_version)).status_code == 200
    new_only = {"If-None-Match": "*"}
    answer = await client.put(URL, json={"classes": 3}, headers=new_only)
    problem(answer, 412, "precondition-failed")
    absent = await client.put("/v1/models/none", json={"classes": 3}, headers=any_version)
    problem(absent, 412, "precondition-failed")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"classes": 4}, "/classes"),
        ({"task": "segmentation"}, "/task"),
        ({"grid": 60}, "/grid"),
        ({"pane": "P1D"}, "/pane"),
    ],
)
async def test_what_panes_are_made_of_cannot_change(client, change, pointer):
    await client.put(URL, json={"classes": 3})
    answer = await client.patch(URL, json=change, headers={"If-Match": "*"})
    assert problem(answer, 409, "model-conflict")["errors"][0]["pointer"] == pointer


async def test_names_may_be_given_to_the_classes_that_are_there(client):
    await client.put(URL, json={"classes": 2})
    named = {"classes": ["no", "yes"]}
    answer = await client.patch(URL, json=named, headers={"If-Match": "*"})
    assert answer.json()["classes"] == ["no", "yes"]


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, ""),
        ({"classes": 1}, "/classes"),
        ({"classes": "ten"}, "/classes"),
        ({"classes": ["a", "a"]}, ""),
        ({"classes": ["a", "b\u0000"]}, "/classes"),
        ({"classes": ["a\u001b[31m", "b"]}, "/classes"),
        ({"classes": ["a\nb", "c"]}, "/classes"),
        ({"classes": ["a", "b\u2028"]}, "/classes"),
        ({"classes": True}, "/classes"),
        ({"classes": 3, "task": "binary"}, "/classes"),
        ({"classes": 3, "task": "ranking"}, "/task"),
        ({"classes": 3, "grid": 1}, "/grid"),
        ({"classes": 3, "grid": "3600"}, "/grid"),
        ({"classes": 3, "pane": "PT7H"}, ""),
        ({"classes": 3, "pane": "PT1S"}, ""),
        ({"classes": 3, "pane": "1y"}, "/pane"),
        ({"classes": 3, "pane": "PT60.5S"}, ""),
        ({"classes": 3, "retention": 90}, "/retention"),
        ({"classes": 3, "slices": {"a\nb": None}}, "/slices"),
        ({"classes": 3, "listed_classes": [7]}, "/listed_classes"),
        ({"classes": 3, "colour": "red"}, "/colour"),
    ],
)
async def test_settings_that_break_a_rule(client, document, pointer):
    found = problem(await client.put(URL, json=document), 422, "invalid-input")
    assert found["errors"][0]["pointer"].startswith(pointer)
    assert (await client.get(URL)).status_code == 404


async def test_a_setting_turns_creation_by_ingest_off(inbox, registry, settings):
    from calibrant_server.service.app import create_app
    from calibrant_server.service.engine import Connection
    from tests.service.conftest import PREDICTIONS, client_of

    strict = settings.model_copy(update={"create_models": False})
    async with client_of(create_app(strict, Connection(inbox, registry))) as client:
        answer = await client.post(f"{URL}/predictions", json=PREDICTIONS)
        problem(answer, 404, "model-unknown")
        await client.put(URL, json={"classes": 3})
        assert (await client.post(f"{URL}/predictions", json=PREDICTIONS)).status_code == 202


@pytest.mark.parametrize("seconds", [1, 60, 3600, 86_400, 90_061, 604_800, 3_600_000])
def test_durations_are_written_as_they_are_read(seconds):
    assert parse_duration(duration_of(seconds)) == seconds


BAD_SETTINGS = {
    "no classes": ({}, "", "missing"),
    "a class that is no name": ({"classes": ["a", 1]}, "/classes", "classes"),
    "an empty name": ({"classes": ["a", ""]}, "/classes", "classes"),
    "classes that are a truth": ({"classes": True}, "/classes", "classes"),
    "a name twice": ({"classes": ["a", "a"]}, "/classes", "repeated"),
    "too many classes": ({"classes": 10**9}, "/classes", "n_classes"),
    "a pane that divides no day": ({"classes": 3, "pane": "PT7M"}, "/pane", "pane"),
    "a part of a second of retention": (
        {"classes": 3, "retention": "PT0.5S"},
        "/retention",
        "whole_seconds",
    ),
    "a part of a second of horizon": (
        {"classes": 3, "label_horizon": "PT0.5S"},
        "/label_horizon",
        "whole_seconds",
    ),
    "a retention beyond time": (
        {"classes": 3, "retention": "P99999999999999999999D"},
        "/retention",
        "whole_seconds",
    ),
    "a colon in a slice key": ({"classes": 3, "slices": {"a:b": None}}, "/slices/a:b", "name"),
    "a slice key that is no name": (
        {"classes": 3, "slices": {"a/\nb": None}},
        "/slices/a~1\nb",
        "name",
    ),
    "a slice without values": ({"classes": 3, "slices": {"a": []}}, "/slices", "slices"),
    "a slice value twice": ({"classes": 3, "slices": {"a": ["x", "x"]}}, "/slices", "slices"),
    "a tag that is no text": ({"classes": 3, "tags": {"owner": ["x"]}}, "/tags/owner", "name"),
    "a tag of blanks": ({"classes": 3, "tags": {"owner": " \u00a0"}}, "/tags/owner", "name"),
    "a tag without a name": ({"classes": 3, "tags": {"": "x"}}, "/tags/", "pattern"),
    "an unknown field": ({"classes": 3, "a/b": 1}, "/a~1b", "unknown_field"),
    "an unknown field within": (
        {"classes": 3, "alarm": {"enabled": True}},
        "/alarm/enabled",
        "unknown_field",
    ),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
async def test_bad_settings_are_named(client, name):
    document, pointer, rule = BAD_SETTINGS[name]
    found = problem(await client.put(URL, json=document), 422, "invalid-input")
    assert (found["errors"][0]["pointer"], found["errors"][0]["rule"]) == (pointer, rule)
    assert found["detail"].startswith(f"{pointer}: " if pointer else "Received no classes")


async def test_too_many_tags_are_counted(client):
    document = {"classes": 3, "tags": {f"t{i}": "x" for i in range(21)}}
    found = problem(await client.put(URL, json=document), 422, "invalid-input")["errors"][0]
    assert found["detail"] == "Received 21 entries for tags; expected at most 20 entries."


async def test_a_patch_names_no_unknown_field_even_to_take_it_out(client):
    await client.put(URL, json={"classes": 3})
    answer = await client.patch(URL, json={"foo": None}, headers={"If-Match": "*"})
    assert problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == "/foo"


async def test_a_weak_tag_allows_no_change(client):
    etag = (await client.put(URL, json={"classes": 3})).headers["etag"]
    answer = await client.patch(URL, json={"unit": "x"}, headers={"If-Match": f"W/{etag}"})
    problem(answer, 412, "precondition-failed")
    assert (await client.get(URL, headers={"If-None-Match": f"W/{etag}"})).status_code == 304


BAD_CONFIGURATIONS = {
    "n_classes": "three", "task": "x", "retention_s": "x", "label_horizon_s": -5, "slices": [], "generation": "a b",
    "revision": 0, "alarm": {"bets": [7]}, "pane_s": 420, "listed_classes": [-1],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_CONFIGURATIONS)
async def test_an_import_is_held_to_the_rules_of_a_declaration(client, name):
    good = {
        "tenant": "t",
        "model": "m",
        "task": "multiclass",
        "n_classes": 3,
        "generation": "0" * 12,
        "revision": 1,
    }
    first = {
        "type": "model",
        "format": 1,
        "configuration": {**good, name: BAD_CONFIGURATIONS[name]},
    }
    export = "\n".join(map(json.dumps, (first, {"type": "end", "lines": 1, "consistent": True})))
    answer = await client.post(
        f"{URL}/import", content=export, headers={"Content-Type": "application/x-ndjson"}
    )
    [error] = problem(answer, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/1", "export_format")
    problem(await client.get(URL), 404, "model-unknown")


async def test_days_are_not_dropped_before_they_are_sealed(client):
    """The alarm of a model whose retention is shorter than its label horizon never evaluates a day."""
    settings, headers = {"classes": 3, "label_horizon": "P3D"}, {"If-Match": "*"}
    rejected = await client.put(URL, json=settings | {"retention": "P2D"})
    [error] = problem(rejected, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/retention", "before_horizon")
    assert "retention P2D with the label_horizon P3D" in error["detail"]
    assert (await client.put(URL, json=settings | {"retention": "P4D"})).status_code == 201
    for change in ({"retention": "P3D"}, {"label_horizon": "P5D"}):
        changed = await client.patch(URL, json=change, headers=headers)
        problem(changed, 422, "invalid-input")
    assert (
        await client.patch(URL, json={"label_horizon": None, "retention": "P1D"}, headers=headers)
    ).status_code == 200
