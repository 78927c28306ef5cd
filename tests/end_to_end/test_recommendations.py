"""A model that is off has one recommendation, whichever read returns it."""

import numpy as np
import pytest
from scipy.special import softmax


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
