"""A table for each named case (image, study), for averages over cases, their box plots and reliability histograms.

The number of cases and of filled cells is bounded. Beyond the bound, cases are chosen by the hash of their names as units are
in `unit_sample`: those below a threshold have tables of their own, and the rest share one, so that totals over all predictions
stay exact. The threshold is halved until the chosen ones fit, and never rises. The choice depends only on the names, so panes
merge in any order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from sys import getsizeof
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import Ranges
from calibrant.accumulators.sparse import SparseBlock
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.hashing import hash_names
from calibrant.core.histogram import Histogram
from calibrant.core.label_policies import POLICIES
from calibrant.core.packing import PackingError, pack
from calibrant.core.spec import PaneSpec
from calibrant.segmentation.case_tables import (
    COUNTS,
    RANGES,
    SEVERAL_UNITS,
    SUMS,
    Layout,
    case_tables,
    case_units,
    histogram_table,
)

MAX_CASES = 256
MAX_CELLS = 1 << 18
MAX_HALVINGS = 63
MAX_BINS = 1 << 20
OTHER = ""
_CASE_BYTES, _NOTES_BYTES, _NOTE_BYTES, _UNIT_BYTES = 280, 250, 150, 140
Source = tuple[str, str]


class Cases(Accumulator):
    """Blocks by case name. The name "" holds all cases beyond the bound together.

    Empty where cases are not named. A plain histogram of a class that names its case counts too, under its own policy and edges.
    Its Σ p² and Σ p y are computed as if each of its bins held one score.

    Attributes
    ----------
    blocks : case name to table
    halvings : how often the threshold was halved
    sources : case name to {(policy, edges) of plain histograms in it: greatest common divisor of their numbers of bins}
    units : case name to the hash of its unit, such as the patient, or `SEVERAL_UNITS`; without cases whose unit was not named
    """

    name = "cases"

    def __init__(self, spec: PaneSpec) -> None:
        super().__init__(spec)
        self.tables: dict[str, SparseBlock] = {}
        self.halvings = 0
        self.sources: dict[str, dict[Source, int]] = {}
        self.units: dict[str, int] = {}

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.keeps_all_classes

    @property
    def layout(self) -> Layout:
        return Layout.of_spec(self.spec)

    @classmethod
    def concerns(cls, batch: Batch) -> bool:
        return batch.cases is not None

    def zero(self) -> dict[str, Block]:
        return {}

    def ranges(self) -> dict[str, Ranges]:
        grid, n_classes = self.layout.grid, self.layout.n_classes
        lower = np.concatenate([np.tile(grid.lower, n_classes), np.zeros(n_classes)])
        upper = np.concatenate([np.tile(grid.upper, n_classes), np.ones(n_classes)])
        return dict.fromkeys(self.tables, Ranges(COUNTS, SUMS, RANGES, edges=(lower, upper)))

    def shares(self) -> dict[str, tuple[float, str]]:
        # Each prediction is on top of one class, and of any number of composites.
        first = self.layout.top_place(0)
        last = first + self.spec.n_classes
        filled = (block.filled() for block in self.tables.values())
        return {
            "predictions": (
                sum(
                    int(counts[0, (places >= first) & (places < last)].sum())
                    for places, counts, _ in filled
                ),
                "n_labelled",
            )
        }

    @property
    def names(self) -> list[str]:
        """Cases with a table of their own, in order."""
        return sorted(name for name in self.tables if name != OTHER)

    @property
    def n_cases(self) -> dict[str, int | bool]:
        """Number of cases: `n`, how many are `kept`, and whether `n` is `estimated` from them."""
        n_stored = len(self.names)
        return {"n": n_stored << self.halvings, "kept": n_stored, "estimated": self.halvings > 0}

    def fill(self, batch_sums: BatchSums) -> None:
        self._add(case_tables(batch_sums, self.layout), {}, 1)
        self._add_units(case_units(batch_sums.batch))

    def add_histogram(self, histogram: Histogram) -> None:
        """Add a class's plain histogram to its case, or subtract it if it is negated."""
        if histogram.kind != "class" or histogram.case is None:
            return
        sign = -1 if histogram.is_negated else 1
        table = histogram_table(histogram.negated() if sign < 0 else histogram, self.layout)
        sources = {histogram.case: {(histogram.policy, histogram.edges): histogram.bins}}
        self._add({histogram.case: table}, sources, sign)

    @property
    def is_empty(self) -> bool:
        return not self.tables

    @property
    def object_bytes(self) -> int:
        """Estimate of the bytes of its Python objects, with names and the sources of plain histograms."""
        noted = sum(len(held) for held in self.sources.values())
        names = sum(map(getsizeof, self.tables))
        known = _CASE_BYTES * len(self.tables) + _NOTES_BYTES * len(self.sources)
        known += _NOTE_BYTES * noted + _UNIT_BYTES * len(self.units)
        return super().object_bytes + names + known

    def merge(self, other: Accumulator) -> None:
        assert isinstance(other, Cases)
        self._lower(other.halvings)
        self._add(dict(other.tables), other.sources, 1)
        self._add_units(other.units)

    def subtract(self, other: Accumulator) -> None:
        """Subtract the other's tables. The threshold, and units and sources of the cases that remain, stay as they were."""
        assert isinstance(other, Cases)
        self._lower(other.halvings)
        self._add(dict(other.tables), other.sources, -1)

    def copy(self) -> Self:
        twin = type(self)(self.spec)
        twin.tables = {name: block.copy() for name, block in self.tables.items()}
        twin.blocks = dict(twin.tables)
        twin.halvings = self.halvings
        twin.sources = {name: dict(held) for name, held in self.sources.items()}
        twin.units = dict(self.units)
        return twin

    def pack(self) -> bytes:
        names = sorted(self.tables)
        filled = [self.tables[name].filled() for name in names]
        arrays: dict[str, NDArray[Any]] = {
            "lengths": np.array([len(places) for places, _, _ in filled], np.int64),
            "places": np.concatenate(
                [np.diff(places, prepend=0) for places, _, _ in filled] or [np.zeros(0, np.int64)]
            ),
        }
        for i, name in enumerate(COUNTS):
            arrays[name] = np.concatenate(
                [counts[i] for _, counts, _ in filled] or [np.zeros(0, np.int64)]
            )
        for i, name in enumerate(SUMS):
            arrays[name] = np.concatenate([sums[i] for _, _, sums in filled] or [np.zeros(0)])
        sources = [
            [[*key, bins] for key, bins in sorted(self.sources.get(name, {}).items())]
            for name in names
        ]
        about = {"names": names, "halvings": self.halvings, "sources": sources}
        if self.units:
            about["units"] = [self.units.get(name) for name in names]
        return pack(arrays, self._described() | about)

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        unpacked = cls(spec)
        arrays, about = cls._own_arrays(spec, data, unpacked._max_bytes_stored)
        try:
            unpacked._read(arrays, about)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PackingError(
                f"Received other bytes; expected tables of cases ({error})."
            ) from error
        return unpacked

    def _add(
        self, tables: dict[str, SparseBlock], sources: Mapping[str, Mapping[Source, int]], sign: int
    ) -> None:
        has_own_table = self._has_own_table(list(tables))
        for name, block in tables.items():
            self._put(name if has_own_table[name] else OTHER, block, sources.get(name, {}), sign)
        while len(self.tables) > MAX_CASES + (OTHER in self.tables) or self._n_cells > MAX_CELLS:
            self._lower(self.halvings + 1)
        self.blocks = dict(self.tables)

    def _add_units(self, units: Mapping[str, int]) -> None:
        """Note the units of cases that have a table of their own."""
        for name in units.keys() & self.tables.keys():
            unit = units[name]
            self.units[name] = unit if self.units.get(name, unit) == unit else SEVERAL_UNITS

    def _put(self, name: str, block: SparseBlock, sources: Mapping[Source, int], sign: int) -> None:
        own = self.tables.get(name)
        if own is None:
            own = self.tables[name] = SparseBlock(len(COUNTS), len(SUMS), self.layout.size)
        own.merge(block) if sign > 0 else own.subtract(block)
        if own.n_filled == 0:
            del self.tables[name]
            self.sources.pop(name, None)
            self.units.pop(name, None)
        elif sign > 0 and sources:
            own_sources = self.sources.setdefault(name, {})
            for key, bins in sources.items():
                own_sources[key] = math.gcd(bins, own_sources.get(key, 0))

    @property
    def _max_bytes_stored(self) -> int:
        """Maximum size of the arrays: the cells that cases may have, and the table that the rest share."""
        lengths = 8 * (MAX_CASES + 1)
        return lengths + 8 * (1 + len(COUNTS) + len(SUMS)) * (MAX_CELLS + self.layout.size)

    @property
    def _n_cells(self) -> int:
        """Filled cells of the cases' own tables."""
        return sum(block.n_filled for name, block in self.tables.items() if name != OTHER)

    def _has_own_table(self, names: list[str]) -> dict[str, bool]:
        """Return whether each case is below the threshold."""
        below = hash_names(names) <= np.uint64((1 << (64 - self.halvings)) - 1)
        return {
            name: bool(is_below) and name != OTHER
            for name, is_below in zip(names, below, strict=True)
        }

    def _lower(self, halvings: int) -> None:
        """Lower the threshold, and merge the tables of cases above it into the shared one."""
        if halvings <= self.halvings:
            return
        self.halvings = min(halvings, MAX_HALVINGS)
        for name, has_own_table in self._has_own_table(self.names).items():
            if not has_own_table:
                self.units.pop(name, None)
                self._put(OTHER, self.tables.pop(name), self.sources.pop(name, {}), 1)
        self.blocks = dict(self.tables)

    def _read(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        names, sources, self.halvings = about["names"], about["sources"], about["halvings"]
        if type(self.halvings) is not int or not 0 <= self.halvings <= MAX_HALVINGS:
            raise PackingError(f"Received a threshold outside 0 to {MAX_HALVINGS} halvings.")
        if not all(isinstance(name, str) for name in names) or names != sorted(set(names)):
            raise PackingError("Received names of cases that are repeated or not sorted.")
        lengths = arrays["lengths"]
        if lengths.dtype != np.int64 or lengths.shape != (len(names),) or (lengths < 1).any():
            raise PackingError("Received a case without cells; leave it out.")
        starts = np.concatenate([[0], np.cumsum(lengths)])
        for i, name in enumerate(names):
            columns = {
                key: column[starts[i] : starts[i + 1]]
                for key, column in arrays.items()
                if key != "lengths"
            }
            self.tables[name] = self._block(columns, int(lengths[i]))
        if any(len(column) != starts[-1] for key, column in arrays.items() if key != "lengths"):
            raise PackingError("Received more cells than the cases' lengths declare.")
        own = [name for name in names if name != OTHER]
        if (
            not all(self._has_own_table(own).values())
            or len(own) > MAX_CASES
            or self._n_cells > MAX_CELLS
        ):
            raise PackingError("Received more cases or cells than their threshold allows.")
        self.sources = {
            name: _sources_of(found) for name, found in zip(names, sources, strict=True) if found
        }
        self.units = _units_of(about.get("units"), names)
        self.blocks = dict(self.tables)

    def _block(self, columns: Mapping[str, NDArray[Any]], length: int) -> SparseBlock:
        named = {"0.places": columns["places"]}
        named |= {f"0.count{i}": columns[name] for i, name in enumerate(COUNTS)}
        named |= {f"0.sum{i}": columns[name] for i, name in enumerate(SUMS)}
        block = SparseBlock(len(COUNTS), len(SUMS), self.layout.size)
        block.read("0", named)
        if block.n_filled != length:
            raise PackingError("Received fewer cells of a case than its length declares.")
        return block


def _sources_of(found: Any) -> dict[Source, int]:
    sources = {(str(policy), str(edges)): bins for policy, edges, bins in found}
    if any(policy not in POLICIES or edges not in ("right", "left") for policy, edges in sources):
        raise PackingError("Received a histogram of an unknown label policy or edge convention.")
    if not all(type(bins) is int and 0 < bins <= MAX_BINS for bins in sources.values()):
        raise PackingError(f"Received a histogram with bins outside 1 to {MAX_BINS}.")
    return sources


def _units_of(units: Any, names: list[str]) -> dict[str, int]:
    found = [None] * len(names) if units is None else units
    named = {name: unit for name, unit in zip(names, found, strict=True) if unit is not None}
    if not all(type(unit) is int and 0 <= unit < 1 << 64 for unit in named.values()):
        raise PackingError("Received a case whose unit is no hash.")
    return named


ACCUMULATOR = Cases
