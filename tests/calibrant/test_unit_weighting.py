"""Fits with weights=unit: every independent unit has weight one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from calibrant import Pane
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.calibrators.unit_weighting import unit_weighted
from calibrant.core.errors import CalibrationInputError


def patients(rng, n=150, n_classes=3):
    """Logits, labels and patients with one to four images each."""
    sizes = 1 + np.arange(n) % 4
    logits = 2.0 * rng.standard_normal((sizes.sum(), n_classes))
    labels = rng.integers(0, n_classes, sizes.sum())
    likely = rng.random(sizes.sum()) < 0.6
    labels[likely] = logits.argmax(axis=1)[likely]
    return logits, labels, np.repeat(np.arange(n), sizes)


def filled(logits, labels, units, **more):
    return Pane.fill(logits=logits, labels=labels, units=[f"p{u}" for u in units], **more)


def test_a_temperature_by_unit_minimises_the_mean_over_units():
    logits, labels, units = patients(np.random.default_rng(0))
    pane = filled(logits, labels, units)
    share = 1.0 / np.bincount(units)[units]

    def loss(log_t):
        scores = log_softmax(logits / np.exp(log_t), axis=1)
        return -share @ scores[np.arange(len(labels)), labels]

    expected = np.exp(
        minimize_scalar(loss, bounds=(-2, 3), method="bounded", options={"xatol": 1e-10}).x
    )
    found = unit_weighted(pane, "mean")
    assert found.n_rows is None and found.pane.weight == pytest.approx(150)
    fitted = fit_temperature(found.pane, raters="mean", rows_if_complete=True)["temperature"]
    assert fitted == pytest.approx(expected, rel=1e-5)
    plain = fit_temperature(pane, raters="mean", rows_if_complete=True)["temperature"]
    assert abs(plain - expected) > 1e-4
    # Weights of predictions do not count, and a second weighting changes nothing.
    weighted = filled(logits, labels, units, weights=np.linspace(0.5, 2, len(labels)))
    for pane in (unit_weighted(weighted, "mean").pane, unit_weighted(found.pane, "mean").pane):
        again = fit_temperature(pane, raters="mean", rows_if_complete=True)["temperature"]
        assert again == pytest.approx(fitted, rel=1e-9)


def test_ratings_share_their_unit_under_pooled():
    pane = Pane.fill([0.9, 0.6, 0.3], [[1, 1, 0], [1], [0, 0]], units=["a", "a", "b"])
    weight = {raters: unit_weighted(pane, raters).pane for raters in ("pooled", "mean")}
    cells = {name: each["positive"].blocks["cells"] for name, each in weight.items()}
    assert weight["mean"].weight == pytest.approx(2.0)
    # Of the four ratings of unit a, each weighs a quarter; of the two of b, a half.
    assert weight["pooled"].weight == pytest.approx(0.25 + 0.25 + 0.5)
    assert cells["pooled"].size == cells["mean"].size


def test_predictions_that_are_units_are_returned_as_they_are():
    pane = Pane.fill([0.9, 0.6, 0.3], [1, 1, 0])
    assert unit_weighted(pane, "mean").pane is pane


def test_without_rows_shared_units_are_rejected():
    pane = Pane.fill([0.9, 0.6, 0.3], [1, 1, 0], units=["a", "a", "b"])
    pane.sample.shrink(1)
    with pytest.raises(CalibrationInputError, match="weights=prediction"):
        unit_weighted(pane, "mean")
