"""Tables of named cases, as many as fit.

The number of cases and of filled cells is bounded. Beyond the bound, cases are chosen by the hash of their names as units are
in `unit_sample`: those below a threshold have tables of their own, and the rest share one, so that totals over all predictions
stay exact. The threshold is halved until the chosen ones fit, and never rises. The choice depends only on the names, so panes
merge in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.sparse import SparseBlock
from calibrant.core.documents import Header
from calibrant.core.hashing import hash_names
from calibrant.core.packing import PackingError, pack
from calibrant.core.spec import PaneSpec

MAX_CELLS = 1 << 18
MAX_HALVINGS = 63
OTHER = ""
Table = TypeVar("Table", bound=SparseBlock)


class NamedTables(Accumulator, Generic[Table]):
    """Sparse tables by case name. The name "" has all cases beyond the bound together.

    Attributes
    ----------
    max_cases : number of cases with a table of their own, at most
    table_columns : names of a table's counts and of its sums
    tables : case name to table
    halvings : how often the threshold was halved
    """

    max_cases: ClassVar[int]
    table_columns: ClassVar[tuple[Sequence[str], Sequence[str]]]

    def __init__(self, spec: PaneSpec) -> None:
        self.tables: dict[str, Table] = {}
        self.halvings = 0
        super().__init__(spec)

    @property
    def names(self) -> list[str]:
        """Cases with a table of their own, in order."""
        return sorted(name for name in self.tables if name != OTHER)

    def merge(self, other: Accumulator) -> None:
        self._take(other, 1)

    def subtract(self, other: Accumulator) -> None:
        """Subtract the other's tables. The threshold stays as it was."""
        self._take(other, -1)

    def copy(self) -> Self:
        twin = type(self)(self.spec)
        tables: dict[str, Any] = {name: table.copy() for name, table in self.tables.items()}
        twin.tables = tables
        twin.halvings = self.halvings
        twin.name_blocks()
        return twin

    def pack(self) -> bytes:
        names = sorted(self.tables)
        about = self._described() | {"names": names, "halvings": self.halvings}
        return pack(self.packed_arrays(names), about | self.packed_notes(names))

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        unpacked = cls(spec)
        arrays, about = cls._own_arrays(spec, data, unpacked.max_bytes_stored)
        try:
            unpacked.read(arrays, about)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            detail = f"Received other bytes; expected the tables of {cls.name} ({error})."
            raise PackingError(detail) from error
        return unpacked

    def empty_table(self, level: int = 0) -> Table:
        """Return a table without cells; `level` is of tables whose cells merge."""
        raise NotImplementedError(f"{type(self).__name__} must return an empty table")

    def name_blocks(self) -> None:
        """Name the tables as blocks."""
        self.blocks = dict(self.tables)

    def fit(self, table: Table) -> None:
        """Make a table that grew as small as it must be."""

    def moved(self, name: str, to: str | None) -> None:
        """Move what is noted of a case to another name; None where its table is empty."""

    def packed_notes(self, names: Sequence[str]) -> Header:
        """Return what is noted of the cases, for packing."""
        return {}

    @property
    def max_bytes_stored(self) -> int:
        """Maximum size of the packed arrays: the cells that cases may have, and the table that the rest share."""
        raise NotImplementedError(f"{type(self).__name__} must bound its arrays")

    def packed_arrays(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the tables' columns, one table after the other."""
        filled = [self.tables[name].filled() for name in names]
        counts, sums = self.table_columns
        arrays = {
            "lengths": np.array([len(places) for places, _, _ in filled], np.int64),
            "places": _joined([np.diff(places, prepend=0) for places, _, _ in filled], np.int64),
        }
        for i, name in enumerate(counts):
            arrays[name] = _joined([each[i] for _, each, _ in filled], np.int64)
        for i, name in enumerate(sums):
            arrays[name] = _joined([each[i] for _, _, each in filled], np.float64)
        return arrays

    def read(self, arrays: Mapping[str, NDArray[Any]], about: Header) -> None:
        """Read what `pack` wrote.

        Raises
        ------
        PackingError, KeyError, TypeError, ValueError, AttributeError
            The arrays are no such tables.
        """
        names, self.halvings, lengths = about["names"], about["halvings"], arrays["lengths"]
        if type(self.halvings) is not int or not 0 <= self.halvings <= MAX_HALVINGS:
            raise PackingError(f"Received a threshold outside 0 to {MAX_HALVINGS} halvings.")
        if not all(isinstance(name, str) for name in names) or names != sorted(set(names)):
            raise PackingError("Received names of cases that are repeated or not sorted.")
        if lengths.dtype != np.int64 or lengths.shape != (len(names),) or (lengths < 1).any():
            raise PackingError("Received a case without cells; leave it out.")
        counts, sums = self.table_columns
        columns = {"0.places": arrays["places"]}
        columns |= {f"0.count{i}": arrays[name] for i, name in enumerate(counts)}
        columns |= {f"0.sum{i}": arrays[name] for i, name in enumerate(sums)}
        if any(len(column) != lengths.sum() for column in columns.values()):
            raise PackingError("Received another number of cells than the lengths declare.")
        levels, ends = self.read_levels(arrays, len(names)), np.cumsum(lengths)
        for name, level, length, end in zip(names, levels, lengths, ends, strict=True):
            table = self.empty_table(level)
            table.read("0", {key: each[end - length : end] for key, each in columns.items()})
            self.tables[name] = table
        if OTHER in self.places_of(self.names).values() or self._is_beyond_bound:
            raise PackingError("Received more cases or cells than their threshold allows.")
        self.name_blocks()

    def read_levels(self, arrays: Mapping[str, NDArray[Any]], n: int) -> Sequence[int]:
        """Return the level of each table."""
        return [0] * n

    def add(self, tables: Mapping[str, Table], sign: int) -> None:
        """Add tables, or subtract them."""
        for name, to in self.places_of(tables).items():
            self._put(to, tables[name], sign)
        while self._is_beyond_bound:
            self._lower(self.halvings + 1)
        self.name_blocks()

    def places_of(self, names: Iterable[str]) -> dict[str, str]:
        """Return the name under which each case is stored: its own below the threshold."""
        given = list(names)
        own = hash_names(given) <= np.uint64((1 << (64 - self.halvings)) - 1)
        return {name: name if is_own else OTHER for name, is_own in zip(given, own, strict=True)}

    def _take(self, other: Accumulator, sign: int) -> None:
        assert isinstance(other, type(self))
        self._lower(other.halvings)
        self.add(dict(other.tables), sign)

    def _put(self, name: str, table: Table, sign: int) -> None:
        own = self.tables.setdefault(name, self.empty_table())
        own.merge(table) if sign > 0 else own.subtract(table)
        self.fit(own)
        if own.n_filled == 0:
            del self.tables[name]
            self.moved(name, None)

    @property
    def _is_beyond_bound(self) -> bool:
        own = self.names
        n_cells = sum(self.tables[name].n_filled for name in own)
        return len(own) > self.max_cases or n_cells > MAX_CELLS

    def _lower(self, halvings: int) -> None:
        """Lower the threshold, and merge the tables of cases above it into the shared one."""
        if halvings <= self.halvings:
            return
        self.halvings = min(halvings, MAX_HALVINGS)
        for name, to in self.places_of(self.names).items():
            if to == OTHER:
                table = self.tables.pop(name)
                self.moved(name, OTHER)
                self._put(OTHER, table, 1)
        self.name_blocks()


def _joined(columns: list[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(columns) if columns else np.zeros(0, kind)
