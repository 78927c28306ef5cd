"""Random halves of cells by the kernel against numpy, and what all divisions of the same cells share."""

from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from calibrant.core.cells import Cells
from calibrant.estimators import placement_error
from calibrant.estimators.placement_error import N_DRAWS, divisions
from calibrant.kernel.divisions import divided


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


def by_numpy(is_halved, weight, per_chance, correct, drawn):
    """The specification of the kernel's halves."""
    at, index = np.flatnonzero(is_halved), np.repeat(np.arange(len(weight)), 1 + is_halved)
    upper = at + np.arange(1, len(at) + 1)
    found = (np.where(is_halved, 0.5, 1.0) * np.broadcast_to(correct, drawn.shape))[:, index]
    own = np.broadcast_to(correct, drawn.shape)[:, at]
    rate = own / weight[at]
    variance = np.maximum(rate * (1.0 - rate) * per_chance[at], 0.0)
    room = np.minimum(own, weight[at] - own)
    moved = 0.5 * np.clip(np.sqrt(variance) * drawn[:, at], -room, room)
    found[:, upper - 1] -= moved
    found[:, upper] += moved
    return found


@pytest.mark.parametrize("seed", range(3))
def test_divisions_are_those_of_numpy(seed):
    given = cells(seed)
    kernel = list(divisions(given))
    with patch.object(placement_error, "divided", by_numpy):
        numpy = list(divisions(given))
    assert len(kernel) == len(numpy) == N_DRAWS and len(kernel[0]) > 2 * len(given)
    for one, other in zip(kernel, numpy, strict=True):
        for name in Cells.__dataclass_fields__:
            assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-13, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_only_correct_ratings_differ_between_divisions(seed):
    given = cells(seed)
    found = list(divisions(given))
    for each in found:
        for name in set(Cells.__dataclass_fields__) - {"correct", "correct_squared"}:
            assert_array_equal(getattr(each, name), getattr(found[0], name))
        for name in ("weight", "correct", "correct_squared", "confidence", "predictions"):
            total = getattr(given, name).sum()
            assert getattr(each, name).sum() == pytest.approx(total, rel=1e-9), name
        assert (each.correct >= -1e-12).all() and (each.correct <= each.weight + 1e-12).all()
    assert not np.array_equal(found[0].correct, found[1].correct)


def test_of_no_cells_there_are_no_halves():
    none = np.zeros(0)
    assert divided(none > 0, none, none, none[None], np.zeros((4, 0))).shape == (4, 0)
