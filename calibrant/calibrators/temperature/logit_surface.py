"""Losses of two classes at one temperature for each, from cells of logits.

With m = beta1 z1 - beta0 z0, a row's negative log-likelihood (NLL) is log(1 + exp m) - y m. The second term is linear in the logits, so a
cell's sums give it exactly. The first is expanded to second order about the cell's mean of m. Its third derivative, the cell's range
and variance bound the remainder. It is also between its tangent at the mean and the chord over the cell, because it is convex.
Brier score is expanded likewise and has an estimate of its error; the calibration error takes a cell's rows at its mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.logit_cells import MOMENTS, RIGHT, SUMS, LogitCells
from calibrant.calibrators.cell_fits import logistic
from calibrant.calibrators.temperature.curve import CROSSING_NOISE
from calibrant.calibrators.temperature.losses import EceOptions, Losses, TwoClassLosses
from calibrant.core.arrays import Floats
from calibrant.core.label_policies import POLICIES

# Largest third derivative of log(1 + exp m), and from where on |m| it falls.
_THIRD, _FALLS = 1.0 / (6.0 * np.sqrt(3.0)), 1.317
# The error estimate is this share of the change if cells were twice as wide. The expansions err by the third power of the width,
# the calibration error by the width and by single rows that cross an edge.
_SHARES = {"nll": 1 / 6, "brier": 1 / 6, "ece": 1.0}


@dataclass(frozen=True)
class _Cells:
    """Columns of the filled cells under one label policy, each (cells,)."""

    weight: Floats
    right: Floats
    mean: Floats  # (2, cells)
    right_mean: Floats  # (2, cells)
    variance: Floats  # (3, cells): of z0, covariance, of z1
    corner: Floats  # (2, cells)
    width: float


class LogitCellLosses(TwoClassLosses):
    """Losses from one table of cells.

    Parameters
    ----------
    table : LogitCells
    policy : int, place in `POLICIES`
    options : EceOptions
    """

    def __init__(self, table: LogitCells, policy: int, options: EceOptions) -> None:
        sums = dict(zip(SUMS, table.sums, strict=True))
        suffix = "_pooled" if policy == 0 else ""
        moments = np.stack([sums[name + suffix] for name in MOMENTS])
        rights = np.stack([sums[f"{name}_{POLICIES[policy]}"] for name in RIGHT])
        masked, inside = table.is_masked, ~table.is_masked & (moments[0] > 0.0)
        # Rows with an impossible class keep their probabilities of 0 and 1 at every temperature.
        first = table.filled()[0][masked] % 2 == 0
        log_p = np.where(np.stack([first, ~first]), -np.inf, 0.0)
        weight, right = moments[0][masked], rights[0][masked]
        super().__init__(log_p, np.maximum(weight - right, 0.0), right, options)
        self._certain = self._certain_sums(first)
        self.cells = _cells_of(
            moments[:, inside], rights[:, inside], table.corners[:, inside], table.width
        )

    def at(self, temperatures: Floats) -> Losses:
        """Return losses at one temperature per class, float64 (2,)."""
        cells, margin = self.cells, _Margins.of(self.cells, temperatures)
        nll_weight, brier_certain = self._certain
        weight = float(cells.weight.sum()) + nll_weight
        total = float(cells.weight.sum()) + float(self.mass.sum())
        if not total > 0.0:
            return Losses(float("nan"), float("nan"), float("nan"))
        nll = margin.log_normalisers(cells) - margin.rated(cells)
        return Losses(
            nll / weight if weight else float("nan"),
            (margin.brier(cells) + brier_certain) / total,
            self._ece(margin),
        )

    def loss(self, objective: str, temperatures: Floats) -> float:
        """Return one of the losses at one temperature per class."""
        return float(getattr(self.at(temperatures), objective))

    def nll_error(self, temperatures: Floats) -> float:
        """Return a bound of the error of the NLL there, per unit of weight."""
        weight = float(self.cells.weight.sum()) + self._certain[0]
        margin = _Margins.of(self.cells, temperatures)
        return margin.remainder(self.cells) / weight if weight else 0.0

    def _certain_sums(self, first: NDArray[np.bool_]) -> tuple[float, float]:
        """Return the weight of ratings with probability 1, whose NLL is 0, and the Brier sum of rows with an impossible class."""
        possible = np.where(first, self.right, self.wrong).sum()
        impossible = np.where(first, self.wrong, self.right).sum()
        return float(possible), float(2.0 * impossible)

    def _ece(self, margin: _Margins) -> float:
        cells = self.cells
        # Class 1 is certain where class 0 is impossible.
        sure = self.log_p[0] < self.log_p[1]
        score = np.concatenate([margin.score(), sure.astype(np.float64)])
        mass = np.concatenate([cells.weight, self.mass])
        right = np.concatenate([cells.right, self.right])
        correct_ratings = np.where(score > 0.5, right, mass - right)
        return self.options.error(np.maximum(score, 1.0 - score), mass, correct_ratings)


@dataclass(frozen=True)
class _Margins:
    """Mean, variance and range of m in each cell, (cells,) each; `rated` its mean over class 1's ratings."""

    mean: Floats
    rated_mean: Floats
    variance: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, cells: _Cells, temperatures: Floats) -> _Margins:
        zero, one = 1.0 / temperatures
        square = one**2 * cells.variance[2] + zero**2 * cells.variance[0]
        return cls(
            mean=one * cells.mean[1] - zero * cells.mean[0],
            rated_mean=one * cells.right_mean[1] - zero * cells.right_mean[0],
            variance=np.maximum(square - 2.0 * zero * one * cells.variance[1], 0.0),
            low=one * cells.corner[1] - zero * (cells.corner[0] + cells.width),
            high=one * (cells.corner[1] + cells.width) - zero * cells.corner[0],
        )

    def score(self) -> Floats:
        """Probability of class 1 at the mean, to second order."""
        s = logistic(self.mean)
        bent = s + 0.5 * s * (1.0 - s) * (1.0 - 2.0 * s) * self.variance
        return np.clip(bent, 0.0, 1.0)

    def log_normalisers(self, cells: _Cells) -> float:
        return float(cells.weight @ self._expanded())

    def rated(self, cells: _Cells) -> float:
        return float(cells.right @ self.rated_mean)

    def brier(self, cells: _Cells) -> float:
        """Sum of 2 (y (1 - 2 s) + s^2)."""
        s, r = logistic(self.mean), logistic(self.rated_mean)
        slope = s * (1.0 - s)
        squares = s**2 + (slope**2 + s * slope * (1.0 - 2.0 * s)) * self.variance
        rated = r + 0.5 * r * (1.0 - r) * (1.0 - 2.0 * r) * self.variance
        return float(2.0 * (cells.right @ (1.0 - 2.0 * rated) + cells.weight @ squares))

    def remainder(self, cells: _Cells) -> float:
        """Bound of the error of `log_normalisers`."""
        nearest = np.maximum(np.maximum(self.low, -self.high), 0.0)
        s = logistic(nearest)
        third = np.where(nearest < _FALLS, _THIRD, s * (1.0 - s) * (2.0 * s - 1.0))
        reach = np.maximum(self.high - self.mean, self.mean - self.low)
        by_taylor = third * np.maximum(reach, 0.0) * self.variance / 6.0
        span = self.high - self.low
        part = np.clip((self.mean - self.low) / span, 0.0, 1.0)
        chord = (1.0 - part) * _softplus(self.low) + part * _softplus(self.high)
        expanded = self._expanded()
        by_convexity = np.maximum(chord - expanded, expanded - _softplus(self.mean))
        return float(cells.weight @ np.minimum(by_taylor, np.maximum(by_convexity, 0.0)))

    def _expanded(self) -> Floats:
        s = logistic(self.mean)
        return _softplus(self.mean) + 0.5 * s * (1.0 - s) * self.variance


