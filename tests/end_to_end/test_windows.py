"""Windows, series and slices over HTTP: the parts of the data that a question names, and no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def simulated(embedded):
    """Two days of a binary model, hourly, on two sites."""
    rng = np.random.default_rng(3)
    for hour in range(0, 48, 3):
        p = rng.random(20)
        at = (START + timedelta(hours=hour, minutes=5)).isoformat()
        body = {
            "confidences": p.tolist(),
            "labels": (rng.random(20) < p).astype(int).tolist(),
            "event_times": [at] * 20,
            "slices": {"site": ["A" if hour % 2 else "B"] * 20},
        }
        embedded.post("/v1/models/played/predictions", body)
    return embedded


def test_a_series_has_a_part_a_day(simulated):
    found = simulated.get("/v1/models/played/metrics", metrics="ece", every="P1D")
    assert [point["window"]["from"] for point in found["series"]] == [
        "2026-03-01T00:00:00Z",
        "2026-03-02T00:00:00Z",
    ]
    assert [point["n_labelled"] for point in found["series"]] == [160, 160]
    day = simulated.get(
        "/v1/models/played/metrics",
        metrics="ece",
        **{"from": "2026-03-02T00:00:00Z", "to": "2026-03-03T00:00:00Z"},
    )
    assert day["metrics"]["ece"]["value"] == found["series"][1]["metrics"]["ece"]["value"]


def test_a_part_is_whole_panes(simulated):
    answer = simulated.client.get("/v1/models/played/metrics", params={"every": "PT90M"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["rule"] == "whole_panes"


def test_every_value_of_a_slice_in_one_answer(simulated):
    found = simulated.get("/v1/models/played/metrics", metrics="ece", by="site")
    assert sorted(found["slices"]) == ["A", "B"]
    one = simulated.get("/v1/models/played/metrics", metrics="ece", slice="site:A")
    assert found["slices"]["A"]["metrics"] == one["metrics"]
    assert sum(each["n_labelled"] for each in found["slices"].values()) == 320


def test_the_last_panes(simulated):
    found = simulated.get(
        "/v1/models/played/metrics", metrics="ece", window="PT24H", to="2026-03-03T00:00:00Z"
    )
    assert found["window"] == {"from": "2026-03-02T00:00:00Z", "to": "2026-03-03T00:00:00Z"}
    assert found["n_labelled"] == 160


def test_an_answer_without_a_beginning_names_the_first_pane(simulated):
    found = simulated.get("/v1/models/played/metrics", metrics="ece", to="2026-03-03T00:00:00Z")
    assert found["window"]["from"] == "2026-03-01T00:00:00Z"


def test_an_unchanged_answer_is_not_computed_again(simulated):
    for path in (
        "metrics",
        "metrics?by=site",
        "reliability",
        "temperature",
        "drift",
        "calibration-map",
    ):
        first = simulated.client.get(f"/v1/models/played/{path}")
        assert first.status_code == 200, first.text
        again = simulated.client.get(
            f"/v1/models/played/{path}", headers={"If-None-Match": first.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")
