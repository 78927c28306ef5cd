"""Panes of rows with one label each, by one pass over the caller's arrays.

The four label policies of such rows are equal, their weights are one and each is a unit. The pass therefore adds up few numbers,
and the columns of a pane's blocks are made of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from calibrant.accumulators import counts, replicates, scores
from calibrant.accumulators.block import Block
from calibrant.core.arrays import Floats
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.grid import Grid
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.input.single_labels import SingleLabels
from calibrant.kernel.declarations import structures
from calibrant.kernel.library import library
from calibrant.kernel.threads import in_threads

# Accumulators that the pass fills; those without blocks of their own are of other input.
FILLED = frozenset(
    {"counts", "top_label", "positive", "replicates", "scores", "histograms", "unit_sample"}
)
# Rows that are added up in one table before these are added to the others: sums do not depend on the number of threads.
ROWS_OF_TABLE = 1 << 17
_CELL = ("n", "confidence", "correct", "null_variance")
_SUMS = (
    "n",
    "finite",
    "brier",
    "nll",
    "correct",
    "brier_null",
    "brier_null_variance",
    "accuracy_null",
)


@dataclass(frozen=True, eq=False)
class _Tables:
    """Sums of some rows, in one array.

    Attributes
    ----------
    data : float64, all tables one after the other
    top, positive : (n_positions, 4), columns of `_CELL`; the second None unless there are two classes
    bins : (N_REPLICATES, n_bins, 4), of the score that replicates have
    sums : (N_REPLICATES, 8), columns of `_SUMS`
    """

    data: Floats
    top: Floats
    positive: Floats | None
    bins: Floats
    sums: Floats

    @classmethod
    def zero(cls, grid: Grid, *, has_positive: bool) -> _Tables:
        n_cells, n_bins = 4 * grid.n_positions, 4 * N_REPLICATES * replicates.SCORE_BINS
        ends = np.cumsum([n_cells, n_cells * has_positive, n_bins, N_REPLICATES * len(_SUMS)])
        data = np.zeros(ends[-1])
        top, positive, bins, sums = np.split(data, ends[:-1])
        return cls(
            data,
            top.reshape(-1, 4),
            positive.reshape(-1, 4) if has_positive else None,
            bins.reshape(N_REPLICATES, -1, 4),
            sums.reshape(N_REPLICATES, -1),
        )


def fills(rows: SingleLabels, only: Collection[str]) -> bool:
    """Return whether the pass fills all that these accumulators need.

    It fills no tables of classes of replicates. They are read with the cells of classes and, of two columns, with those of class 1.
    """
    return FILLED.issuperset(only) and (rows.is_flat or "positive" not in only)


def pane_of(rows: SingleLabels, only: Collection[str]) -> Pane | None:
    """Return a pane of accumulators that the pass `fills`, without the tables of classes of replicates; None if a row is not simply valid."""
    task = "binary" if rows.is_flat else "multiclass"
    spec = PaneSpec(task, rows.n_classes)
    tables = _summed(rows, spec)
    return None if tables is None else _pane(spec, only, tables)


def _summed(rows: SingleLabels, spec: PaneSpec) -> _Tables | None:
    """Return the sums of all rows; those of a part of the rows are added in the order of the parts, whatever adds them up."""
    n, has_positive = len(rows.labels), spec.n_classes == 2
    total = _Tables.zero(spec.top_grid, has_positive=has_positive)
    if n <= ROWS_OF_TABLE:
        return total if _add(rows, spec, total, 0, n) else None

    def part(start: int) -> _Tables | None:
        tables = _Tables.zero(spec.top_grid, has_positive=has_positive)
        is_valid = _add(rows, spec, tables, start, min(start + ROWS_OF_TABLE, n))
        return tables if is_valid else None

    for tables in in_threads(part, range(0, n, ROWS_OF_TABLE)):
        if tables is None:
            return None
        total.data[:] += tables.data
    return total


def _add(rows: SingleLabels, spec: PaneSpec, tables: _Tables, start: int, stop: int) -> bool:
    """Add some rows to tables; return whether all of them are valid."""
    grid, some = spec.top_grid, rows.scores[start:stop]
    bin_of = grid.bins(replicates.SCORE_BINS)
    positive = tables.positive
    given = structures()["SingleLabels"](
        stop - start, spec.n_classes, some.strides[0], 0 if rows.is_flat else some.strides[1],
        some.dtype == np.float64, rows.is_flat, rows.edge_rule, replicates.SCORE_BINS,
        some.ctypes.data, rows.labels[start:stop].ctypes.data,
        structures()["Grid"](grid.cells, grid.refinement, grid.lower.ctypes.data),
        bin_of.ctypes.data, tables.top.ctypes.data, None if positive is None else positive.ctypes.data,
        tables.bins.ctypes.data, tables.sums.ctypes.data,
    )  # fmt: skip
    result = library().calibrant_kernel_single_labels(ctypes.byref(given))
    if result == 2:
        raise MemoryError(f"the kernel has no memory for {stop - start} rows")
    return bool(result == 0)


def _pane(spec: PaneSpec, only: Collection[str], tables: _Tables) -> Pane:
    pane = Pane(spec, only)
    _fill_counts(pane["counts"].blocks["counts"], tables)
    for name, cells in (("top_label", tables.top), ("positive", tables.positive)):
        if name in pane.names and cells is not None:
            _fill_cells(pane[name].blocks["cells"], cells)
    if "replicates" in pane.names:
        _fill_replicates(pane["replicates"].blocks, tables)
    if "scores" in pane.names:
        _fill_scores(pane["scores"].blocks["scores"], tables)
    return pane


def _fill_counts(block: Block, tables: _Tables) -> None:
    n = int(tables.sums[:, 0].sum())
    block.counts[:, 0] = [0 if name == "n_majority_ties" else n for name in counts.COUNTS]
    block.sums[0, 0] = n


def _fill_cells(block: Block, table: Floats) -> None:
    """Fill a block with the columns of `accumulators.cells`."""
    n, confidence, correct, variance = table.T
    block.counts[:] = n
    block.sums[:] = [n, n, confidence, confidence, *[correct] * 5, n, n, variance, variance]


def _fill_replicates(blocks: dict[str, Block], tables: _Tables) -> None:
    n, confidence, correct, _ = tables.bins.reshape(-1, 4).T
    blocks["tables"].counts[0] = n
    blocks["tables"].sums[:] = [n, n, confidence, confidence, *[correct] * 4]
    at = np.arange(replicates.SCORE_BINS)
    place = replicates.pair_places(at, at, replicates.SCORE_BINS)
    of_bin = n.reshape(N_REPLICATES, -1).sum(axis=0)
    blocks["unit_products"].counts[:, place] = of_bin
    blocks["unit_products"].sums[:, place] = of_bin
    named = dict(zip(_SUMS, np.repeat(tables.sums, N_POLICIES, axis=0).T, strict=True))
    blocks["scores"].counts[0] = blocks["score_nulls"].counts[0] = named["n"]
    blocks["scores"].sums[:] = [named[name] for name in ("n", "finite", "brier", "nll", "correct")]
    blocks["score_nulls"].sums[:] = [named[name] for name in replicates.NULL_SUMS]
    for name in ("classes", "class_unit_products"):
        blocks.pop(name, None)


def _fill_scores(block: Block, tables: _Tables) -> None:
    named = dict(zip(_SUMS, tables.sums.sum(axis=0), strict=True))
    n, finite = named["n"], named["finite"]
    named |= {
        "weight": n,
        "weight_finite": finite,
        "accuracy_null_variance": tables.top[:, 3].sum(),
    }
    block.counts[:] = np.array([n, n, n - finite])[:, None]
    block.sums[:] = np.array([named[name] for name in scores.SUMS])[:, None]
