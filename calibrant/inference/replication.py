"""Replicates of a pane as arrays under one policy, and resamples of them by unit.

Replicates have 60 bins of the model's own score, or 15 of each class. A bin of a value that is a union of those gets their
sums. A fine bin with a cut inside is divided in proportion to the cells' weight on each side; the variance that the division
loses is added where the sums are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.replicates import (
    CLASS_BINS,
    SCORE_BINS,
    SCORE_SUMS,
    TABLE_SUMS,
    keeps_class_tables,
)
from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.cells import Cells
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import POLICIES
from calibrant.core.view import NoResultError, View

MIN_FILLED = 20
# An interval needs so many units: they fill 20 of 64 replicates but for 2 in 100,000 sets of names.
MIN_UNITS = 40
MAX_HISTOGRAM_SHARE = 0.1
N_RESAMPLES = 240
# Rounding of a share that is 0 or 1.
_WHOLE = 1e-9


@dataclass(frozen=True)
class ReplicateTables:
    """Weight and gap sums of each filled replicate, by table and bin.

    Attributes
    ----------
    weight, difference : float64 (n_filled, n_tables, n_bins); difference is outcomes minus confidence
    bins : int
    places : int64 (n_filled,), which of the 64 each one is
    """

    weight: Floats
    difference: Floats
    bins: int
    places: NDArray[np.int64]

    @property
    def complete(self) -> tuple[Floats, Floats]:
        """Weight and gap sums of all replicates, float64 (64, n_tables, n_bins) each; those of empty ones are 0."""
        sums = np.zeros((2, N_REPLICATES, *self.weight.shape[1:]))
        sums[:, self.places] = self.weight, self.difference
        return sums[0], sums[1]

    def contributions(self, gap: Floats) -> Floats:
        """Return what each replicate adds to the noise of each bin's gap, of mean 0; float64 (64, n_tables, n_bins)."""
        weight, difference = self.complete
        return np.asarray(difference - gap * weight)

    def drawn(self, times: Floats) -> tuple[Floats, Floats]:
        """Return weight and gap sums of resamples, (n_resamples, n_tables, n_bins) each, that take each replicate so many times."""
        shape = (len(times), *self.weight.shape[1:])
        weight, difference = (
            (times @ each.reshape(len(each), -1)).reshape(shape)
            for each in (self.weight, self.difference)
        )
        return weight, difference

    @property
    def gap(self) -> Floats:
        """Gap of each bin of all replicates; float64 (n_tables, n_bins)."""
        return ratio(self.difference.sum(axis=0), self.weight.sum(axis=0))

    @property
    def together(self) -> ReplicateTables:
        """All tables as one."""
        weight, difference = (
            each.sum(axis=1, keepdims=True) for each in (self.weight, self.difference)
        )
        return ReplicateTables(weight, difference, self.bins, self.places)


def score_tables(view: View, bins: int, least: int = MIN_FILLED) -> ReplicateTables:
    """Return the tables of the model's own score, with the number of bins nearest to `bins` that its 60 allow.

    Parameters
    ----------
    view : View
    bins : int
    least : number of replicates that must be filled

    Raises
    ------
    NoResultError
        Too few replicates are filled, or plain histograms hold too much of the window.
    """
    reject_if_thin(view, least)
    return _tables(view, "tables", 1, SCORE_BINS, bins)


def class_tables(view: View, bins: int, least: int = MIN_FILLED) -> ReplicateTables:
    """Return the tables of every class, with the number of bins nearest to `bins` that their 15 allow.

    Raises
    ------
    NoResultError
        As `score_tables`, or the replicates of this model store no classes.
    """
    reject_if_thin(view, least)
    if not keeps_class_tables(view.spec):
        raise NoResultError(
            "classes_not_replicated", "replicates store classes' tables for up to 20 classes"
        )
    return _tables(view, "classes", view.spec.n_classes, CLASS_BINS, bins)


def tables_for(view: View, scope: str, bins: int, least: int = MIN_FILLED) -> ReplicateTables:
    """Return the tables of any scope.

    Raises
    ------
    NoResultError
        As the functions above, or replicates do not store this scope.
    """
    of_binary = view.spec.task == "binary" and scope == "class:1"
    if scope == view.spec.default_scope or of_binary:
        return score_tables(view, bins, least)
    kind, _, name = "class:1".partition(":") if scope == "positive" else scope.partition(":")
    if kind == "top_label":
        raise NoResultError(
            "scope_not_replicated", f"replicates keep {view.spec.default_scope} and classes"
        )
    every = class_tables(view, bins, least)
    if kind == "class":
        place = slice(int(name), int(name) + 1)
        return ReplicateTables(
            every.weight[:, place], every.difference[:, place], every.bins, every.places
        )
    return every.together


def score_columns(view: View) -> dict[str, Floats]:
    """Return score sums of each filled replicate under the policy; float64 (n_filled,) by name; `places` identifies the replicates.

    Raises
    ------
    NoResultError
        As `score_tables`.
    """
    reject_if_thin(view)
    block = view.pane["replicates"].blocks["scores"]
    sums = block.sums.reshape(len(SCORE_SUMS), N_REPLICATES, len(POLICIES))[:, :, view.policy]
    filled = sums[0] > 0
    return dict(zip(SCORE_SUMS, sums[:, filled], strict=True)) | {
        "places": np.flatnonzero(filled).astype(np.float64)
    }