def _softplus(margin: Floats) -> Floats:
    return np.asarray(np.logaddexp(0.0, margin))


def _cells_of(moments: Floats, rights: Floats, corner: Floats, width: float) -> _Cells:
    weight, right = moments[0], rights[0]
    offset = moments[1:3] / weight
    of_right = np.divide(rights[1:], right, out=offset.copy(), where=right > 0.0)
    (x, y), (xx, xy, yy) = offset, moments[3:] / weight
    variance = np.stack([np.maximum(xx - x * x, 0.0), xy - x * y, np.maximum(yy - y * y, 0.0)])
    return _Cells(weight, right, corner + offset, corner + of_right, variance, corner, width)


def merged(tables: Iterable[LogitCells]) -> LogitCells:
    """Return one table of several, as fine as the coarsest of them."""
    merged = LogitCells.zero()
    for table in tables:
        merged.merge(table)
    return merged


def error_estimates(
    table: LogitCells, policy: int, options: EceOptions, grid: Iterable[Floats]
) -> dict[str, float]:
    """Estimate the largest error of each loss at some temperatures, from cells of twice the width."""
    wider = table.copy()
    wider.coarsen(table.level + 1)
    fine, coarse = (LogitCellLosses(each, policy, options) for each in (table, wider))
    pairs = [(fine.at(place), coarse.at(place)) for place in grid]
    estimates = {
        name: share * max(abs(getattr(one, name) - getattr(other, name)) for one, other in pairs)
        for name, share in _SHARES.items()
    }
    n = max(int(table.counts[0].sum()), 1)
    return estimates | {"ece": estimates["ece"] + CROSSING_NOISE / float(np.sqrt(n))}
