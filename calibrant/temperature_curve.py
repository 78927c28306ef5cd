"""Losses as functions of the inverse temperature: between the kept points of a profile, and from raw rows.

NLL, its first and second derivative are kept on a geometric grid of beta = 1 / T, Brier with its first; a Hermite
polynomial in log beta through the six nearest points joins them. ECE is not smooth. Between two kept tables the scores
are moved from their quantiles in one to the same quantiles in the other, straight in log odds, which is what a change
of temperature does exactly where there are two classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import KroghInterpolator
from scipy.optimize import brentq

from calibrant.accumulators.temperature import (
    BETAS,
    CURVE_SUMS,
    N_BETAS,
    TABLE_BINS,
    TABLE_SUMS,
    TemperatureProfile,
)
from calibrant.filling import Filling
from calibrant.grid import equal_width_bin
from calibrant.policies import N_POLICIES, POLICIES
from calibrant.tempered_rows import Rows, rows_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LOG_BETAS = np.log(BETAS)
NODES = 6
FEWER_NODES = 4
FLAT = 1e-12
PARTICLES = 256
CROSSING_NOISE = 0.25
ROOT_WIDTH = 1e-2
ROW_STEPS_PER_OCTAVE = 8
MOST_SCORES = 1 << 21


@dataclass(frozen=True)
class Minimum:
    """Where a loss is least: beta, and whether that is an end of the kept range ("lower" and "upper" in T)."""

    beta: float
    bound: str | None


class Curve:
    """A profile's losses under one label policy, per unit of weight.

    Parameters
    ----------
    profile : TemperatureProfile
    policy : int, place in `POLICIES`
    bins : int, equal-width bins (right edges) of the ECE; a divisor of 60 where tables are read
    """

    method = "profile"

    def __init__(self, profile: TemperatureProfile, policy: int, bins: int) -> None:
        self.bins = bins
        block = profile.blocks["curve"]
        sums = block.sums.reshape(len(CURVE_SUMS), N_POLICIES, N_BETAS)[:, policy]
        self.kept = dict(zip(CURVE_SUMS, sums, strict=True))
        self.n = int(block.counts[0].reshape(N_POLICIES, N_BETAS)[policy, 0])
        self.n_zero_probability = int(block.counts[1].reshape(N_POLICIES, N_BETAS)[policy, 0])
        self.weight = float(self.kept["weight"][0])
        self.weight_all = float(self.kept["weight_all"][0])
        table = profile.blocks["tables"].sums.reshape(len(TABLE_SUMS), N_BETAS, TABLE_BINS)
        pooled = policy == 0
        hits = TABLE_SUMS.index(f"correct_{POLICIES[policy]}")
        self.tables = table[[0 if pooled else 1, 2 if pooled else 3, hits]]

    @cached_property
    def nll_points(self) -> Floats:
        """NLL and two derivatives in log beta at the kept points, (3, betas)."""
        value, d1, d2 = (self.kept[name] for name in ("nll", "nll_d1", "nll_d2"))
        return np.stack([value, BETAS * d1, BETAS**2 * d2 + BETAS * d1]) / self.weight

    @cached_property
    def brier_points(self) -> Floats:
        """Brier score and its derivative in log beta at the kept points, (2, betas)."""
        return np.stack([self.kept["brier"], BETAS * self.kept["brier_d1"]]) / self.weight_all

    def nll(self, beta: float) -> float:
        return float(_hermite(self.nll_points, np.log(beta), 0))

    def brier(self, beta: float) -> float:
        return float(_hermite(self.brier_points, np.log(beta), 0))

    def ece(self, beta: float) -> float:
        return float(self.eces(np.array([beta]))[0])

    def eces(self, betas: Floats) -> Floats:
        """ECE at each beta of an increasing array; exact at kept points."""
        result = np.empty(len(betas))
        left = np.clip(np.searchsorted(BETAS, betas, "right") - 1, 0, N_BETAS - 2)
        for j in np.unique(left):
            mine = left == j
            result[mine] = _moved_eces(self.tables[:, j], self.tables[:, j + 1], BETAS[j], BETAS[j + 1],
                                       betas[mine], self.bins)  # fmt: skip
        for j in np.flatnonzero(np.isin(BETAS, betas)):
            result[betas == BETAS[j]] = self.ece_points[j]
        return result

    @cached_property
    def ece_points(self) -> Floats:
        """ECE at the kept points, (betas,)."""
        table = self.tables.reshape(3, N_BETAS, self.bins, -1).sum(axis=3)
        return np.asarray(np.abs(table[2] - table[1]).sum(axis=1) / table[0].sum(axis=1))

    def ece_error(self, beta: float) -> float:
        """Estimate of how far the moved table may be off: twice the worst miss at the nearest kept points when
        those are left out, and the noise of single predictions that cross an edge before or after their quantile.
        """
        if beta in BETAS:
            return 0.0
        j = int(np.searchsorted(BETAS, beta))
        near = [i for i in (j - 1, j) if 0 < i < N_BETAS - 1]
        missed = [
            _moved_eces(self.tables[:, i - 1], self.tables[:, i + 1], BETAS[i - 1], BETAS[i + 1],
                        BETAS[i : i + 1], self.bins)[0] - self.ece_points[i]
            for i in near
        ]  # fmt: skip
        moved = 2.0 * float(np.abs(missed).max()) if near else 1.0
        return min(1.0, moved + CROSSING_NOISE / float(np.sqrt(self.n)))

    def minimum(self, objective: str) -> Minimum | None:
        """Where NLL or Brier is least; None where it does not depend on the temperature."""
        points = self.nll_points if objective == "nll" else self.brier_points
        sign = np.where(np.abs(points[1]) < FLAT, 0.0, np.sign(points[1]))
        slopes = np.flatnonzero(sign)
        if not len(slopes):
            return None
        found = [
            Minimum(self._between(points, objective, int(a), int(b)), None)
            for a, b in pairwise(slopes)
            if sign[a] < 0 < sign[b]
        ]
        if sign[slopes[0]] > 0:
            found.append(Minimum(float(BETAS[0]), "upper"))
        if sign[slopes[-1]] < 0:
            found.append(Minimum(float(BETAS[-1]), "lower"))
        value = self.nll if objective == "nll" else self.brier
        return min(found, key=lambda at: value(at.beta))

    def _between(self, points: Floats, objective: str, a: int, b: int) -> float:
        """The root of the slope between two kept points where it changes its sign."""
        if b > a + 1:
            return float(BETAS[(a + b) // 2])
        return _interpolated_root(points, a, NODES)

    def root_error(self, objective: str, at: Minimum) -> float:
        """Bound on the relative error of a temperature: what the nearest four points alone would have said."""
        points = self.nll_points if objective == "nll" else self.brier_points
        j = int(np.searchsorted(BETAS, at.beta)) - 1
        if at.bound is not None or at.beta in BETAS or not points[1, j] < 0 < points[1, j + 1]:
            return 0.0
        return abs(_interpolated_root(points, j, FEWER_NODES) / at.beta - 1.0)

    def curvature(self, beta: float) -> float:
        """Second derivative of the mean NLL in beta."""
        in_log = float(_hermite(self.nll_points, np.log(beta), 2))
        slope = float(_hermite(self.nll_points, np.log(beta), 1))
        return (in_log - slope) / beta**2

    def variance(self, objective: str, beta: float) -> float | None:
        """Sandwich variance of the fitted beta by unit; None where the profile does not keep what it needs."""
        bend = self.curvature(beta)
        if objective != "nll" or bend <= 0.0:
            return None
        return self._squared_slope(beta) / (self.weight * bend) ** 2

    def _squared_slope(self, beta: float) -> float:
        """Sum by unit of the squared slope: polynomial in log beta of what is free of beta's unit."""
        near = _window(np.log(beta), NODES)
        scaled = (BETAS**2 * self.kept["nll_d1_squared"])[near]
        found = float(KroghInterpolator(LOG_BETAS[near], scaled)(np.log(beta)))
        if found <= 0.0:
            found = float(np.interp(np.log(beta), LOG_BETAS[near], scaled))
        return max(found, 0.0) / beta**2


