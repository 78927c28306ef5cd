"""Gains of isotonic recalibration by the kernel against a fit of every row."""

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibrant.core.cells import Cells
from calibrant.core.query import PaneQuery
from calibrant.estimators import isotonic
from calibrant.metrics import corp


def by_numpy(weight, rate, score):
    return corp._lost_by_fit(weight, rate, score, "brier")


@pytest.mark.parametrize("n", [1, 2, 30, 700])
@pytest.mark.parametrize("one_weight", [True, False])
def test_gains_equal_those_of_a_fit_per_row(n, one_weight):
    rng = np.random.default_rng(n)
    score = np.sort(rng.random(n))
    rate = np.clip(score + 0.2 * rng.standard_normal((40, n)), 0.0, 1.0)
    rate[:5] = np.round(rate[:5])  # ties, and rates of 0 and 1
    rate[5] = score
    weight = rng.random(n) * 100.0 + 1e-12
    weights = weight if one_weight else np.broadcast_to(weight, rate.shape) * rng.random((40, n))
    weights = np.maximum(weights, 1e-12)
    found = corp._lost(weights, rate, score, "brier")
    assert_allclose(found, by_numpy(weights, rate, score), rtol=1e-12, atol=1e-14)
    assert found[5] == pytest.approx(0.0, abs=1e-14) and (found >= 0.0).all()


def test_without_cells_nothing_is_recalibrated():
    assert isotonic.brier_gains(np.ones(0), np.ones((3, 0)), np.ones(0)).tolist() == [0.0] * 3


def test_the_null_of_corp_is_that_of_a_fit_per_row():
    rng = np.random.default_rng(3)
    lower = np.sort(rng.random(200))
    count = rng.integers(1, 4, 200)
    weight = count.astype(float)
    hits = rng.binomial(count, lower).astype(float)
    cells = Cells(
        lower, lower, count, count, weight, weight * lower, hits, hits, weight,
        weight * lower * (1.0 - lower),
    )  # fmt: skip
    view = SimpleNamespace(pane_query=PaneQuery())
    with patch.object(corp, "scored_cells", return_value=cells):
        kernel = corp.null(view, None, 0)
        assert kernel.q95_error > 0.0
        with patch.object(corp, "brier_gains", by_numpy):
            assert_allclose(kernel, corp.null(view, None, 0), rtol=1e-11)


@pytest.mark.parametrize("by_kernel", [True, False])
def test_fewer_rows_of_weights_than_of_rates_repeat(by_kernel):
    rng = np.random.default_rng(4)
    score, weights = np.sort(rng.random(30)), rng.random((24, 30)) + 1e-12
    rate = rng.random((10, 24, 30))
    lost = corp._lost if by_kernel else lambda *given: by_numpy(*given[:3])
    found = lost(weights, rate.reshape(-1, 30), score, "brier")
    expected = np.concatenate([lost(weights, each, score, "brier") for each in rate])
    assert np.array_equal(found, expected)
