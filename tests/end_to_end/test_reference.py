"""A posted reference: predictions with labels, or a pane, are the past of a model from its first live day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import calibrant as cal
from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually

N_A_DAY, LIVE_DAYS, PAST_DAYS = 200, 5, 30
# The last day ended at least a label horizon ago, whatever the time of day.
START = (datetime.now(UTC) - timedelta(days=LIVE_DAYS, hours=1)).replace(
    hour=0, minute=0, second=0, microsecond=0
)


@pytest.fixture(scope="module")
def sealing(tmp_path_factory):
    """A deployment that seals often."""
    with Deployment(tmp_path_factory.mktemp("sealing"), CALIBRANT_HOUSEKEEPING="0.5") as found:
        yield found


def drawn(rng, n, temperature):
    """Return scores, and labels of log-odds divided by a temperature."""
    z = rng.normal(0.0, 2.0, n)
    return 1 / (1 + np.exp(-z)), (rng.random(n) < 1 / (1 + np.exp(-z / temperature))).astype(int)


def put_reference(sealing, path, rng, form):
    p, y = drawn(rng, N_A_DAY * PAST_DAYS, 1.0)
    url = f"{path}/baselines/reference"
    if form == "pane":
        packed = cal.Pane.fill(p, y).to_bytes()
        headers = {"Content-Type": "application/x-calibrant-pane"}
        return sealing.client.put(url, content=packed, headers=headers)
    days = np.repeat(np.arange(PAST_DAYS), N_A_DAY) - PAST_DAYS
    times = [(START + timedelta(days=int(day), hours=9)).isoformat() for day in days]
    body = {"confidences": p.tolist(), "labels": y.tolist(), "event_times": times}
    return sealing.client.put(url, json=body)


def live(sealing, path, rng, temperature):
    for day in range(LIVE_DAYS):
        p, y = drawn(rng, N_A_DAY, temperature)
        times = [(START + timedelta(days=day, hours=9)).isoformat()] * N_A_DAY
        body = {"confidences": p.tolist(), "labels": y.tolist(), "event_times": times}
        sealing.post(f"{path}/predictions", body)
    eventually(lambda: len(sealing.get(f"{path}/drift/history")["cohorts"]) == LIVE_DAYS)
    return sealing.get(f"{path}/drift")["change"]


@pytest.mark.parametrize("form", ["rows", "pane"])
def test_a_change_on_the_first_live_day_is_found(sealing, form):
    path, rng = f"/v1/models/new-{form}", np.random.default_rng(5)
    sealing.client.put(path, json={"task": "binary", "label_horizon": "PT1H"})
    made = put_reference(sealing, path, rng, form)
    assert made.status_code == 201, made.text
    assert made.json()["n_labelled"] == N_A_DAY * PAST_DAYS
    change = live(sealing, path, rng, 2.0)
    assert change["word"] == "changed"
    assert "Live data differ from the reference" in change["sentence"]


def test_with_days_in_its_reference_a_model_is_armed_at_once(sealing):
    path, rng = "/v1/models/new-days", np.random.default_rng(6)
    sealing.client.put(path, json={"task": "binary", "label_horizon": "PT1H"})
    assert put_reference(sealing, path, rng, "rows").status_code == 201
    change = live(sealing, path, rng, 1.0)
    assert change["word"] == "none_seen" and change["armed_at"] is None
    assert sealing.client.delete(f"{path}/baselines/reference").status_code == 204
    assert sealing.get(f"{path}/drift")["change"]["word"] == "not_armed"


def test_a_model_like_its_reference_is_armed_within_days_and_none_is_seen(sealing):
    path, rng = "/v1/models/new-alike", np.random.default_rng(6)
    sealing.client.put(path, json={"task": "binary", "label_horizon": "PT1H"})
    assert put_reference(sealing, path, rng, "pane").status_code == 201
    change = live(sealing, path, rng, 1.0)
    assert change["word"] == "not_armed" and "No change is seen" in change["sentence"]
    wait = datetime.fromisoformat(change["armed_at"]) - (START + timedelta(days=LIVE_DAYS))
    # 12 live days, which show how days vary, and the hour after which labels are complete
    assert wait <= timedelta(days=7, hours=1), change


def test_content_is_checked_and_does_not_change(sealing):
    path, rng = "/v1/models/new-checked", np.random.default_rng(7)
    sealing.client.put(path, json={"task": "binary"})
    url = f"{path}/baselines/reference"
    for body in ({"confidences": [0.5, 1.5], "labels": [0, 1]}, {"confidences": [0.5]}):
        assert sealing.client.put(url, json=body).status_code == 422
    other = cal.Pane.fill(rng.dirichlet([1, 1, 1], 10), rng.integers(0, 3, 10)).to_bytes()
    headers = {"Content-Type": "application/x-calibrant-pane"}
    assert sealing.client.put(url, content=other, headers=headers).status_code == 422
    body = {"confidences": [0.5, 0.7], "labels": [0, 1]}
    for _ in range(2):
        assert sealing.client.put(url, json=body).status_code == 201
    assert sealing.client.put(url, json=body | {"labels": [1, 1]}).status_code == 409
    assert sealing.client.put(url, json={"window": "P7D"}).status_code == 409
