"""Cells of the pairs of logits of two-class models, for losses at one temperature per class.

A table has at most 1,024 cells for segmentation and 2,048 for other tasks. Their width is the smallest of 1/4, 1/2, 1, … with
which they are so few; it depends only on the rows. At most 64 cases have tables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.logit_cells import (
    COUNTS,
    MAX_LEVEL,
    SUMS,
    LogitCells,
    columns_of,
    logit_rows,
    table_of,
)
from calibrant.accumulators.named_tables import OTHER, NamedTables
from calibrant.accumulators.ranges import BlockColumns
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import Header
from calibrant.core.packing import PackingError
from calibrant.core.spec import PaneSpec

MAX_CELLS, MAX_SEGMENTATION_CELLS = 2048, 1024
ROWS = ("cells", "outside", "probabilities")
_TABLE_BYTES = 250
_PREFIX = "cells:"


class Logits(NamedTables[LogitCells]):
    """Block `rows`, and a table of cells for each case (`cells:NAME`) and for all other rows (`cells:`).

    `rows` counts the labelled predictions in cells, those with a logit beyond the largest that has a cell, and those that came as
    probabilities, which have no logits.

    The name "" has rows without a case, too.
    """

    name = "logits"
    optional: ClassVar[bool] = True
    max_cases = 64
    table_columns = COUNTS, SUMS

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.n_classes == 2

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        totals = {"predictions": "n_labelled"}
        return {"rows": BlockColumns(("predictions",), {}, len(ROWS), totals=totals)}

    def ranges(self) -> dict[str, BlockColumns]:
        tables = {_PREFIX + name: columns_of(each.level) for name, each in self.tables.items()}
        return super().ranges() | tables

    def shares(self) -> dict[str, tuple[float, str]]:
        n = sum(int(table.counts[0].sum()) for table in self.tables.values())
        return {"predictions in cells": (n, "n_labelled")}

    @property
    def is_empty(self) -> bool:
        return not self.tables and self.blocks["rows"].is_empty

    @property
    def max_cells(self) -> int:
        """Maximum number of filled cells of a table."""
        return MAX_SEGMENTATION_CELLS if self.spec.task == "segmentation" else MAX_CELLS

    def n_rows(self) -> dict[str, int]:
        """Return the number of labelled predictions in cells, outside and without logits."""
        return dict(zip(ROWS, self.blocks["rows"].counts[0].tolist(), strict=True))

    def fill(self, batch_sums: BatchSums) -> None:
        if not batch_sums.n:
            return
        rows = self.blocks["rows"].counts[0]
        if not batch_sums.batch.is_logits:
            rows[2] += batch_sums.n
            return
        found = logit_rows(batch_sums)
        rows[:2] += (len(found.place), int(found.is_outside.sum()))
        if not len(found.place):
            return
        case, names = _cases_of(batch_sums, found.is_stored)
        tables = {}
        for i, name in enumerate(names):
            own = np.flatnonzero(case == i) if len(names) > 1 else slice(None)
            same: dict[int, NDArray[np.float64]] = {}
            columns = [same.setdefault(id(column), column[own]) for column in found.columns]
            tables[name] = table_of(found.place[own], columns)
        self.add(tables, 1)

    @property
    def object_bytes(self) -> int:
        names = sum(2 * getsizeof(name) for name in self.tables)
        return super().object_bytes + names + _TABLE_BYTES * len(self.tables)

    def copy(self) -> Self:
        twin = super().copy()
        twin.blocks["rows"] = self.blocks["rows"].copy()
        return twin

    def empty_table(self, level: int = 0) -> LogitCells:
        return LogitCells.zero(level)

    def fit(self, table: LogitCells) -> None:
        while table.n_filled > self.max_cells:
            table.coarsen(table.level + 1)

    def name_blocks(self) -> None:
        self.blocks = {"rows": self.blocks["rows"]}
        self.blocks |= {_PREFIX + name: table for name, table in self.tables.items()}

    @property
    def max_bytes_stored(self) -> int:
        n_tables = self.max_cases + 1
        return 8 * n_tables * ((1 + len(COUNTS) + len(SUMS)) * self.max_cells + 2) + 8 * 6

    def packed_arrays(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        tables = super().packed_arrays(names)
        levels = np.array([self.tables[name].level for name in names], np.int64)
        rows = self.blocks["rows"].arrays("rows")
        return {**rows, "lengths": tables["lengths"], "levels": levels, **tables}

    def read(self, arrays: Mapping[str, NDArray[Any]], about: Header) -> None:
        self.blocks["rows"].read("rows", arrays)
        super().read(arrays, about)

    def read_levels(self, arrays: Mapping[str, NDArray[Any]], n: int) -> Sequence[int]:
        levels = arrays["levels"]
        if levels.dtype != np.int64 or levels.shape != (n,):
            raise PackingError("Received tables without a level.")
        if ((levels < 0) | (levels > MAX_LEVEL)).any() or (
            arrays["lengths"] > self.max_cells
        ).any():
            raise PackingError("Received a length or a level of a table out of range.")
        found: list[int] = levels.tolist()
        return found

    def _take(self, other: Accumulator, sign: int) -> None:
        rows, more = self.blocks["rows"], other.blocks["rows"]
        rows.merge(more) if sign > 0 else rows.subtract(more)
        super()._take(other, sign)


def _cases_of(
    batch_sums: BatchSums, stored: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the place of each stored row's case among the names; rows without a case have the name ""."""
    cases = batch_sums.batch.cases
    if cases is None:
        return np.zeros(int(stored.sum()), np.int64), [OTHER]
    named = np.array([OTHER if each is None else each for each in cases[stored]], object)
    numbers: dict[str, int] = {}
    index = np.fromiter(
        (numbers.setdefault(name, len(numbers)) for name in named), np.int64, len(named)
    )
    return index, list(numbers)


ACCUMULATOR = Logits
