"""Random halves of cells: what all divisions of the same cells share."""

import numpy as np
import pytest

from calibrant.core.cells import Cells
from calibrant.estimators.placement_error import _Halves, divided_ratings


def cells(seed, n=300):
    """Cells with one and with many predictions, without correct ratings and with only correct ones, weighted."""
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.random(n + 1))
    lower, upper = edges[:-1], edges[1:]
    lower[:20] = upper[:20]
    count = rng.integers(1, 9, n)
    mean = np.clip(lower + (upper - lower) * rng.random(n), lower, upper)
    weight = count * rng.uniform(0.5, 2.0, n)
    rate = np.where(rng.random(n) < 0.3, np.round(mean), mean)
    variance = weight**2 / count * mean * (1.0 - mean)
    squared = weight * rate * rng.uniform(0.5, 1.0, n)
    return Cells(
        lower, upper, count, count, weight, weight * mean, weight * rate, squared, weight**2 / count, variance,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_divisions_keep_the_sums_of_their_cells(seed):
    given = cells(seed)
    halved, correct = divided_ratings(given)
    assert len(halved) > 2 * len(given)
    for name in ("weight", "confidence", "predictions"):
        total = getattr(given, name).sum()
        assert getattr(halved, name).sum() == pytest.approx(total, rel=1e-9), name
    assert correct.sum(axis=1) == pytest.approx(given.correct.sum(), rel=1e-9)
    assert (correct >= -1e-12).all() and (correct <= halved.weight + 1e-12).all()
    assert not np.array_equal(correct[0], correct[1])


def test_a_draw_moves_ratings_by_the_deviation_of_the_own_rate():
    """One cell of 8 predictions: each half has 2 of 4 correct ratings, plus or minus what the draw moves."""
    given = cells(0).select(slice(40, 41))
    level = _Halves(given)
    weight, own = float(given.weight[0]), np.array([[0.25 * given.weight[0]]])
    variance = 0.25 * 0.75 * float(given.null_variance[0] / (given.mean[0] * (1 - given.mean[0])))
    found = level.divided(own, np.array([[0.5], [-40.0]]))
    moved = 0.5 * min(0.5 * variance**0.5, 0.25 * weight)
    assert found[0] == pytest.approx([own[0, 0] / 2 - moved, own[0, 0] / 2 + moved])
    assert found[1] == pytest.approx([own[0, 0], 0.0])  # no more than there are
