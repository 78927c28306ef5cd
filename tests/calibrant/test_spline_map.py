"""Spline calibration against a second version in another basis, its shrinkage, and what it needs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant.calibrators import Options, apply
from calibrant.core.errors import CalibrationInputError
from tests.calibrant.map_rows import binary, fitted, naive_losses, scores_and_labels

PUBLISHED = Options(shrunk=False)


def naive(p: np.ndarray, y: np.ndarray, knots: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Sorted scores and their recalibrated ones, by truncated powers (Hastie, Tibshirani, Friedman, eq. 5.4)."""
    order = np.argsort(p)
    score, hit, n = p[order], y[order], len(p)
    gap = np.cumsum(hit - score) / n
    t, k = np.arange(n) / (n - 1), np.linspace(0, 1, knots)

    def d(j: int, power: int) -> np.ndarray:
        cubes = [np.maximum(t - k[i], 0.0) ** power for i in (j, -1)]
        return (4 - power if power == 3 else 3) * (cubes[0] - cubes[1]) / (k[-1] - k[j])

    def columns(power: int) -> list[np.ndarray]:
        return [d(j, power) - d(knots - 2, power) for j in range(knots - 2)]

    values = np.column_stack([np.ones(n), t, *columns(3)])
    slopes = np.column_stack([np.zeros(n), np.ones(n), *columns(2)])
    weights = np.linalg.lstsq(values, gap, rcond=None)[0]
    return score, np.clip(score + slopes @ weights, 0.0, 1.0)


def test_on_rows_it_is_the_naive_spline() -> None:
    rng = np.random.default_rng(3)
    p = rng.beta(0.7, 0.7, 500).clip(1e-9, 1 - 1e-9)
    y = (rng.random(500) < expit(0.6 * logit(p) - 0.3)).astype(int)
    grid = rng.random(300)
    there = binary(grid, np.zeros(300, int))
    for knots in (6, 9):
        found = fitted("spline", binary(p, y), raw=True, options=Options(knots=knots, shrunk=False))
        assert apply(found, there) == pytest.approx(np.interp(grid, *naive(p, y, knots)), abs=1e-12)
        assert (found["shrinkage"], found["error_bound"], found["n_points"]) == (1.0, 0.0, 500)


def test_stored_cells_give_the_rows_map_within_the_bound() -> None:
    p, y = scores_and_labels(3000)
    batch = binary(p, y)
    rows, cells = (fitted("spline", batch, raw=raw, options=PUBLISHED) for raw in (True, False))
    distance = np.abs(apply(rows, batch) - apply(cells, batch)).mean()
    assert 0.0 < distance < rows["error_bound"] + cells["error_bound"] < 0.01


def test_equal_scores_share_the_mean_slope_of_their_quantiles() -> None:
    """Three scores in four are 1, as of a very confident model: the map still has their rate there."""
    rng = np.random.default_rng(0)
    p = np.concatenate([np.ones(3000), rng.uniform(0.3, 0.9, 1000)])
    y = (rng.random(4000) < np.where(p == 1.0, 0.8, p)).astype(int)
    mapped = apply(fitted("spline", binary(p, y)), binary([1.0], [1]))
    assert mapped == pytest.approx(y[p == 1.0].mean(), abs=0.02)


def test_it_lowers_the_error_and_chance_is_shrunk_away() -> None:
    p, y = scores_and_labels(4000)
    found = fitted("spline", binary(p, y))
    after = naive_losses(apply(found, binary(p, y)), y)
    assert after["ece"] < 0.5 * naive_losses(p, y)["ece"] and found["shrinkage"] > 0.8
    rng = np.random.default_rng(1)
    factors, moved = [], []
    for _ in range(20):
        p = rng.beta(0.6, 0.6, 1000).clip(1e-6, 1 - 1e-6)
        batch = binary(p, (rng.random(1000) < p).astype(int))
        found, plain = (fitted("spline", batch, options=Options(shrunk=s)) for s in (True, False))
        factors.append(found["shrinkage"])
        moved.append([np.square(apply(each, batch) - p).mean() for each in (found, plain)])
        assert ("shrunk_to_identity" in found["warnings"]) == (found["shrinkage"] == 0.0)
    assert np.mean(np.array(factors) == 0.0) >= 0.5
    assert np.mean(moved, axis=0)[0] < 0.5 * np.mean(moved, axis=0)[1]


def test_it_needs_units_per_knot_and_of_each_outcome() -> None:
    p, y = scores_and_labels(400)
    few = fitted("spline", binary(p[:119], y[:119]))
    assert (few["reason"], few["n_units_needed"], few["n_units_fitted"]) == ("few_rows", 120, 119)
    rare = (np.arange(400) % 50 == 0).astype(int)
    found = fitted("spline", binary(p, rare))
    assert (found["reason"], found["n_units_needed"]) == ("few_rows", 1000)
    units = [f"u{i // 4}" for i in range(400)]
    assert fitted("spline", binary(p, y, units=units))["n_units_fitted"] == 100
    with pytest.raises(CalibrationInputError, match="knots"):
        fitted("spline", binary(p, y), options=Options(knots=2))
