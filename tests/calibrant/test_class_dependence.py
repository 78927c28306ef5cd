"""Nulls over classes of one label, against labels drawn from the predictions."""

import numpy as np
import pytest

import calibrant as cal

BINS, RUNS = 10, 3000


def _ece(rows: np.ndarray, hits: np.ndarray) -> np.ndarray:
    """ECE of every draw of hits, float64 (n_draws, n); bins (a, b]."""
    place = np.clip(np.ceil(rows * BINS).astype(int) - 1, 0, BINS - 1)
    sums = [np.abs((hits - rows)[:, place == k].sum(axis=1)) for k in range(BINS)]
    return np.asarray(sum(sums) / rows.size)


@pytest.mark.parametrize(
    ("n_classes", "concentration", "n"), [(2, 0.7, 200), (3, 0.03, 1500), (5, 0.7, 200)]
)
@pytest.mark.parametrize("metric", ["classwise_ece", "ece"])
def test_calibrated_models_exceed_the_null_of_classes_in_one_of_twenty_runs(
    n_classes: int, concentration: float, n: int, metric: str
) -> None:
    rng = np.random.default_rng(12)
    rows = rng.dirichlet([concentration] * n_classes, n)
    drawn = (rows.cumsum(axis=1)[None, :, :-1] < rng.random((RUNS, n, 1))).sum(axis=2)
    if metric == "ece":
        found = cal.ece(rows, drawn[0], bins=BINS, scope="all")
        hits = (drawn[:, :, None] == np.arange(n_classes)).reshape(RUNS, -1)
        values = _ece(rows.ravel(), hits)
    else:
        found = cal.classwise_ece(rows, drawn[0], bins=BINS)
        values = np.mean([_ece(rows[:, k], drawn == k) for k in range(n_classes)], axis=0)
    assert found.value == pytest.approx(values[0], abs=1e-9)
    # Independent classes gave 0.12 (two classes) and 0.09 (three, confident). With few hits, gaps are not normal: 0.07 here.
    assert 0.01 < np.mean(values > found.null_q95) < 0.08
    assert found.null_mean == pytest.approx(values.mean(), rel=0.08)
