"""Cells of the pairs of logits of two-class models, for losses at one temperature per class.

A table has at most 1,024 cells for segmentation and 2,048 for other tasks. Their width is the smallest of 1/4, 1/2, 1, … with
which they are so few; it depends only on the rows. Cases have tables of their own where the hash of their name is below a
threshold, as in `cases`, and at most 64 have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.logit_cells import (
    COUNTS,
    MAX_LEVEL,
    SUMS,
    LogitCells,
    logit_rows,
    ranges_of_cells,
    table_of,
)
from calibrant.accumulators.ranges import Ranges
from calibrant.core.batch_sums import BatchSums
from calibrant.core.hashing import hash_names
from calibrant.core.packing import PackingError, pack
from calibrant.core.spec import PaneSpec

MAX_CELLS, MAX_SEGMENTATION_CELLS = 2048, 1024
MAX_CASES = 64
MAX_HALVINGS = 63
ROWS = ("cells", "outside", "probabilities")
OTHER = ""
_TABLE_BYTES = 250
_PREFIX = "cells:"


class Logits(Accumulator):
    """Block `rows`, and a table of cells for each case (`cells:NAME`) and for all other rows (`cells:`).

    `rows` counts the labelled predictions in cells, those with a logit beyond the largest that has a cell, and those that came as
    probabilities, which have no logits.

    Attributes
    ----------
    tables : case name to table; "" for rows without a case, and of cases above the threshold
    halvings : how often the threshold was halved
    """

    name = "logits"
    optional: ClassVar[bool] = True

    def __init__(self, spec: PaneSpec) -> None:
        self.tables: dict[str, LogitCells] = {}
        self.halvings = 0
        super().__init__(spec)

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.n_classes == 2

    def zero(self) -> dict[str, Block]:
        return {"rows": Block(1, 0, len(ROWS))}

    def ranges(self) -> dict[str, Ranges]:
        rows = Ranges(("predictions",), (), {}, totals={"predictions": "n_labelled"})
        tables = {_PREFIX + name: ranges_of_cells(each.level) for name, each in self.tables.items()}
        return {"rows": rows, **tables}

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

    @property
    def names(self) -> list[str]:
        """Cases with a table of their own, in order."""
        return sorted(name for name in self.tables if name != OTHER)

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
        self._add(tables, 1)

    @property
    def object_bytes(self) -> int:
        names = sum(2 * getsizeof(name) for name in self.tables)
        return super().object_bytes + names + _TABLE_BYTES * len(self.tables)

    def merge(self, other: Accumulator) -> None:
        self._take(other, 1)

    def subtract(self, other: Accumulator) -> None:
        """Subtract the other's tables. The threshold and the widths of tables that remain stay as they were."""
        self._take(other, -1)

    def copy(self) -> Self:
        twin = type(self)(self.spec)
        twin.tables = {name: table.copy() for name, table in self.tables.items()}
        twin.halvings = self.halvings
        twin.blocks = {"rows": self.blocks["rows"].copy()}
        twin._name_blocks()
        return twin

    def pack(self) -> bytes:
        names = sorted(self.tables)
        filled = [self.tables[name].filled() for name in names]
        arrays: dict[str, NDArray[Any]] = {
            **self.blocks["rows"].arrays("rows"),
            "lengths": np.array([len(places) for places, _, _ in filled], np.int64),
            "levels": np.array([self.tables[name].level for name in names], np.int64),
            "places": _joined([np.diff(places, prepend=0) for places, _, _ in filled], np.int64),
        }
        for i, name in enumerate(COUNTS):
            arrays[name] = _joined([counts[i] for _, counts, _ in filled], np.int64)
        for i, name in enumerate(SUMS):
            arrays[name] = _joined([sums[i] for _, _, sums in filled], np.float64)
        return pack(arrays, self._described() | {"names": names, "halvings": self.halvings})

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        unpacked = cls(spec)
        cells = unpacked.max_cells * (MAX_CASES + 1)
        largest = 8 * (1 + len(COUNTS) + len(SUMS)) * cells + 8 * 2 * (MAX_CASES + 1) + 8 * 6
        arrays, about = cls._own_arrays(spec, data, largest)
        try:
            unpacked.blocks["rows"].read("rows", arrays)
            unpacked._read(arrays, about)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PackingError(
                f"Received other bytes; expected cells of logits ({error})."
            ) from error
        return unpacked

    def _take(self, other: Accumulator, sign: int) -> None:
        assert isinstance(other, Logits)
        rows = self.blocks["rows"]
        rows.merge(other.blocks["rows"]) if sign > 0 else rows.subtract(other.blocks["rows"])
        self._lower(other.halvings)
        self._add(other.tables, sign)

    def _add(self, tables: Mapping[str, LogitCells], sign: int) -> None:
        has_own_table = self._has_own_table(list(tables))
        for name, table in tables.items():
            self._put(name if has_own_table[name] else OTHER, table, sign)
        while len(self.names) > MAX_CASES:
            self._lower(self.halvings + 1)
        self._name_blocks()

    def _put(self, name: str, table: LogitCells, sign: int) -> None:
        own = self.tables.setdefault(name, LogitCells.zero())
        own.merge(table) if sign > 0 else own.subtract(table)
        while own.n_filled > self.max_cells:
            own.coarsen(own.level + 1)
        if own.n_filled == 0:
            del self.tables[name]

    def _lower(self, halvings: int) -> None:
        """Lower the threshold, and merge the tables of cases above it into the shared one."""
        if halvings <= self.halvings:
            return
        self.halvings = min(halvings, MAX_HALVINGS)
        for name, has_own_table in self._has_own_table(self.names).items():
            if not has_own_table:
                self._put(OTHER, self.tables.pop(name), 1)
        self._name_blocks()

    def _has_own_table(self, names: list[str]) -> dict[str, bool]:
        """Return whether each case is below the threshold."""
        below = hash_names(names) <= np.uint64((1 << (64 - self.halvings)) - 1)
        return {
            name: bool(is_below) and name != OTHER
            for name, is_below in zip(names, below, strict=True)
        }

    def _name_blocks(self) -> None:
        self.blocks = {"rows": self.blocks["rows"]}
        self.blocks |= {_PREFIX + name: table for name, table in self.tables.items()}

    def _read(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        names, self.halvings = about["names"], about["halvings"]
        lengths, levels = arrays["lengths"], arrays["levels"]
        if type(self.halvings) is not int or not 0 <= self.halvings <= MAX_HALVINGS:
            raise PackingError(f"Received a threshold outside 0 to {MAX_HALVINGS} halvings.")
        if not all(isinstance(name, str) for name in names) or names != sorted(set(names)):
            raise PackingError("Received names of cases that are repeated or not sorted.")
        for column, low, high in ((lengths, 1, self.max_cells), (levels, 0, MAX_LEVEL)):
            if column.dtype != np.int64 or column.shape != (len(names),):
                raise PackingError("Received tables without a length or a level.")
            if ((column < low) | (column > high)).any():
                raise PackingError("Received a length or a level of a table out of range.")
        own = [name for name in names if name != OTHER]
        if not all(self._has_own_table(own).values()) or len(own) > MAX_CASES:
            raise PackingError("Received more cases than their threshold allows.")
        columns = {f"0.count{i}": arrays[name] for i, name in enumerate(COUNTS)}
        columns |= {f"0.sum{i}": arrays[name] for i, name in enumerate(SUMS)}
        columns["0.places"] = arrays["places"]
        ends = np.cumsum(lengths)
        if any(len(column) != lengths.sum() for column in columns.values()):
            raise PackingError("Received another number of cells than the lengths declare.")
        for name, end, length, level in zip(names, ends, lengths, levels, strict=True):
            table = LogitCells.zero(int(level))
            table.read("0", {key: each[end - length : end] for key, each in columns.items()})
            self.tables[name] = table
        self._name_blocks()


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


def _joined(columns: list[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(columns) if columns else np.zeros(0, kind)


ACCUMULATOR = Logits
