"""The gate of promotion: a candidate's gain over the current map against a naive count, unit by unit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import t as student

from calibrant import Batch, Pane, PaneSpec
from calibrant.maps.comparing import compare


def temperature(value: float) -> dict[str, object]:
    return {"method": "temperature", "scope": "positive", "class": None, "parameters": {"temperature": value}}


def test_the_gain_is_the_current_loss_less_the_candidates_by_unit() -> None:
    rng = np.random.default_rng(3)
    score, unit = rng.uniform(0.02, 0.98, 480), np.repeat(np.arange(160), 3)
    labels = (rng.random(480) < expit(logit(score) / 6.0)).astype(int)
    columns = {"confidences": score, "labels": labels, "ids": [f"i{i}" for i in range(480)]}
    pane = Pane(PaneSpec("binary", 2))
    pane.fill(Batch.from_columns(columns | {"units": [f"u{i}" for i in unit]}).batch)

    def loss(value: float) -> np.ndarray:
        p = expit(logit(score) / value)
        return -np.where(labels == 1, np.log(p), np.log1p(-p))

    by_unit = (loss(1.2) - loss(2.5)).reshape(160, 3).mean(axis=1)
    reach = student.ppf(0.975, 159) * by_unit.std(ddof=1) / np.sqrt(160)
    found = compare(temperature(1.2), temperature(2.5), pane)
    assert found["n_units"] == 160
    assert found["gain"]["nll"]["value"] == pytest.approx(by_unit.mean(), abs=1e-12)
    assert found["gain"]["nll"]["interval"] == pytest.approx([by_unit.mean() - reach, by_unit.mean() + reach], abs=1e-12)
    assert by_unit.mean() - reach > 0 and found["beats"]
    back = compare(temperature(2.5), temperature(1.2), pane)
    assert not back["beats"] and back["reason"] == "not_better"
    assert back["gain"]["nll"]["value"] == pytest.approx(-by_unit.mean(), abs=1e-12)
