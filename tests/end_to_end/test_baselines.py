"""Baselines and other models: frozen for good, compared metric by metric."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

NOW = datetime.now(UTC) - timedelta(hours=2)


def send(
    deployment, model: str, p: np.ndarray, y: np.ndarray, prefix: str = "u", **columns: object
) -> dict:
    body = {
        "confidences": p.tolist(),
        "labels": y.tolist(),
        "units": [f"{prefix}{i}" for i in range(len(p))],
        "event_times": [NOW.isoformat()] * len(p),
        "slices": {"site": ["A"] * len(p)},
    }
    return deployment.post(f"/v1/models/{model}/predictions", body | columns)


@pytest.fixture(scope="module", params=["embedded", pytest.param("spread", marks=pytest.mark.slow)])
def simulated(request):
    deployment = request.getfixturevalue(request.param)
    rng = np.random.default_rng(1)
    p = rng.uniform(0.05, 0.95, 600)
    y = (rng.random(600) < p).astype(int)
    send(deployment, "now", p, y)
    odds = (p / (1 - p)) ** 2.5
    send(deployment, "sharp", odds / (1 + odds), y)
    return deployment


def test_a_baseline_stays_as_it_was_frozen(simulated):
    path = "/v1/models/now/baselines/first"
    made = simulated.client.put(path, json={"window": "P7D"})
    assert (made.status_code, made.headers["location"]) == (201, path), made.text
    assert (made.json()["n_predictions"], made.json()["clock"]) == (600, "event")
    before = simulated.get("/v1/models/now/metrics", metrics="brier,ece")["metrics"]
    rng = np.random.default_rng(2)
    send(simulated, "now", rng.random(400), rng.integers(0, 2, 400), "v")
    found = simulated.get("/v1/models/now/metrics", metrics="brier,ece", against="baseline:first")
    assert (found["n_predictions"], found["against"]["n_predictions"]) == (1000, 600)
    for slug in ("brier", "ece"):
        each = found["metrics"][slug]
        assert each["against"] == pytest.approx(before[slug]["value"], abs=1e-12)
        assert each["difference"] == pytest.approx(each["value"] - each["against"])
    low, high = found["metrics"]["brier"]["difference_interval"]
    assert 0 < low < found["metrics"]["brier"]["difference"] < high
    answer = simulated.client.get(
        "/v1/models/now/metrics", params={"metrics": "ece", "against": "baseline:first"}
    )
    again = simulated.client.get(
        "/v1/models/now/metrics",
        params={"metrics": "ece", "against": "baseline:first"},
        headers={"If-None-Match": answer.headers["etag"]},
    )
    assert again.status_code == 304
    listed = simulated.get("/v1/models/now/baselines")["baselines"]
    assert [each["name"] for each in listed] == ["first"]
    assert simulated.get(path) == listed[0] == made.json()


def test_a_name_holds_one_window(simulated):
    path = "/v1/models/sharp/baselines/b"
    window = {"from": (NOW - timedelta(days=1)).isoformat(), "to": NOW.isoformat()}
    assert simulated.client.put(path, json=window).status_code == 201
    assert simulated.client.put(path, json=window).status_code == 201
    other = simulated.client.put(path, json={**window, "slice": "site:A"})
    assert (other.status_code, other.json()["type"]) == (409, "/v1/problems/baseline-conflict")
    assert simulated.client.delete(path).status_code == 204
    assert simulated.client.delete(path).status_code == 404
    assert simulated.client.get(path).status_code == 404
    assert (
        simulated.client.put(path, json={**window, "slice": "site:A"}).json()["slice"] == "site:A"
    )
    assert simulated.get("/v1/models/sharp/metrics", by="site")["slices"].keys() == {"A"}
    unknown = simulated.client.get("/v1/models/sharp/metrics", params={"against": "baseline:none"})
    assert unknown.json()["errors"][0]["rule"] == "unknown_baseline"
    wrong = simulated.client.put(path, json={"window": "yesterday"})
    assert wrong.status_code == 422


def test_one_model_against_another(simulated):
    found = simulated.get(
        "/v1/models/sharp/metrics",
        metrics="ece,brier,kde_ece",
        bins=10,
        against="model:now",
        slice="site:A",
    )
    for slug in ("ece", "brier", "kde_ece"):
        interval_of(found["metrics"][slug])
    simulated.client.put("/v1/models/three", json={"classes": 3})
    wrong = simulated.client.get("/v1/models/sharp/metrics", params={"against": "model:three"})
    assert wrong.json()["errors"][0]["rule"] == "not_comparable"
    assert (
        simulated.client.get(
            "/v1/models/sharp/metrics", params={"against": "model:nobody"}
        ).status_code
        == 404
    )


def interval_of(found: dict) -> float:
    low, high = found["difference_interval"]
    assert low <= found["difference"] <= high
    return high - low


def test_every_read_says_what_it_differs_by(simulated):
    simulated.client.put("/v1/models/three", json={"classes": 3})
    assert (
        simulated.client.put("/v1/models/now/baselines/all", json={"window": "P7D"}).status_code
        == 201
    )
    model = "/v1/models/sharp"
    for name, against in (("now", {"against": "model:now"}), ("own", {"against": "baseline:own"})):
        if name == "own":
            assert (
                simulated.client.put(f"{model}/baselines/own", json={"window": "P7D"}).status_code
                == 201
            )
        tables = simulated.get(f"{model}/reliability", bins=10, **against)
        assert interval_of(tables) > 0 or name == "own"
        assert tables["against"].keys() >= {"n_predictions", "shared"}
        assert {"difference", "difference_interval", "against"} <= tables["table"][0].keys()
        temperature = simulated.get(f"{model}/temperature", **against)
        interval_of(temperature)
        assert temperature["ratio"] == pytest.approx(
            temperature["temperature"] / temperature["against"]["temperature"]
        )
        fitted = simulated.get(f"{model}/calibration-map", method="platt", **against)
        assert fitted["against"]["map"]["parameters"].keys() == fitted["parameters"].keys()
        low, high = fitted["difference"]["nll"]["interval"]
        assert low <= fitted["difference"]["nll"]["value"] <= high
        assert fitted["against_held_out"]["nll"] - fitted["held_out"]["nll"] == pytest.approx(
            fitted["difference"]["nll"]["value"], abs=1e-12
        )
        steady = simulated.get(f"{model}/stability", metric="brier", **against)
        assert steady["baselines"].keys() == {"pooled", "mean", "majority", "single"}
        for each in steady["baselines"].values():
            interval_of(each)
        curve = simulated.get(f"{model}/roc", **against)
        same = simulated.get(f"{model}/metrics", metrics="auc", **against)["metrics"]["auc"]
        for result in ("value", "against", "difference", "difference_interval"):
            assert curve["area"][result] == pytest.approx(same[result], abs=1e-12)
        interval_of(curve["area"])
        unsure = simulated.get(f"{model}/uncertainty", **against)
        assert unsure["difference"] == pytest.approx(unsure["value"] - unsure["against"]["value"])
        assert (
            len(unsure["against"]["table"]) == len(unsure["table"])
            and unsure["against"]["n_predictions"]
        )
        measures = simulated.get(f"{model}/label-distribution", **against)
        assert measures["dist_ce"]["difference"] == pytest.approx(
            measures["dist_ce"]["value"] - measures["dist_ce"]["against"]
        )
        interval_of(measures["dist_ce"])
        disagreement = simulated.get(f"{model}/disagreement", **against)
        assert disagreement["differences"]["rater_disagreement"]["difference_reason"] == "one_vote"
    picture = simulated.client.get(
        f"{model}/reliability", params={"against": "baseline:own", "format": "svg"}
    )
    assert (picture.status_code, picture.headers["content-type"][:9]) == (200, "image/svg")
    mass = simulated.client.get(
        f"{model}/reliability", params={"against": "baseline:own", "binning": "equal_mass"}
    )
    assert mass.json()["errors"][0]["rule"] == "equal_width"
    for read in (
        *("reliability", "temperature", "disagreement", "calibration-map", "stability"),
        *("roc", "uncertainty", "label-distribution"),
    ):
        wrong = simulated.client.get(f"{model}/{read}", params={"against": "baseline:none"})
        assert (wrong.status_code, wrong.json()["errors"][0]["rule"]) == (422, "unknown_baseline")
        three = simulated.client.get(f"{model}/{read}", params={"against": "model:three"})
        assert (three.status_code, three.json()["errors"][0]["rule"]) == (422, "not_comparable")


def test_slices_and_parts_of_time_are_compared_one_by_one(simulated):
    model = "/v1/models/sharp/metrics"
    rng = np.random.default_rng(5)
    p = rng.uniform(0.05, 0.95, 200)
    y = (rng.random(200) < p).astype(int)
    early = {
        "event_times": [(NOW - timedelta(days=2)).isoformat()] * 200,
        "slices": {"site": ["B"] * 200},
    }
    for name, scores in (("now", p), ("sharp", p**2)):
        send(simulated, name, scores, y, "early", **early)
    by = simulated.get(model, metrics="brier", by="site", against="model:now")["slices"]
    complete = simulated.get(model, metrics="brier", against="model:now")
    assert by.keys() == {"A", "B"}
    for each in by.values():
        interval_of(each["metrics"]["brier"])
    assert by["B"]["against"]["n_predictions"] == 200
    frozen = simulated.get(model, metrics="brier", by="site", against="baseline:own")["slices"]
    assert {each["against"]["n_predictions"] for each in frozen.values()} == {600}
    series = simulated.get(model, metrics="brier", every="P1D", against="model:now")["series"]
    assert [each["against"]["n_predictions"] for each in series] == [
        200,
        complete["against"]["n_predictions"] - 200,
    ]
    assert sum(each["n_predictions"] for each in series) == complete["n_predictions"] == 800
    both = simulated.get(model, metrics="brier", by="site", every="P1D", against="baseline:own")[
        "slices"
    ]
    assert [len(each["series"]) for each in both.values()] == [1, 1]
    [part] = both["B"]["series"]
    assert part["metrics"]["brier"]["difference"] == frozen["B"]["metrics"]["brier"]["difference"]


def test_a_window_is_compared_with_the_one_before_it(simulated):
    model, rng = "/v1/models/before-after", np.random.default_rng(6)
    day = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    p = rng.uniform(0.05, 0.95, 300)
    for days, scores in ((1, p), (2, p**2), (3, p**3)):
        y = (rng.random(300) < p).astype(int)
        at = {"event_times": [(day - timedelta(days=days) + timedelta(hours=5)).isoformat()] * 300}
        send(simulated, "before-after", scores, y, f"d{days}", **at)
    ends = {"from": (day - timedelta(days=1)).isoformat(), "to": day.isoformat()}
    ends = {name: at.replace("+00:00", "Z") for name, at in ends.items()}
    before = {
        "from": (day - timedelta(days=2)).isoformat().replace("+00:00", "Z"),
        "to": ends["from"],
    }
    found = simulated.get(f"{model}/metrics", metrics="brier,ece", **ends, against="window:P1D")
    other = simulated.get(f"{model}/metrics", metrics="brier,ece", **before)
    assert found["against"]["window"] == before and found["against"]["n_predictions"] == 300
    for key, each in found["metrics"].items():
        assert each["against"] == pytest.approx(other["metrics"][key]["value"], abs=1e-12)
        assert each["difference"] == pytest.approx(each["value"] - each["against"], abs=1e-12)
    interval_of(found["metrics"]["brier"])
    wider = simulated.get(f"{model}/temperature", **ends, against="window:P2D")
    assert wider["against"]["n_predictions"] == 600
    # The other side is named by the window, so its state is part of the ETag.
    url, query = f"{model}/metrics", {"metrics": "brier", **ends, "against": "window:P1D"}
    etag = simulated.client.get(url, params=query).headers["etag"]
    known = {"If-None-Match": etag}
    assert simulated.client.get(url, params=query, headers=known).status_code == 304
    at = {"event_times": [(day - timedelta(days=1, hours=12)).isoformat()] * 300}
    send(simulated, "before-after", p, (rng.random(300) < p).astype(int), "late", **at)
    assert simulated.client.get(url, params=query, headers=known).status_code == 200