class RowCurve(Curve):
    """The same losses from raw rows: exact at any beta; the profile only says where to look.

    Parameters
    ----------
    profile : TemperatureProfile that `filling` was filled into
    filling : Filling
    policy, bins : as in `Curve`; any number of bins
    """

    method = "raw"

    def __init__(
        self, profile: TemperatureProfile, filling: Filling, policy: int, bins: int
    ) -> None:
        super().__init__(profile, policy, bins)
        self.policy, self.filling = policy, filling
        step = max(256, (1 << 18) // filling.batch.n_classes)
        self.parts = [
            rows_of(filling, slice(start, min(start + step, filling.n)))
            for start in range(0, filling.n, step)
        ]

    def nll(self, beta: float) -> float:
        return sum(_nll(part, self.policy, beta)[0] for part in self.parts) / self.weight

    def brier(self, beta: float) -> float:
        return sum(_brier(part, self.policy, beta)[0] for part in self.parts) / self.weight_all

    def curvature(self, beta: float) -> float:
        return sum(_nll(part, self.policy, beta)[2] for part in self.parts) / self.weight

    def variance(self, objective: str, beta: float) -> float | None:
        if objective == "nll":
            bend = self.curvature(beta) * self.weight
        else:
            high, low = beta * (1.0 + 1e-4), beta * (1.0 - 1e-4)
            bend = (self._slope("brier", high) - self._slope("brier", low)) / (high - low)
        if objective == "ece" or bend <= 0.0:
            return None
        return float((self._unit_slopes(objective, beta) ** 2).sum() / bend**2)

    def _slope(self, objective: str, beta: float) -> float:
        if objective == "nll":
            return float(sum(_nll(part, self.policy, beta)[1] for part in self.parts))
        return float(sum(_brier(part, self.policy, beta)[1] for part in self.parts))

    def _unit_slopes(self, objective: str, beta: float) -> Floats:
        losses = _nll_slopes if objective == "nll" else _brier_slopes
        total = np.zeros(self.filling.n_units)
        for part in self.parts:
            total += np.bincount(part.unit, losses(part, self.policy, beta), len(total))
        return total

    def _between(self, points: Floats, objective: str, a: int, b: int) -> float:
        start = super()._between(points, objective, a, b)

        def slope(log_beta: float) -> float:
            return self._slope(objective, float(np.exp(log_beta)))

        low, high = np.log(start) - ROOT_WIDTH, np.log(start) + ROOT_WIDTH
        if not slope(low) < 0.0 < slope(high):
            low, high = LOG_BETAS[a], LOG_BETAS[b]
        return _root(slope, low, high)

    def root_error(self, objective: str, at: Minimum) -> float:
        return 0.0

    def ece_error(self, beta: float) -> float:
        return 0.0

    @cached_property
    def ece_points(self) -> Floats:
        return self.eces(BETAS)

    def eces(self, betas: Floats) -> Floats:
        """ECE at each beta of an increasing array; many at once from each row's log normaliser between fine points."""
        weight, hits = self._row_weights
        result = np.empty(len(betas))
        for chosen, scores in self._scores(betas):
            place = equal_width_bin(scores, self.bins) + self.bins * np.arange(len(scores))[:, None]
            gap = np.bincount(
                place.ravel(), (hits - weight * scores).ravel(), scores.shape[0] * self.bins
            )
            result[chosen] = np.abs(gap.reshape(-1, self.bins)).sum(axis=1) / weight.sum()
        return result

    @cached_property
    def _row_weights(self) -> tuple[Floats, Floats]:
        """Weight and weighted hits of each row's score under the policy."""
        weights = [part.table_weights[0 if self.policy == 0 else 1] for part in self.parts]
        return np.concatenate(weights), np.concatenate(
            [part.table_hits[self.policy] for part in self.parts]
        )

    def _scores(self, betas: Floats) -> Iterator[tuple[slice | Ints, Floats]]:
        """Places in `betas` with the rows' scores there, (places, n), a few at a time."""
        few = max(1, MOST_SCORES // max(self.filling.n, 1))
        if len(betas) <= 4 * ROW_STEPS_PER_OCTAVE:
            for i, beta in enumerate(betas):
                total = np.concatenate([np.exp(beta * part.zed).sum(axis=0) for part in self.parts])
                yield slice(i, i + 1), self._score(betas[i : i + 1], np.log(total)[None])
            return
        first, last = np.log(betas[0]), np.log(betas[-1])
        n_nodes = int(np.ceil((last - first) / np.log(2.0) * ROW_STEPS_PER_OCTAVE)) + 1
        nodes = np.linspace(first, last, n_nodes)
        left = np.clip(np.searchsorted(nodes, np.log(betas), "right") - 1, 0, n_nodes - 2)
        after = self._log_total(nodes[0])
        for j in range(n_nodes - 1):
            before, after = after, self._log_total(nodes[j + 1])
            places = np.flatnonzero(left == j)
            for start in range(0, len(places), few):
                chosen = places[start : start + few]
                basis = _quintic(nodes[j], nodes[j + 1], np.log(betas[chosen]))
                yield chosen, self._score(betas[chosen], basis @ np.concatenate([before, after]))

    def _score(self, betas: Floats, log_total: Floats) -> Floats:
        """Scores at each beta; as they were sent at 1, so that those on an edge stay there."""
        log_score = -log_total
        if self.filling.batch.task == "binary":
            log_score += betas[:, None] * np.concatenate([part.zed[1] for part in self.parts])
        score = np.minimum(np.exp(log_score), 1.0)
        score[betas == 1.0] = self.filling.score
        return score

    def _log_total(self, log_beta: float) -> Floats:
        """Each row's log normaliser with two derivatives in log beta, (3, n)."""
        beta = float(np.exp(log_beta))
        columns = []
        for part in self.parts:
            total, mean, variance = _spread(part, beta)
            columns.append(np.stack([np.log(total), beta * mean, beta**2 * variance + beta * mean]))
        return np.concatenate(columns, axis=1)


def _window(log_beta: float, nodes: int) -> slice:
    """The kept points nearest to a place between them."""
    j = int(np.clip(np.searchsorted(LOG_BETAS, log_beta, "right") - 1, 0, N_BETAS - 2))
    first = int(np.clip(j + 1 - nodes // 2, 0, N_BETAS - nodes))
    return slice(first, first + nodes)


def _polynomial(points: Floats, near: slice) -> KroghInterpolator:
    """Hermite polynomial through values and derivatives at some kept points, in log beta relative to the first."""
    x = np.repeat(LOG_BETAS[near] - LOG_BETAS[near.start], len(points))
    return KroghInterpolator(x, points[:, near].T.ravel())


def _hermite(points: Floats, log_beta: float, order: int) -> float:
    """The interpolant or its derivative of that order."""
    near = _window(log_beta, NODES)
    at = log_beta - LOG_BETAS[near.start]
    polynomial = _polynomial(points, near)
    return float(polynomial(at) if order == 0 else polynomial.derivative(at, order))


def _interpolated_root(points: Floats, left: int, nodes: int) -> float:
    near = _window(LOG_BETAS[left], nodes)
    polynomial, start = _polynomial(points, near), LOG_BETAS[near.start]

    def slope(log_beta: float) -> float:
        return float(polynomial.derivative(log_beta - start, 1))

    return _root(slope, LOG_BETAS[left], LOG_BETAS[left + 1])


def _root(slope: Callable[[float], float], low: float, high: float) -> float:
    """exp of the root; the nearer end where rounding hides the change of sign."""
    ends = slope(low), slope(high)
    if not ends[0] < 0.0 < ends[1]:
        return float(np.exp(low if abs(ends[0]) <= abs(ends[1]) else high))
    return float(np.exp(brentq(slope, low, high, xtol=1e-15, rtol=1e-14)))


def _moved_eces(
    before: Floats, after: Floats, beta0: float, beta1: float, betas: Floats, bins: int
) -> Floats:
    """ECE between two tables (3, 60) of count, confidence and correct, by moving quantiles in log odds."""
    knots = np.unique(
        np.concatenate([_mass(before), _mass(after), np.arange(PARTICLES + 1) / PARTICLES])
    )
    knots = knots[np.concatenate([[True], np.diff(knots) > 1e-12])]
    size = np.diff(knots)
    odds, correct = [], []
    for table in (before, after):
        mean = np.diff(_cumulated_confidence(table, knots)) / size
        mean = np.clip(mean, 1e-300, 1.0 - 1e-16)
        odds.append(np.log(mean) - np.log1p(-mean))
        cumulated = np.concatenate([[0.0], np.cumsum(table[2])]) / table[0].sum()
        correct.append(np.diff(np.interp(knots, *_steps(_mass(table), cumulated))))
    share = ((betas - beta0) / (beta1 - beta0))[:, None]
    part = (np.log(betas / beta0) / np.log(beta1 / beta0))[:, None]
    moved = (1.0 - share) * odds[0] + share * odds[1]
    score = 1.0 / (1.0 + np.exp(-np.clip(moved, -700.0, 700.0)))
    gap = (1.0 - part) * correct[0] + part * correct[1] - size * score
    place = equal_width_bin(score, bins) + bins * np.arange(len(betas))[:, None]
    summed = np.bincount(place.ravel(), gap.ravel(), len(betas) * bins)
    return np.asarray(np.abs(summed.reshape(-1, bins)).sum(axis=1))


def _mass(table: Floats) -> Floats:
    """Share of the weight at or below each edge of the 60 bins, (61,)."""
    running = np.concatenate([[0.0], np.cumsum(table[0])])
    return running / running[-1]


def _steps(mass: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Points for `np.interp` without those of empty bins."""
    keep = np.concatenate([[True], np.diff(mass) > 0])
    return mass[keep], values[keep]


def _cumulated_confidence(table: Floats, at: Floats) -> Floats:
    """Sum of confidence below a share of the weight; inside a bin a power law of the rank has its ends and mean."""
    mass = _mass(table)
    filled = np.flatnonzero(table[0] > 0)
    bin_ = filled[np.clip(np.searchsorted(mass[filled + 1], at), 0, len(filled) - 1)]
    count, confidence = table[0] / table[0].sum(), table[1] / table[0].sum()
    low = bin_ / TABLE_BINS
    mean = confidence[bin_] / count[bin_]
    above = np.clip((mean - low) * TABLE_BINS, 1e-9, 1.0 - 1e-9)
    power = 1.0 / above - 1.0
    rank = np.clip((at - mass[bin_]) / count[bin_], 0.0, 1.0)
    inside = low * rank + rank ** (power + 1.0) * above / TABLE_BINS
    return np.cumsum(np.concatenate([[0.0], confidence]))[bin_] + count[bin_] * inside


def _quintic(left: float, right: float, at: Floats) -> Floats:
    """Weights (len(at), 6) of value and two derivatives at both ends in the quintic Hermite polynomial."""
    h = right - left
    t = (at - left) / h
    s = 1.0 - t

    def end(u: Floats, v: Floats) -> list[Floats]:
        return [v**3 * (1.0 + 3.0 * u + 6.0 * u**2), u * v**3 * (1.0 + 3.0 * u), 0.5 * u**2 * v**3]

    first, last = end(t, s), end(s, t)
    return np.stack(
        [first[0], h * first[1], h**2 * first[2], last[0], -h * last[1], h**2 * last[2]], axis=1
    )


def _spread(part: Rows, beta: float) -> tuple[Floats, Floats, Floats]:
    """Normaliser, mean and variance of z under softmax(beta z), by row."""
    power = np.exp(beta * part.zed)
    total = power.sum(axis=0)
    mean = np.einsum("kn,kn->n", power, part.finite) / total
    centred = part.finite - mean
    return total, mean, np.einsum("kn,kn,kn->n", power, centred, centred) / total


def _nll(part: Rows, policy: int, beta: float) -> tuple[float, float, float]:
    """Sum of NLL and its two derivatives in beta."""
    total, mean, variance = _spread(part, beta)
    weight = part.by_row(part.weight[policy : policy + 1])[0]
    zed = float(part.weight[policy] @ part.entry_zed)
    return (
        float(weight @ np.log(total)) - beta * zed,
        float(weight @ mean) - zed,
        float(weight @ variance),
    )


def _nll_slopes(part: Rows, policy: int, beta: float) -> Floats:
    mean = _spread(part, beta)[1]
    weight, zed = part.by_row(np.stack([part.weight[policy], part.weight[policy] * part.entry_zed]))
    return np.asarray(weight * mean - zed)


def _brier_parts(part: Rows, policy: int, beta: float) -> tuple[Floats, Floats]:
    """Brier and its derivative in beta, by row."""
    power = np.exp(beta * part.zed)
    total = power.sum(axis=0)
    mean = np.einsum("kn,kn->n", power, part.finite) / total
    squares = np.einsum("kn,kn->n", power, power) / total**2
    squares_zed = np.einsum("kn,kn,kn->n", power, power, part.finite) / total**2
    entry = np.exp(beta * part.entry_zed) / total[part.row]
    entry[(part.weight_all > part.weight).any(axis=0)] = 0.0
    weight_all = part.weight_all[policy]
    columns = np.stack(
        [weight_all, weight_all * entry, weight_all * entry * (part.entry_zed - mean[part.row])]
    )
    weight, chosen, slope = part.by_row(columns)
    value = weight * (1.0 + squares) - 2.0 * chosen
    return value, 2.0 * (weight * (squares_zed - squares * mean) - slope)


def _brier(part: Rows, policy: int, beta: float) -> tuple[float, float]:
    value, slope = _brier_parts(part, policy, beta)
    return float(value.sum()), float(slope.sum())


def _brier_slopes(part: Rows, policy: int, beta: float) -> Floats:
    return _brier_parts(part, policy, beta)[1]
