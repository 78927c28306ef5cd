"""Panes of rows with one label each, by one pass over the caller's arrays.

The four label policies of such rows are equal, their weights are one and each is a unit. The pass therefore adds up few numbers,
and the columns of a pane's blocks are made of them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from calibrant.accumulators import accumulators, counts, replicates, scores
from calibrant.accumulators.block import Block
from calibrant.core.arrays import Floats, Ints
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
    {
        "counts",
        "top_label",
        "positive",
        "classes",
        "all_labels",
        "replicates",
        "scores",
        "histograms",
        "unit_sample",
    }
)
# Rows that are added up in one table before these are added to the others: sums do not depend on the number of threads.
ROWS_OF_TABLE = 1 << 17
_LINE = 8  # numbers of a line of the cache
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


def _shapes(spec: PaneSpec, only: Collection[str], *, is_flat: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tables of a pass; those that nothing reads have no rows."""
    n_classes, n_cells = spec.n_classes, len(_CELL)
    has_cells = not {"classes", "all_labels"}.isdisjoint(only)
    # Intervals of one class read them, of two columns also those of class 1.
    has_tables = replicates.keeps_class_tables(spec) and (
        has_cells or ("positive" in only and not is_flat)
    )
    n_tables = n_classes if spec.keeps_all_classes else 1
    return {
        "top": (spec.top_grid.n_positions, n_cells),
        "positive": (spec.top_grid.n_positions * (n_classes == 2), n_cells),
        "bins": (N_REPLICATES, replicates.SCORE_BINS, n_cells),
        "sums": (N_REPLICATES, len(_SUMS)),
        "classes": (n_tables * has_cells, spec.class_grid.n_positions, n_cells),
        "class_bins": (N_REPLICATES * has_tables, n_classes, replicates.CLASS_BINS, n_cells),
    }


@dataclass(frozen=True, eq=False)
class _Tables:
    """Sums of some rows, in one array.

    Attributes
    ----------
    data : float64, all tables one after the other
    by_name : views of it, of the shapes of `_shapes`; the last axis has `_CELL`, of `sums` `_SUMS`
    """

    data: Floats
    by_name: dict[str, Floats]

    @classmethod
    def zero(cls, shapes: Mapping[str, tuple[int, ...]]) -> _Tables:
        ends = list(accumulate(map(math.prod, shapes.values())))
        data = _aligned_zeros(ends[-1])
        parts = zip(shapes.items(), [0, *ends], ends, strict=False)
        return cls(data, {name: data[a:b].reshape(shape) for (name, shape), a, b in parts})

    def __getitem__(self, name: str) -> Floats:
        return self.by_name[name]

    def address(self, name: str) -> int | None:
        """Return where a table is; None of one without rows."""
        return self[name].ctypes.data if self[name].size else None


def _aligned_zeros(n: int) -> Floats:
    """Return zeros that start with a line of the cache, so that none of their cells is in two lines."""
    memory = np.zeros(n + _LINE)
    start = -memory.ctypes.data // memory.itemsize % _LINE
    return memory[start : start + n]


def fills(spec: PaneSpec, only: Collection[str]) -> bool:
    """Return whether the pass fills all that these accumulators need."""
    return FILLED.issuperset(name for name in only if accumulators()[name].applies(spec))


def pane_of(rows: SingleLabels, only: Collection[str]) -> Pane | None:
    """Return a pane of accumulators that the pass `fills`; None if a row is not simply valid.

    Replicates have tables of classes where the accumulators have cells of classes.
    """
    spec = PaneSpec("binary" if rows.is_flat else "multiclass", rows.n_classes)
    tables = _summed(rows, spec, _shapes(spec, only, is_flat=rows.is_flat))
    return None if tables is None else _pane(spec, only, tables)


def _summed(
    rows: SingleLabels, spec: PaneSpec, shapes: Mapping[str, tuple[int, ...]]
) -> _Tables | None:
    """Return the sums of all rows; those of a part of the rows are added in the order of the parts, whatever adds them up."""
    n, total = len(rows.labels), _Tables.zero(shapes)
    if n <= ROWS_OF_TABLE:
        return total if _add(rows, spec, total, 0, n) else None

    def part(start: int) -> _Tables | None:
        tables = _Tables.zero(shapes)
        is_valid = _add(rows, spec, tables, start, min(start + ROWS_OF_TABLE, n))
        return tables if is_valid else None

    for tables in in_threads(part, range(0, n, ROWS_OF_TABLE)):
        if tables is None:
            return None
        total.data[:] += tables.data
    return total


