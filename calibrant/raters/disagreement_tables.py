"""Tables of predicted against observed disagreement of raters, with losses and intervals.

Source: Mimori, Sasada, Matsui, Sato (AISTATS 2021), eqs. 15 to 19.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.accumulators.rater_pairs import (
    DISAGREEMENT_GRID,
    MOMENTS,
    REPLICATE_BINS,
    REPLICATE_SUMS,
)
from calibrant.core.arrays import Floats, ratio
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.grid import Edges, equal_width_bin
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import gap_interval, resampled_gaps
from calibrant.inference.reliability_table import wilson
from calibrant.inference.replication import MIN_FILLED, ReplicateTables, nearest_divisor
from calibrant.raters.label_losses_by_bin import BOOTSTRAP, mean_variance, share, squares_about
from calibrant.raters.label_losses_by_row import (
    Choice,
    Interval,
    reject_single_ratings,
    reject_weightless,
    row_interval,
    rows_with_several,
)

# Measured with three raters: intervals contain the truth in .88 of runs at 50 units, in .93 at 150.
_MIN_UNITS = 100


@dataclass(frozen=True)
class DisagreementTable:
    """Bins of the predicted disagreement; sums over predictions with at least two ratings, each array (bins,).

    Attributes
    ----------
    count : int64, predictions
    sums : float64 by name, `accumulators.disagreement.MOMENTS`
    """

    count: NDArray[np.int64]
    sums: Mapping[str, Floats]

    @property
    def weight(self) -> Floats:
        return self.sums["weight"]

    def gap(self, factor: float = 1.0) -> Floats:
        """Return observed minus predicted disagreement of each bin, the prediction multiplied by `factor`; 0 in empty bins."""
        return ratio(self.sums["disagreement"] - factor * self.sums["predicted"], self.weight)

    def loss(self, factor: float = 1.0) -> float:
        """Return the squared loss of the predicted disagreement, unbiased."""
        at = self.sums
        terms = (
            factor**2 * at["predicted_squared"] - 2.0 * factor * at["product"] + at["disagreement"]
        )
        return float(terms.sum() / self.weight.sum())

    def calibration_plugin(self, factor: float = 1.0) -> float:
        """Return the weighted mean of squared gaps."""
        return float(share(self.weight) @ self.gap(factor) ** 2)

    @property
    def variance(self) -> Floats:
        """Variance of each bin's gap, from the sampling of ratings and rows; 0 with fewer than two predictions."""
        at = self.sums
        names = (
            "weight_squared",
            "disagreement_weight_squared",
            "disagreement_squared_weight_squared",
        )
        # Around the prediction, which no rating changes, so that only the variance of the gap remains.
        moments = tuple(at[name] for name in names)
        second = squares_about(ratio(at["predicted"], self.weight), moments)
        return mean_variance(self.weight, self.gap(), moments[0], second, self.count)

    @property
    def bias(self) -> float:
        """Bias of the plug-in from the sampling of ratings and rows, for any factor."""
        return float(share(self.weight) @ self.variance)

    def intervals(self, ci: float) -> tuple[Floats, Floats]:
        """Return Wilson's interval of each bin's observed disagreement, with the number of trials that gives the gap's variance."""
        observed = np.clip(ratio(self.sums["disagreement"], self.weight), 0.0, 1.0)
        chance, variance = observed * (1.0 - observed), self.variance
        known = (variance > 0) & (chance > 0)
        trials = np.divide(chance, variance, out=self.count.astype(np.float64), where=known)
        return wilson(observed, trials, ci)

    def calibration(self, factor: float = 1.0) -> float:
        """Return the debiased calibration loss; it may be below 0 by chance."""
        return self.calibration_plugin(factor) - self.bias

    def error(self, factor: float = 1.0) -> float:
        """Return the calibration error: the root of the debiased loss, 0 if that is not positive."""
        return math.sqrt(max(self.calibration(factor), 0.0))


