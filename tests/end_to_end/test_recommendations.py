"""A model that is off has one recommendation, whichever read returns it."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from scipy.special import softmax

from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually


@pytest.mark.parametrize("n_classes", [2, 4])
def test_drift_without_cohorts_recommends_what_temperature_does(embedded, n_classes):
    """Scores that are too extreme by a factor of 2 in log-odds: the temperature that was applied."""
    rng = np.random.default_rng(n_classes)
    logits = rng.normal(0.0, 1.5, (3000, n_classes))
    labels = [rng.choice(n_classes, p=row) for row in softmax(logits, axis=1)]
    name = f"extreme{n_classes}"
    body = {"probabilities": softmax(2.0 * logits, axis=1).tolist(), "labels": [*map(int, labels)]}
    embedded.post(f"/v1/models/{name}/predictions", body)
    fitted = embedded.get(f"/v1/models/{name}/temperature", include="recommendation")
    found = embedded.get(f"/v1/models/{name}/drift", include="evidence")
    assert found["calibration"]["word"] == "off"
    assert fitted["temperature"] == pytest.approx(2.0, abs=0.15)
    assert found["recommendation"] == fitted["recommendation"]
    assert found["recommendation"]["action"] == "temperature"
    short = embedded.get(f"/v1/models/{name}/drift")["recommendation"]
    assert short["reason"] == fitted["recommendation"]["reason"]
    assert "candidates" not in short["evidence"]


@pytest.fixture
def sealing(tmp_path):
    """A deployment that seals often."""
    with Deployment(tmp_path, CALIBRANT_HOUSEKEEPING="0.5") as found:
        yield found


def test_a_watched_model_has_one_recommendation_at_all_reads_of_its_current_state(sealing):
    """Scores that became too extreme: temperature and map of all days would recommend something for both halves."""
    rng, today = np.random.default_rng(3), datetime.now(UTC).replace(hour=0, minute=0, second=0)
    path = "/v1/models/halves"
    sealing.client.put(path, json={"task": "binary", "pane": "P1D", "label_horizon": "P1D"})
    for day in range(24):
        logits = rng.normal(0.0, 1.5, 200)
        labels = rng.random(200) < 1.0 / (1.0 + np.exp(-logits))
        sharper = logits * (3.0 if day >= 16 else 1.0)
        at = (today - timedelta(days=26 - day)).isoformat()
        body = {"confidences": (1.0 / (1.0 + np.exp(-sharper))).tolist(), "event_times": [at] * 200}
        sealing.post(f"{path}/predictions", {**body, "labels": labels.astype(int).tolist()})
    eventually(lambda: len(sealing.get(f"{path}/drift/history")["cohorts"]) == 24)
    found = sealing.get(f"{path}/drift")["recommendation"]
    assert found["action"] == "temperature" and found["next"]["body"]["clock"] == "sealed"
    for read in ("temperature", "calibration-map?method=temperature"):
        name, _, method = read.partition("?")
        view = {"include": "recommendation"} | ({"method": "temperature"} if method else {})
        assert sealing.get(f"{path}/{name}", **view)["recommendation"] == found
    of_window = sealing.get(f"{path}/temperature", include="recommendation", window="P7D")
    assert "candidates" in of_window["recommendation"]["evidence"]
