"""The null reference of the class-wise ECE with many classes: most bins of a class have few predictions."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

N, BINS, DRAWS = 1_000, 15, 150


@pytest.mark.parametrize(("n_classes", "sharpness"), [(200, 4.0), (200, 1.0), (40, 7.0)])
def test_the_reference_equals_labels_drawn_from_the_predictions(n_classes, sharpness):
    rng = np.random.default_rng(n_classes)
    logits = rng.normal(size=(N, n_classes)) * sharpness
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    cumulated = p.cumsum(axis=1)
    place = np.clip(np.ceil(p * BINS).astype(int) - 1, 0, BINS - 1)
    size = n_classes * BINS
    confidence = np.bincount((np.arange(n_classes) * BINS + place).ravel(), p.ravel(), size)

    def drawn() -> np.ndarray:
        chosen = (cumulated < rng.random((N, 1)) * cumulated[:, -1:]).sum(axis=1)
        return np.minimum(chosen, n_classes - 1)

    def error(labels: np.ndarray) -> float:
        hits = np.bincount(labels * BINS + place[np.arange(N), labels], minlength=size)
        return float(np.abs(hits - confidence).sum() / N / n_classes)

    errors = np.array([error(drawn()) for _ in range(DRAWS)])
    labels = drawn()
    found = cal.classwise_ece(p, labels)
    assert float(found) == pytest.approx(error(labels), rel=1e-6)
    spread = errors.std() / np.sqrt(DRAWS)
    assert found.null_mean == pytest.approx(errors.mean(), abs=4.0 * spread)
    # The 95 % quantile of so many draws has about twice the error of their mean.
    assert found.null_q95 == pytest.approx(
        np.quantile(errors, 0.95), abs=8.0 * spread + 0.002 * errors.mean()
    )