def resamples(n: int, seed: int) -> Floats:
    """Return how often each of n replicates is drawn in each bootstrap resample; float64 (N_RESAMPLES, n)."""
    return _resamples(n, seed)


@lru_cache(maxsize=16)
def _resamples(n: int, seed: int) -> Floats:
    return (
        np.random.default_rng(seed)
        .multinomial(n, np.full(n, 1.0 / n), N_RESAMPLES)
        .astype(np.float64)
    )


# So many distinct rows would fill almost every replicate.
_MANY_ROWS = 4 * N_REPLICATES


def reject_if_thin(view: View, least: int = MIN_FILLED) -> None:
    """Raise if there are too few units, fewer than `least` replicates are filled, or plain histograms hold too much of the window.

    Intervals need 40 units, so that the number of units decides and not the replicates into which their names fall. Units that are split
    over panes count in each, so replicates can be empty even then.
    """
    if view.histogram_share() > MAX_HISTOGRAM_SHARE:
        raise NoResultError(
            "histograms_not_replicated", "more than a tenth of the window came as plain histograms"
        )
    n_units = view.counts["n_units"]
    if least >= MIN_FILLED and n_units < MIN_UNITS:
        raise NoResultError(
            "too_few_units", f"Received {n_units} units; an interval needs {MIN_UNITS}."
        )
    filled = view.once("filled replicates", lambda: _count_filled(view))
    if filled < least:
        if view.counts["n_unit_from_row"] >= _MANY_ROWS:
            raise NoResultError(
                "tied_rows",
                f"rows without ids and units have few distinct scores: they fall into {filled} of 64 replicates; send ids",
            )
        raise NoResultError(
            "too_few_units",
            f"units fall into {filled} of 64 replicates; {least} are needed",
        )


def _count_filled(view: View) -> int:
    sums = view.pane["replicates"].blocks["scores"].sums
    weight = sums.reshape(len(SCORE_SUMS), N_REPLICATES, len(POLICIES))[0, :, view.policy]
    return int(np.count_nonzero(weight > 0))


def _tables(
    view: View, block_name: str, n_tables: int, stored_bins: int, bins: int
) -> ReplicateTables:
    block = view.pane["replicates"].blocks[block_name]
    sums = block.sums.reshape(len(TABLE_SUMS), N_REPLICATES, n_tables, stored_bins)
    pooled = view.pane_query.raters == "pooled"
    weight = sums[0 if pooled else 1]
    difference = sums[4 + view.policy] - sums[2 if pooled else 3]
    filled = weight.sum(axis=(1, 2)) > 0
    target = nearest_divisor(stored_bins, bins)
    shape = (int(filled.sum()), n_tables, target, stored_bins // target)
    return ReplicateTables(
        weight[filled].reshape(shape).sum(axis=3),
        difference[filled].reshape(shape).sum(axis=3),
        target,
        np.flatnonzero(filled),
    )


def nearest_divisor(stored_bins: int, bins: int) -> int:
    """Return the divisor of `stored_bins` nearest to `bins`, the larger of two."""
    divisors = [d for d in range(1, stored_bins + 1) if stored_bins % d == 0]
    return min(divisors, key=lambda d: (abs(d - bins), -d))


@dataclass(frozen=True)
class BinShares:
    """Share of each fine bin in each bin of the value.

    Attributes
    ----------
    share : float64 (n_tables, n_fine, n_bins)
    nested : whether no fine bin is divided
    """

    share: Floats
    nested: bool

    def of(self, values: Floats) -> Floats:
        """Return sums by fine bin, (..., n_tables, n_fine), as sums by bin, (..., n_tables, n_bins)."""
        return np.swapaxes(np.matmul(np.swapaxes(values, 0, 1), self.share), 0, 1)

    def of_tables(self, tables: ReplicateTables) -> ReplicateTables:
        """Return the replicates' tables under the bins of the value."""
        return ReplicateTables(
            self.of(tables.weight),
            self.of(tables.difference),
            self.share.shape[-1],
            tables.places,
        )


def bin_shares(
    cells: Sequence[Cells], places: Sequence[Ints], n_fine: int, n_bins: int
) -> BinShares:
    """Return the shares of fine equal-width bins in the bins of a value.

    Parameters
    ----------
    cells : of each table
    places : of each table, the bin of each cell; negative where it is in none
    n_fine, n_bins : numbers of bins
    """
    lower, upper, weight = (
        np.concatenate([getattr(each, name) for each in cells])
        for name in ("lower", "upper", "weight")
    )
    place, table = np.concatenate(places), np.repeat(np.arange(len(cells)), list(map(len, cells)))
    # Bins are open on the left. A middle is inside its fine bin, and equals the score where a cell is one score.
    fine = table * n_fine + equal_width_bin((lower + upper) / 2.0, n_fine)
    shape = (len(cells), n_fine, n_bins)
    total = np.bincount(fine, weight, len(cells) * n_fine).reshape(shape[:2])[:, :, None]
    used = place >= 0
    shared = np.bincount(
        fine[used] * n_bins + place[used], weight[used], total.size * n_bins
    ).reshape(shape)
    share = ratio(shared, total)
    return BinShares(share, bool(((share < _WHOLE) | (share > 1.0 - _WHOLE)).all()))
