"""Pane under a query: cells, tables and sums for its scope, policy and bins.

Metrics, maps and diagrams read only a `View`. With the raw batch in addition to the pane, cells come from raw rows
(one for each distinct score). So one formula serves the stored state and `POST /v1/score`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import scores as score_sums
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums, RawRows
from calibrant.core.cells import (
    Cells,
    Table,
    cells_of_rows,
    cells_of_scores,
    equal_mass_groups,
    rank_groups,
    with_histogram,
)
from calibrant.core.errors import NoResultError as NoResultError
from calibrant.core.grid import Grid, equal_width_bin
from calibrant.core.own_edges import (
    OWN,
    bins_of_positions,
    bins_of_scores,
    inexact_edges,
    missing_edges,
)
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery, policy_index
from calibrant.core.view_cells import StoredCellsView, has_cells
from calibrant.input.notes import NO_NOTES, InputNotes


class View(StoredCellsView):
    """Pane with a query.

    Parameters
    ----------
    pane : Pane
    pane_query : PaneQuery, checked against the pane's spec
    rows : the raw rows of the pane, if available
    """

    def __init__(
        self, pane: Pane, pane_query: PaneQuery, rows: Batch | RawRows | None = None
    ) -> None:
        self.pane, self.pane_query = pane, pane_query.check(pane.spec, exact=rows is None)
        self.spec = pane.spec
        self.policy = policy_index(pane_query.raters)
        self.scope = pane_query.scope_for(pane.spec)
        self._rows = RawRows(lambda: rows, rows.notes) if isinstance(rows, Batch) else rows
        self._made: dict[Any, Any] = {}

    def with_query(self, pane_query: PaneQuery) -> View:
        """Return a view of the same data under another query."""
        other = View.__new__(View)
        other.pane, other.pane_query = (
            self.pane,
            pane_query.check(self.spec, exact=not self.is_raw),
        )
        other.spec, other._rows = self.spec, self._rows
        other.policy, other.scope = policy_index(pane_query.raters), pane_query.scope_for(self.spec)
        other._made = {}
        return other

    @property
    def notes(self) -> InputNotes:
        """What was altered in the rows as they were read; nothing is known of a pane."""
        return NO_NOTES if self._rows is None else self._rows.notes

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of predictions, ratings and units."""
        return self.once("counts", lambda: self.notes.counted(self.pane.counts))

    @property
    def batch_sums(self) -> BatchSums | None:
        """Sums of the raw rows, computed when they are first asked for; None without rows."""
        return None if self._rows is None else self._rows.batch_sums

    @property
    def is_raw(self) -> bool:
        """Whether cells are from raw rows."""
        return self._rows is not None

    @property
    def _splits_ties(self) -> bool:
        return self.is_raw and self.pane_query.options.get("ties") == "split"

    @cached_property
    def weighted(self) -> bool:
        """Whether predictions have weights other than one."""
        cells = self.cells_of(self.scope)
        return bool((cells.weight != cells.count).any())

    def cells(self) -> Cells:
        """Return cells of the query's scope; predictions only.

        Raises
        ------
        NoResultError
            The window contains plain histograms, or the classes' cells are not stored.
        """
        self.reject_histograms()
        return self.cells_of(self.scope)

    def grid_cells(self) -> Cells:
        """Return `cells` as the pane has them, where it does: these are few, whatever the number of rows.

        Raises
        ------
        NoResultError
            As `cells`.
        """
        self.reject_histograms()
        return self.grid_cells_of(self.scope)

    def grid_cells_of(self, scope: str) -> Cells:
        """Return cells of a scope as the pane has them, where it does; for sums over all of them."""
        return self._stored_cells(scope)[1] if self._is_on_grid(scope) else self.cells_of(scope)

    def table(self) -> Table:
        """Return the query's bins of its scope. Plain histograms count if they have this kind, policy and edges.

        Raises
        ------
        NoResultError
            The window contains histograms that do not support this query, or the classes' cells are not stored.
        """
        return self.table_of(self.scope)

    def table_of(self, scope: str) -> Table:
        """Return a `table` of another scope."""
        return self.binned(scope, self.pane_query.binning, self.pane_query.bins)

    def binned(self, scope: str, binning: str, bins: int) -> Table:
        """Return a scope's table under another binning than the query's."""
        if binning == "equal_mass":
            self.reject_histograms()
            return self.once((scope, binning, bins), lambda: self._mass_table(scope, bins))
        if binning == OWN:
            self.reject_histograms()
        self._check_histograms(scope)
        return self.once((scope, binning, bins), lambda: self._edged_table(scope, binning, bins))

    def class_tables(self) -> list[Table]:
        """Return one table per class, one class against the rest.

        Raises
        ------
        NoResultError
            Not every class's cells are stored.
        """
        return self.binned_classes(self.pane_query.binning, self.pane_query.bins)

    def binned_classes(self, binning: str, bins: int) -> list[Table]:
        """Return the `class_tables` under another binning than the query's."""
        scopes = [f"class:{k}" for k in range(self.spec.n_classes)]
        is_exact = all(self._gives_bins(scope, binning, bins) for scope in scopes)
        if binning != "equal_mass" and is_exact and self.spec.keeps_all_classes:
            for scope, grouped in zip(scopes, self._grouped_classes(binning, bins), strict=True):
                self._made.setdefault(("grouped", scope, binning, bins), grouped)
        return [self.binned(scope, binning, bins) for scope in scopes]

    def _grouped_classes(self, binning: str, bins: int) -> list[Cells]:
        """Return the cells of every stored class in bins with fixed edges: all of them in one pass."""
        places, cells = self._stored_classes()
        slot, place = np.divmod(places, self.spec.class_grid.n_positions)
        group = slot * bins + self._bins_of_positions(self.spec.class_grid, binning, bins)[place]
        n = len(self.spec.stored_classes)
        every = cells.grouped(group, n * bins)
        starts = [bins * self._slot(k) for k in range(n)]
        return [every.select(slice(start, start + bins)) for start in starts]

    def _mass_table(self, scope: str, bins: int) -> Table:
        """Return equal-mass bins of a scope: mass under the policy, cuts at cell limits, ties together."""
        cells = self.cells_of(scope)
        cells = cells.select(cells.weight > 0)
        group = self._mass_groups(cells, bins)
        grouped = cells.grouped(group, int(group[-1]) + 1 if len(group) else 0)
        edges = (
            np.concatenate([[0.0], grouped.upper[:-1], [1.0]])
            if len(group)
            else np.array([0.0, 1.0])
        )
        return self._table(grouped, edges)

    def _mass_groups(self, cells: Cells, bins: int) -> Ints:
        if self._splits_ties:
            return rank_groups(len(cells), bins)
        return equal_mass_groups(cells.weight, bins)

    def cells_in_bins(
        self, scope: str, binning: str, bins: int, *, of_rows: bool = False
    ) -> tuple[Cells, Ints]:
        """Return cells of a scope, and the bin of `binned` that each is in, -1 for those in none; int64 (n_cells,).

        Parameters
        ----------
        of_rows : return `cells_of`, with one cell for each distinct score where there are rows
        """
        table = self.binned(scope, binning, bins)
        if binning == "equal_mass":
            cells = self.cells_of(scope)
            place = np.zeros(len(cells), np.int64)
            place[cells.weight > 0] = self._mass_groups(cells.select(cells.weight > 0), bins)
        else:
            cells, place = self._edged_bins(scope, binning, bins, of_rows)
        used = cells.weight > 0
        if len(table.cells):  # without bins no cell has weight
            used &= (table.cells.weight > 0)[place]
        return cells, np.where(used, place, -1)

    def _edged_bins(
        self, scope: str, binning: str, bins: int, of_rows: bool = False
    ) -> tuple[Cells, Ints]:
        """Return cells of a scope, of the pane where these give the bins exactly, and their bins of equal width or own edges."""
        if self._gives_bins(scope, binning, bins) and not (of_rows and self.is_raw):
            places, cells = self._stored_cells(scope)
            return cells, self._bins_of_positions(self.spec.grid_for(scope), binning, bins)[places]
        cells, edges = self.cells_of(scope), self.pane_query.edges
        if binning == OWN:
            own = self.pane_query.edges_of_bins
            return cells, bins_of_scores(cells.lower, own, edges, self._edge_rule)
        return cells, equal_width_bin(cells.lower, bins, edges, self._edge_rule)

    def _bins_of_positions(self, grid: Grid, binning: str, bins: int) -> Ints:
        edges = self.pane_query.edges
        if binning == OWN:
            return bins_of_positions(grid, self.pane_query.edges_of_bins, edges)
        return grid.bins(bins, edges)

    @property
    def _edge_rule(self) -> NDArray[np.uint8] | None:
        """Rule by which scores of rows are on an edge of bins: a caller's rows have one."""
        rules = None if self.batch_sums is None else self.batch_sums.batch.edge_rules
        return None if rules is None else rules[:1]

    def cells_of(self, scope: str) -> Cells:
        """Return non-empty cells of a scope under the policy.

        Raises
        ------
        NoResultError
            The class's cells are not stored.
        """
        return self.once(("cells", scope), lambda: self._cells_of(scope))

    def _is_on_grid(self, scope: str) -> bool:
        """Whether the cells of a scope are read from the pane: always without rows, else where it was filled with them."""
        return not self.is_raw or has_cells(self.pane, scope)

    def _gives_bins(self, scope: str, binning: str, bins: int) -> bool:
        """Whether the pane gives bins of equal width or own edges exactly, so that they need no pass over the rows."""
        return self._is_on_grid(scope) and self._is_exact(scope, binning, bins)

    def _is_exact(self, scope: str, binning: str, bins: int) -> bool:
        grid = self.spec.grid_for(scope)
        if binning == OWN:
            return not missing_edges(grid, self.pane_query.edges_of_bins)
        return bins in grid.exact_bins

    def _cells_of(self, scope: str) -> Cells:
        if self.batch_sums is not None:
            if self._splits_ties:
                return self.row_cells(scope)
            return cells_of_scores(self.batch_sums, self.policy, scope)
        return self._stored_cells(scope)[1]

    def scores(self) -> dict[str, float]:
        """Return the policy's column of the score sums: samples, weight, brier, nll and so on.

        Raises
        ------
        NoResultError
            The window contains plain histograms.
        """
        self.reject_histograms()
        block = self.pane["scores"].blocks["scores"]
        counts = dict(zip(score_sums.COUNTS, block.counts[:, self.policy].tolist(), strict=True))
        return counts | dict(zip(score_sums.SUMS, block.sums[:, self.policy].tolist(), strict=True))

    def _edged_table(self, scope: str, binning: str, bins: int) -> Table:
        own, grid = self.pane_query.edges_of_bins, self.spec.grid_for(scope)
        if not self.is_raw and not self._is_exact(scope, binning, bins):
            detail = f"the grid of {scope} cannot give {bins} bins exactly"
            is_own = binning == OWN
            raise NoResultError(
                "bins_not_exact", inexact_edges(own, scope, grid) if is_own else detail
            )
        key = ("grouped", scope, binning, bins)
        grouped = self.once(key, lambda: self._grouped(scope, binning, bins))
        if binning == OWN:
            return self._table(grouped, np.array(own))
        for stored in self._stored_keys(scope):
            grouped = with_histogram(grouped, self.pane.histograms.table(stored), bins)
        return self._table(grouped, np.arange(bins + 1) / bins)

    def _table(self, cells: Cells, edges: Floats) -> Table:
        """Return a table without the bins below `min_count`."""
        least = self.pane_query.min_count
        return Table.of(cells, edges, least, bool(least) and self.weighted)

    def _grouped(self, scope: str, binning: str, bins: int) -> Cells:
        cells, place = self._edged_bins(scope, binning, bins)
        return cells.grouped(place, bins)

    def rows(self, scope: str) -> Cells:
        """Return one cell for each labelled raw row, in the rows' order; for `all`, class after class.

        Raises
        ------
        NoResultError
            There are no raw rows.
        """
        batch_sums = self.batch_sums
        if batch_sums is None:
            raise NoResultError("needs_rows", "the stored state has cells, no rows")
        return self.once(("rows", scope), lambda: cells_of_rows(batch_sums, self.policy, scope))

    def row_cells(self, scope: str) -> Cells:
        """Return one cell for each labelled raw row, sorted by score; equal scores stay in the rows' order.

        Raises
        ------
        NoResultError
            There are no raw rows.
        """
        rows = self.rows(scope)
        return rows.select(np.argsort(rows.lower, kind="stable"))