def disagreement_table(
    view: View, by_ratings: bool = False, bins: int | None = None
) -> DisagreementTable:
    """Return the query's equal-width bins of 1 - sum z^2.

    Raises
    ------
    NoResultError
        No prediction has two ratings, plain histograms, or bins that are no divisor of 120.
    """
    reject_single_ratings(view)
    bins = bins or view.pane_query.bins
    if DISAGREEMENT_GRID.cells % bins:
        exact = ", ".join(map(str, DISAGREEMENT_GRID.exact_bins))
        detail = (
            f"Received bins={bins}; the grid of predicted disagreement gives {exact} bins exactly."
        )
        raise NoResultError("bins_not_exact", detail)
    block = view.pane["disagreement"].blocks["cells"]
    place = DISAGREEMENT_GRID.bins(bins, view.pane_query.edges)
    columns = block.sums.reshape(2, len(MOMENTS), -1)[int(by_ratings)]
    table = _table(place, block.counts[0].astype(np.float64), columns, bins)
    reject_weightless(table.weight)
    return table


def table_of_rows(
    predicted: ArrayLike,
    disagreement: ArrayLike,
    bins: int = 15,
    edges: Edges = "right",
    epistemic: ArrayLike | None = None,
    weight: ArrayLike = 1.0,
    score: ArrayLike | None = None,
) -> DisagreementTable:
    """Return the same table from rows.

    Parameters
    ----------
    predicted : float64 (n,) in [0, 1], predicted probability of disagreement, under any belief
    disagreement : float64 (n,), observed share, as `label_statistics.disagreement`
    bins, edges : equal-width bins of `score`
    epistemic : float64 (n,), unbiased squared distance of each prediction from its label distribution. Default: 0.
    weight : float64 (n,). Default: 1 for all rows.
    score : float64 (n,) in [0, 1]. Default: `predicted`.
    """
    d, phi = np.asarray(predicted, np.float64), np.asarray(disagreement, np.float64)
    place = equal_width_bin(d if score is None else np.asarray(score, np.float64), bins, edges)
    w = np.broadcast_to(np.asarray(weight, np.float64), d.shape)
    distance = np.zeros(len(d)) if epistemic is None else np.asarray(epistemic, np.float64)
    columns = moments_of(d, phi, distance, w)
    return _table(place, np.ones(len(d)), columns, bins)


def moments_of(
    predicted: Floats, disagreement: Floats, epistemic: Floats, weight: Floats
) -> tuple[Floats, ...]:
    """Return the columns of rows in the order of `MOMENTS`, each (n,)."""
    d, phi, w = predicted, disagreement, weight
    return (
        w,
        w * d,
        w * phi,
        w * d**2,
        w * d * phi,
        w**2,
        w**2 * phi,
        w**2 * phi**2,
        w * epistemic,
    )


def table_of_cells(
    scores: tuple[Floats, Floats, Floats],
    count: Floats,
    columns: Floats,
    bins: int,
    edges: Edges,
) -> tuple[DisagreementTable, float]:
    """Return the table of cells at their mean scores, and the error to expect of its calibration error.

    Each cell that an edge cuts changes the calibration loss if all of it lies in the other bin, or half of it, with observations that
    differ from its other half as by chance. The error takes twice the root of the sum of the squared largest changes of the cells.

    Parameters
    ----------
    scores : mean, lowest and highest score of each cell, float64 (cells,) each
    count : float64 (cells,), predictions
    columns : float64 (moments, cells), in the order of `MOMENTS`
    bins, edges : equal-width bins of the score
    """
    place, lower, upper = (equal_width_bin(each, bins, edges) for each in scores)
    table = _table(place, count, columns, bins)
    other = np.where(lower == place, upper, lower)
    # The score of a single prediction is its cell's mean.
    cut = np.flatnonzero((other != place) & (count > 1.0))
    loss = table.calibration()
    changes = [
        _largest_change(table, columns[:, cell], int(count[cell]), place[cell], other[cell])
        for cell in cut
    ]
    reach = 2.0 * math.hypot(*changes)
    ends = (math.sqrt(max(loss + side * reach, 0.0)) for side in (-1.0, 1.0))
    return table, max(abs(end - table.error()) for end in ends)


