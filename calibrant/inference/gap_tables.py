"""The bins of a value, one row per table, with the replicates of the same bins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Table
from calibrant.core.view import View
from calibrant.inference.bin_noise import BinMoments
from calibrant.inference.closed_null import ClosedNull
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.replication import (
    BinShares,
    ReplicateTables,
    bin_shares,
    class_tables,
    tables_for,
)

_ANY = 2


@dataclass(frozen=True)
class GapTables:
    """The bins of a value, one row per table (one table, or one per class), with how to find their replicates.

    Attributes
    ----------
    scopes : scope of each table
    binning, bins : as requested
    weight, gap, score, squared, variance, independent : float64 (n_tables, n_bins): weight, gap, mean score (0.5 where empty), sum of
        squared weights of samples, variance of outcomes under the null with dependent units, and with independent predictions
    """

    scopes: tuple[str, ...]
    binning: str
    bins: int
    weight: Floats
    gap: Floats
    score: Floats
    squared: Floats
    variance: Floats
    independent: Floats

    @property
    def key(self) -> tuple[object, ...]:
        """What identifies the bins within a view."""
        return self.scopes, self.binning, self.bins

    @cached_property
    def deviation(self) -> Floats:
        """Standard deviation of the gaps under the null, 0 where there is no weight; float64 (n_tables, n_bins)."""
        spread = np.sqrt(np.maximum(self.variance, 0.0))
        return ratio(spread, self.weight)

    @cached_property
    def moments(self) -> BinMoments:
        """What the bins hold."""
        units = ratio(self.weight**2, self.squared)
        return BinMoments(self.weight, self.gap, self.score, units)


def gap_tables(scopes: tuple[str, ...], binning: str, bins: int, tables: list[Table]) -> GapTables:
    """Return the tables of one value, with zeros behind shorter ones."""
    width = max(table.n_bins for table in tables)

    def column(name: str) -> Floats:
        result = np.zeros((len(tables), width))
        for row, table in zip(result, tables, strict=True):
            row[: table.n_bins] = getattr(table.cells, name)
        return result

    weight, confidence, squared = (
        column(name) for name in ("weight", "confidence", "weight_squared")
    )
    filled = weight != 0
    score = np.divide(confidence, weight, out=np.full_like(weight, 0.5), where=filled)
    gap = ratio(column("correct") - confidence, weight)
    variance = column("null_variance")
    independent = np.maximum(squared * score * (1.0 - score), 0.0)
    return GapTables(scopes, binning, bins, weight, gap, score, squared, variance, independent)


@dataclass(frozen=True)
class GapForm:
    """A statistic of gaps with the bins that it reads.

    Attributes
    ----------
    tables : the value's bins
    statistic, of_truth : of the observed gaps, and the same of true gaps, without a bias that is subtracted
    by_bin : whether each bin counts alike, so that the interval is limited to bins with enough units
    closed : null reference of the first statistic in closed form; None: it is drawn
    """

    tables: GapTables
    statistic: GapStatistic
    of_truth: GapStatistic
    by_bin: bool = False
    closed: ClosedNull | None = None

    @cached_property
    def observed(self) -> float:
        """The value."""
        return float(self.statistic(self.tables.weight, self.tables.gap))


def replicates_of(view: View, tables: GapTables) -> tuple[ReplicateTables, BinShares]:
    """Return the replicates under the value's bins, however few are filled, and how the stored bins became those.

    Raises
    ------
    NoResultError
        As `replication.tables_for` and `class_tables`.
    """
    return view.once(("replicates", *tables.key), lambda: _replicates_of(view, tables))


def _replicates_of(view: View, tables: GapTables) -> tuple[ReplicateTables, BinShares]:
    if len(tables.scopes) > 1:
        fine = class_tables(view, SCORE_BINS, _ANY)
    else:
        fine = tables_for(view, tables.scopes[0], SCORE_BINS, _ANY)
    found = [view.cells_in_bins(scope, tables.binning, tables.bins) for scope in tables.scopes]
    shares = bin_shares(
        [cells for cells, _ in found],
        [bins for _, bins in found],
        fine.bins,
        tables.weight.shape[1],
    )
    return shares.of_tables(fine), shares
