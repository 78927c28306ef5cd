"""Both clocks over HTTP, and days of hours that have been merged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually


@pytest.fixture(scope="module")
def ageing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A service that looks after its panes all the time."""
    directory = tmp_path_factory.mktemp("ageing")
    with Deployment(
        directory, CALIBRANT_HOUSEKEEPING="0.2", CALIBRANT_COMPACT_AFTER="P2D"
    ) as deployment:
        yield deployment


def send(ageing: Deployment, model: str, at: datetime, n: int = 4, **columns: object) -> dict:
    body = {"confidences": [0.25] * n, "event_times": [at.isoformat()] * n, **columns}
    return ageing.post(f"/v1/models/{model}/predictions", body)


def test_what_was_sealed_stays_as_it_was(ageing):
    path = "/v1/models/waits"
    ageing.client.put(path, json={"task": "binary", "pane": "PT1M", "label_horizon": "PT2H"})
    at = datetime.now(UTC) - timedelta(hours=3)
    ids = ["a", "b", "c", "d"]
    nothing = ageing.get(f"{path}/metrics", clock="sealed")
    assert (nothing["n_predictions"], nothing["sealed_to"]) == (0, None)
    first = ageing.client.get(f"{path}/metrics", params={"clock": "sealed"}).headers["etag"]
    send(ageing, "waits", at, ids=ids, labels=[0, None, None, None], slices={"site": ["A"] * 4})
    eventually(lambda: ageing.get(f"{path}/metrics", clock="sealed")["n_predictions"] == 4)
    sealed = ageing.client.get(f"{path}/metrics", params={"clock": "sealed"})
    assert sealed.headers["etag"] != first
    assert (sealed.json()["clock"], sealed.json()["n_labelled"]) == ("sealed", 1)
    assert sealed.json()["label_coverage"]["coverage"] == 0.25
    ageing.post(f"{path}/labels", {"ids": ["b", "c"], "labels": [1, 0]})
    live = ageing.get(f"{path}/metrics")
    assert (live["clock"], live["n_labelled"], live["matured"]) == ("event", 3, True)
    again = ageing.client.get(
        f"{path}/metrics",
        params={"clock": "sealed"},
        headers={"If-None-Match": sealed.headers["etag"]},
    )
    assert again.status_code == 304
    for kind in ("reliability", "temperature", "drift"):
        found = ageing.get(f"{path}/{kind}", clock="sealed")
        assert found["clock"] == "sealed"
    sliced = ageing.get(f"{path}/metrics", clock="sealed", by="site")
    assert sliced["slices"]["A"]["n_labelled"] == 1
    assert "site" in str(ageing.get(f"{path}/metrics", clock="sealed", slice="site:A")["slice"])
    send(ageing, "waits", datetime.now(UTC), n=1, labels=[0])
    assert ageing.get(f"{path}/metrics")["matured"] is False


def test_the_sealed_clock_needs_a_horizon(ageing):
    send(ageing, "never", datetime.now(UTC), labels=[0, 1, 1, 0])
    answer = ageing.client.get("/v1/models/never/metrics", params={"clock": "sealed"})
    assert (answer.status_code, answer.json()["errors"][0]["rule"]) == (422, "no_label_horizon")
    assert "clock" not in ageing.get("/v1/models/never/metrics")


def test_answers_about_a_merged_day_name_the_day(ageing):
    day = (datetime.now(UTC) - timedelta(days=5)).replace(hour=0, minute=0, second=0, microsecond=0)
    for hour in (3, 4, 9):
        send(ageing, "days", day + timedelta(hours=hour), labels=[0, 1, 0, 0])
    asked = {
        "from": (day + timedelta(hours=4)).isoformat(),
        "to": (day + timedelta(hours=5)).isoformat(),
    }
    complete = {"from": day.isoformat(), "to": (day + timedelta(days=1)).isoformat()}
    before = ageing.get("/v1/models/days/metrics", **complete)
    eventually(lambda: ageing.get("/v1/models/days/metrics", **asked)["n_predictions"] == 12)
    found = ageing.get("/v1/models/days/metrics", **asked)
    after = ageing.get("/v1/models/days/metrics", **complete)
    assert found["window"] == after["window"] == before["window"]
    assert before["metrics"]["ece"]["value"] == pytest.approx(
        after["metrics"]["ece"]["value"], abs=1e-12
    )
    series = ageing.get("/v1/models/days/metrics", every="PT1H", **complete)["series"]
    assert [point["window"] for point in series] == [after["window"]]