def _add(rows: SingleLabels, spec: PaneSpec, tables: _Tables, start: int, stop: int) -> bool:
    """Add some rows to tables; return whether all of them are valid."""
    grid, fine, some = spec.top_grid, spec.class_grid, rows.scores[start:stop]
    bins, class_bins = grid.bins(replicates.SCORE_BINS), fine.bins(replicates.CLASS_BINS)
    given = structures()["SingleLabels"](
        stop - start, spec.n_classes, some.strides[0], 0 if rows.is_flat else some.strides[1],
        some.dtype == np.float64, rows.is_flat, rows.edge_rule, replicates.SCORE_BINS,
        some.ctypes.data, rows.labels[start:stop].ctypes.data,
        _grid(grid), bins.ctypes.data,
        *map(tables.address, ("top", "positive", "bins", "sums")),
        _grid(fine), fine.n_positions if spec.keeps_all_classes else 0, replicates.CLASS_BINS, class_bins.ctypes.data,
        *map(tables.address, ("classes", "class_bins")),
    )  # fmt: skip
    result = library().calibrant_kernel_single_labels(ctypes.byref(given))
    if result == 2:
        raise MemoryError(f"the kernel has no memory for {stop - start} rows")
    return bool(result == 0)


def _grid(grid: Grid) -> Any:
    return structures()["Grid"](grid.cells, grid.refinement, grid.lower.ctypes.data)


def _pane(spec: PaneSpec, only: Collection[str], tables: _Tables) -> Pane:
    pane = Pane(spec, only)
    _fill_counts(pane["counts"].blocks["counts"], tables)
    of_cells = {
        "top_label": "top",
        "positive": "positive",
        "classes": "classes",
        "all_labels": "classes",
    }
    for name, table in of_cells.items():
        if name in pane.names and tables[table].size:
            blocks = pane[name].blocks
            blocks["cells"] = _cells(blocks["cells"], tables[table])
    if "replicates" in pane.names:
        _fill_replicates(pane["replicates"].blocks, tables)
    if "scores" in pane.names:
        _fill_scores(pane["scores"].blocks["scores"], tables)
    return pane


def _fill_counts(block: Block, tables: _Tables) -> None:
    n = int(tables["sums"][:, 0].sum())
    block.counts[:, 0] = [0 if name == "n_majority_ties" else n for name in counts.COUNTS]
    block.sums[0, 0] = n


def _cells(block: Block, table: Floats) -> Block:
    """Return a block like an empty one, with the columns of `accumulators.cells` of the cells that have rows."""
    places, (n, confidence, correct, variance) = _filled(table)
    columns = [n, n, confidence, confidence, *[correct] * 5, n, n, variance, variance]
    return _of_cells(block, places, columns)


def _filled(table: Floats) -> tuple[Ints, Floats]:
    """Return the places of the cells that have rows, and their sums, (4, cells)."""
    cells = table.reshape(-1, len(_CELL))
    places = np.flatnonzero(cells[:, 0])
    return places, cells[places].T


def _of_cells(block: Block, places: Ints, columns: list[Floats]) -> Block:
    """Return a block like an empty one with these sums; every count is the first of them."""
    counted = np.array([columns[0]] * block.n_counts, np.int64)
    return Block.of_cells(block.size, places, counted, np.array(columns), block.depends_on)


def _fill_replicates(blocks: dict[str, Block], tables: _Tables) -> None:
    for name, table in (("tables", "bins"), ("classes", "class_bins")):
        if tables[table].size:
            blocks[name] = _replicated(blocks[name], tables[table])
        else:
            blocks.pop(name, None)
    # Of weights of units, which no result of rows reads.
    for name in ("unit_products", "class_unit_products"):
        blocks.pop(name, None)
    named = dict(zip(_SUMS, np.repeat(tables["sums"], N_POLICIES, axis=0).T, strict=True))
    blocks["scores"].counts[0] = blocks["score_nulls"].counts[0] = named["n"]
    blocks["scores"].sums[:] = [named[name] for name in ("n", "finite", "brier", "nll", "correct")]
    blocks["score_nulls"].sums[:] = [named[name] for name in replicates.NULL_SUMS]


def _replicated(block: Block, bins: Floats) -> Block:
    """Return a block like an empty one, with tables of replicates, (N_REPLICATES, n_tables, n_bins, 4) or without the second axis."""
    places, (n, confidence, correct, _) = _filled(bins)
    return _of_cells(block, places, [n, n, confidence, confidence, *[correct] * 4])


def _fill_scores(block: Block, tables: _Tables) -> None:
    named = dict(zip(_SUMS, tables["sums"].sum(axis=0), strict=True))
    n, finite = named["n"], named["finite"]
    named |= {
        "weight": n,
        "weight_finite": finite,
        "accuracy_null_variance": tables["top"][:, 3].sum(),
    }
    block.counts[:] = np.array([n, n, n - finite])[:, None]
    block.sums[:] = np.array([named[name] for name in scores.SUMS])[:, None]
