"""A table for each named case (image, study), for averages over cases, their box plots and reliability histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.named_tables import MAX_CELLS, NamedTables
from calibrant.accumulators.ranges import BlockColumns
from calibrant.accumulators.sparse import SparseBlock
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import Header
from calibrant.core.histogram import Histogram
from calibrant.core.label_policies import POLICIES
from calibrant.core.packing import PackingError
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

MAX_BINS = 1 << 20
_CASE_BYTES, _NOTES_BYTES, _NOTE_BYTES, _UNIT_BYTES = 280, 250, 150, 140
Source = tuple[str, str]


class Cases(NamedTables[SparseBlock]):
    """Blocks by case name, empty where cases are not named.

    A plain histogram of a class that names its case counts too, under its own policy and edges. Its Σ p² and Σ p y are computed as
    if each of its bins held one score.

    Attributes
    ----------
    sources : case name to {(policy, edges) of plain histograms in it: greatest common divisor of their numbers of bins}
    units : case name to the hash of its unit, such as the patient, or `SEVERAL_UNITS`; without cases whose unit was not named
    """

    name = "cases"
    max_cases = 256
    table_columns = COUNTS, SUMS

    def __init__(self, spec: PaneSpec) -> None:
        super().__init__(spec)
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

    def ranges(self) -> dict[str, BlockColumns]:
        grid, n_classes = self.layout.grid, self.layout.n_classes
        lower = np.concatenate([np.tile(grid.lower, n_classes), np.zeros(n_classes)])
        upper = np.concatenate([np.tile(grid.upper, n_classes), np.ones(n_classes)])
        columns = BlockColumns(COUNTS, RANGES, self.layout.size, edges=(lower, upper))
        return dict.fromkeys(self.tables, columns)

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
    def n_cases(self) -> dict[str, int | bool]:
        """Number of cases: `n`, how many are `kept`, and whether `n` is `estimated` from them."""
        n_stored = len(self.names)
        return {"n": n_stored << self.halvings, "kept": n_stored, "estimated": self.halvings > 0}

    def fill(self, batch_sums: BatchSums) -> None:
        self.add(case_tables(batch_sums, self.layout), 1)
        self._add_units(case_units(batch_sums.batch))

    def add_histogram(self, histogram: Histogram) -> None:
        """Add a class's plain histogram to its case, or subtract it if it is negated."""
        if histogram.kind != "class" or histogram.case is None:
            return
        sign = -1 if histogram.is_negated else 1
        table = histogram_table(histogram.negated() if sign < 0 else histogram, self.layout)
        if sign > 0:
            self._note({histogram.case: {(histogram.policy, histogram.edges): histogram.bins}})
        self.add({histogram.case: table}, sign)

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
        self._note(other.sources)
        super().merge(other)
        self._add_units(other.units)

    def copy(self) -> Self:
        twin = super().copy()
        twin.sources = {name: dict(held) for name, held in self.sources.items()}
        twin.units = dict(self.units)
        return twin

    def empty_table(self, level: int = 0) -> SparseBlock:
        return SparseBlock(len(COUNTS), len(SUMS), self.layout.size)

    def moved(self, name: str, to: str | None) -> None:
        self.units.pop(name, None)
        noted = self.sources.pop(name, {})
        if to is not None and noted:
            self._note({to: noted})

    def packed_notes(self, names: Sequence[str]) -> Header:
        sources = [
            [[*key, bins] for key, bins in sorted(self.sources.get(name, {}).items())]
            for name in names
        ]
        if not self.units:
            return {"sources": sources}
        return {"sources": sources, "units": [self.units.get(name) for name in names]}

    def read(self, arrays: Mapping[str, NDArray[Any]], about: Header) -> None:
        super().read(arrays, about)
        noted = zip(about["names"], about["sources"], strict=True)
        self.sources = {name: _sources_of(found) for name, found in noted if found}
        self.units = _units_of(about.get("units"), about["names"])

    @property
    def max_bytes_stored(self) -> int:
        lengths = 8 * (self.max_cases + 1)
        return lengths + 8 * (1 + len(COUNTS) + len(SUMS)) * (MAX_CELLS + self.layout.size)

    def _add_units(self, units: Mapping[str, int]) -> None:
        """Note the units of cases that have a table of their own."""
        for name in units.keys() & self.tables.keys():
            unit = units[name]
            self.units[name] = unit if self.units.get(name, unit) == unit else SEVERAL_UNITS

    def _note(self, sources: Mapping[str, Mapping[Source, int]]) -> None:
        """Note plain histograms of cases."""
        for name, to in self.places_of(sources).items():
            own = self.sources.setdefault(to, {})
            for key, bins in sources[name].items():
                own[key] = math.gcd(bins, own.get(key, 0))


def _sources_of(found: Any) -> dict[Source, int]:
    sources = {(str(policy), str(edges)): bins for policy, edges, bins in found}
    if any(policy not in POLICIES or edges not in ("right", "left") for policy, edges in sources):
        raise PackingError("Received a histogram of an unknown label policy or edge convention.")
    if not all(type(bins) is int and 0 < bins <= MAX_BINS for bins in sources.values()):
        raise PackingError(f"Received a histogram with bins outside 1 to {MAX_BINS}.")
    return sources


def _units_of(units: Any, names: Sequence[str]) -> dict[str, int]:
    found = [None] * len(names) if units is None else units
    named = {name: unit for name, unit in zip(names, found, strict=True) if unit is not None}
    if not all(type(unit) is int and 0 <= unit < 1 << 64 for unit in named.values()):
        raise PackingError("Received a case whose unit is no hash.")
    return named


ACCUMULATOR = Cases