def _largest_change(
    table: DisagreementTable, column: Floats, count: int, place: int, other: int
) -> float:
    """Return the largest change of the calibration loss if all of a cell, or half of it, is in another bin."""
    cell = dict(zip(MOMENTS, column.tolist(), strict=True))
    mean = cell["disagreement"] / cell["weight"] if cell["weight"] else 0.0
    squares, first, second = (
        cell["weight_squared"],
        cell["disagreement_weight_squared"],
        cell["disagreement_squared_weight_squared"],
    )
    chance = math.sqrt(max(second - 2.0 * mean * first + mean**2 * squares, 0.0)) / 2.0
    moves = ((1.0, 0.0), (0.5, chance), (0.5, -chance))
    losses = (_moved(table, cell, count, place, other, *move).calibration() for move in moves)
    now = table.calibration()
    return max(abs(loss - now) for loss in losses)


def _moved(
    table: DisagreementTable,
    cell: Mapping[str, float],
    count: int,
    place: int,
    other: int,
    part: float,
    residual: float,
) -> DisagreementTable:
    """Return the table with part of a cell in another bin."""
    step = np.zeros(len(table.count))
    step[place], step[other] = -1.0, 1.0
    sums = {name: table.sums[name] + part * cell[name] * step for name in MOMENTS}
    sums["disagreement"] = sums["disagreement"] + residual * step
    return DisagreementTable(table.count + (round(part * count) * step).astype(np.int64), sums)


def _table(
    place: NDArray[np.int64], count: Floats, columns: Iterable[Floats], bins: int
) -> DisagreementTable:
    """Sum counts and columns, in the order of `MOMENTS`, by bin."""

    def total(values: Floats) -> Floats:
        return np.bincount(place, values, bins).astype(np.float64)

    sums = {name: total(column) for name, column in zip(MOMENTS, columns, strict=True)}
    return DisagreementTable(total(count).astype(np.int64), sums)


def disagreement_loss_interval(view: View, choice: Choice) -> Interval:
    """Return the interval of the disagreement's squared loss."""
    rows = rows_with_several(view, choice)
    return row_interval(view, rows.disagreement_loss, rows)


def calibration_interval(view: View, choice: Choice, seed: int, factor: float = 1.0) -> Interval:
    """Return the interval of the disagreement's calibration loss, from replicates; weight one only.

    `factor` multiplies the prediction, whose bins stay those of the prediction itself.
    """
    if choice.by_ratings:
        return None, {"interval_reason": "not_replicated"}
    weight, predicted, observed = replicated(view)
    filled = weight.sum(axis=1) > 0
    if filled.sum() < MIN_FILLED or view.counts["n_units"] < _MIN_UNITS:
        return None, {"interval_reason": "too_few_units"}
    bins = nearest_divisor(REPLICATE_BINS, view.pane_query.bins)
    shape = (int(filled.sum()), 1, bins, REPLICATE_BINS // bins)
    tables = ReplicateTables(
        weight[filled].reshape(shape).sum(axis=3),
        (observed - factor * predicted)[filled].reshape(shape).sum(axis=3),
        bins,
        np.flatnonzero(filled),
    )
    bias = disagreement_table(view, bins=bins).bias

    def loss(weight: Floats, gap: Floats) -> Floats:
        return np.asarray((share(weight) * gap**2).sum(axis=(-1, -2)))

    gaps = resampled_gaps(tables, seed)
    bounds = gap_interval(lambda w, g: loss(w, g) - bias, loss, gaps, view.pane_query.ci).bounds
    return bounds, {"interval_method": BOOTSTRAP, "interval_bins": bins}


def replicated(view: View) -> Floats:
    """Return weight, predicted and observed disagreement by replicate and bin, float64 (3, 64, 15); all predictions with weight 1."""
    block = view.pane["disagreement"].blocks["replicates"]
    return np.asarray(block.sums.reshape(len(REPLICATE_SUMS), N_REPLICATES, REPLICATE_BINS))
