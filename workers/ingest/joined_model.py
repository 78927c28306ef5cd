"""Join of the facts of one model in a group: its changed records and units, and what time slices lose and gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.hashing import hash_names
from calibrant.core.routing import MICROSECONDS
from calibrant_server.workers.join.facts import EntryFacts, Facts
from calibrant_server.workers.join.join import EMPTY, join
from calibrant_server.workers.join.predictions import Predictions
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.join.row_names import RowNames
from calibrant_server.workers.segments.ragged import Ints, starts_of
from calibrant_server.workers.segments.row_columns import (
    RATING,
    SOURCES,
    Codes,
    NameTable,
    fixed_of,
    ratings_table,
)
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks

_ID, _CASE, _UNIT = (SOURCES.index(name) for name in ("id", "case", "unit"))


def rows_of_predictions(ids: Sequence[str], predictions: Predictions, task: str) -> Rows:
    """Return retained predictions as rows without labels, of batch 0."""
    fixed, names, weights = fixed_of(len(ids)), predictions.names, predictions.weights
    fixed["hash"] = fixed["unit_hash"] = hash_names(ids)
    fixed["weight"] = np.where(np.isnan(weights), 1.0, weights)
    fixed["source"], fixed["is_logits"] = _ID, predictions.is_logits
    fixed["edge_rule"] = predictions.edge_rules
    _put_units(fixed, names)
    table = NameTable()
    fixed["case"] = _codes_of(names, table)
    keys, slices = _slices(names, table)
    ratings = np.zeros(0, RATING)
    return Rows(task, fixed, predictions.scores, ratings, keys, slices, table.names)


def labelled_rows(rows: Rows, records: Records, chosen: Ints, sign: int) -> Rows:
    """Return rows of predictions with the labels of their records, all of one sign.

    Parameters
    ----------
    chosen : place of the record of each row
    """
    counts, delays = records.ratings_by_class(chosen), records.delay[chosen]
    labelled = rows.with_columns(
        count=sign,
        delay=np.where(delays < 0, UNKNOWN, delays),
        n_ratings=np.bincount(counts.row, minlength=len(rows)),
    )
    return replace(labelled, ratings=ratings_table(counts.class_index, counts.n))


def _put_units(fixed: NDArray[np.void], names: RowNames) -> None:
    """Write hash and source of the unit of each row that shares one."""
    if names.texts:
        own = np.flatnonzero(names.group >= 0)
        fixed["unit_hash"][own] = hash_names(names.texts)[names.group[own]]
        fixed["source"][own] = np.where(names.unit[own] >= 0, _UNIT, _CASE)


def _codes_of(names: RowNames, table: NameTable) -> Codes:
    """Return the place of each row's case in a table of names."""
    lookup = np.full(len(names.texts) + 1, -1, np.int32)
    some = np.unique(names.case[names.case >= 0])
    lookup[some] = table.codes([names.texts[place] for place in some.tolist()])
    return lookup[names.case]


def _slices(names: RowNames, table: NameTable) -> tuple[tuple[str, ...], Codes]:
    """Return the keys of slices and the places of their values, int32 (n, n_keys)."""
    given = [dict(pairs) for pairs in names.slice_sets]
    keys = tuple(sorted({key for each in given for key in each}))
    codes = np.full((len(given), len(keys)), -1, np.int32)
    for k, key in enumerate(keys):
        codes[:, k] = table.codes(each.get(key) for each in given)
    return keys, codes[names.slices]


Group = tuple[int, str]
Mask = NDArray[np.bool_]


class StoredRecords(Protocol):
    """Records of one model, and members of its units, as stored."""

    config: ModelConfig
    marks: Watermarks

    @property
    def kept_from_us(self) -> int: ...

    def stored(self, names: Sequence[str]) -> list[bytes | None]: ...

    def unit_members(self, groups: list[Group]) -> dict[Group, list[str]]: ...


@dataclass(frozen=True)
class ChangedRows:
    """Rows that a time slice loses and gains: all rows of each unit that changed."""

    config: ModelConfig
    start_s: int
    lost: Rows | None
    gained: Rows | None

    def check(self, fill_if_doubtful: Callable[[Rows, ModelConfig], None]) -> None:
        """Find an error in the new rows before they are stored."""
        if self.gained is not None:
            fill_if_doubtful(self.gained, self.config)

    def rows(self, part: int) -> list[Rows]:
        """Return the rows that it takes away and adds, as batches of the tail numbered from `part`."""
        found = [rows for rows in (self.lost, self.gained) if rows is not None]
        return [rows.of_part(part + i) for i, rows in enumerate(found)]


class JoinedModel:
    """Records before and after some entries, the rows that change, and the members of units.

    Attributes
    ----------
    ids : of the facts, each once
    stored : bytes of their records before, None of ids without one
    is_known : bool (n,), which have a record
    """

    def __init__(self, source: StoredRecords, entries: Sequence[EntryFacts]) -> None:
        self.config = source.config
        self.marks = source.marks
        self.entries = entries
        self._source = source
        self.facts = Facts.together(entries)
        self.ids = self.facts.ids
        self.stored = source.stored(self.ids)
        self.is_known = np.fromiter(
            (each is not None for each in self.stored), np.bool_, len(self.ids)
        )
        before = Records.read([each or EMPTY for each in self.stored])
        self.joined = join(self.facts, before, self.is_known, source.kept_from_us)

    @property
    def before(self) -> Records:
        """Records before the entries."""
        return self.joined.before

    @property
    def after(self) -> Records:
        """Records after the entries."""
        return self.joined.after

    @cached_property
    def changed(self) -> Ints:
        """Places of the records that differ from the store's."""
        return np.flatnonzero(self.joined.is_changed)

    @cached_property
    def written(self) -> list[bytes]:
        """Stored bytes of the changed records."""
        records = self.after.write()
        return [records[i] for i in self.changed.tolist()]

    @cached_property
    def place(self) -> Ints:
        """Place of each id's prediction in `after.predictions`, also of a deleted one; -1 without one."""
        return np.where(self.before.prediction >= 0, self.before.prediction, self.after.prediction)

    @cached_property
    def units(self) -> dict[Group, list[str]]:
        """Changed ids of units of several rows, by time slice and unit."""
        return self._changed_units[1]

    @cached_property
    def members_before(self) -> dict[Group, list[str]]:
        """Stored members of these units."""
        return self._source.unit_members(list(self.units))

    @cached_property
    def members(self) -> dict[Group, list[str]]:
        """Members of these units from now on."""
        return {
            key: _together(self.members_before.get(key, []), names)
            for key, names in self.units.items()
        }

    @cached_property
    def _changed_units(self) -> tuple[Ints, dict[Group, list[str]]]:
        """Places of changed ids that are units of their own, and the ids of the others by unit.

        A pane before the retention is deleted and its records will be: nothing is subtracted from it any more.
        """
        some = self.changed[self.place[self.changed] >= 0]
        predictions = self.after.predictions.take(self.place[some])
        kept = predictions.event_us >= self._source.kept_from_us
        starts = self._starts(predictions.event_us)
        names = predictions.take(np.flatnonzero(kept)).names
        some, starts, own = some[kept], starts[kept], names.group < 0
        return some[own], self._ids_by_unit(
            some[~own], starts[~own], names.take(np.flatnonzero(~own))
        )

    def _ids_by_unit(self, some: Ints, starts: Ints, names: RowNames) -> dict[Group, list[str]]:
        """Return ids by time slice and unit, in the order in which the units come."""
        slice_of = np.unique(starts, return_inverse=True)[1]
        key = (slice_of * len(names.texts) + names.group) * 2 + (names.unit >= 0)
        _, first, unit = np.unique(key, return_index=True, return_inverse=True)
        in_turn = np.argsort(first)
        n_ids, first = np.bincount(unit, minlength=len(first))[in_turn], first[in_turn]
        order = np.argsort(np.argsort(in_turn)[unit], kind="stable")
        ids = [self.ids[i] for i in some[order].tolist()]
        units = zip(starts[first].tolist(), names.take(first).groups(), strict=True)
        begins = starts_of(n_ids)
        places = zip(units, begins.tolist(), (begins + n_ids).tolist(), strict=True)
        return {(start, str(group)): ids[at:end] for (start, group), at, end in places}

    def _starts(self, event_us: Ints) -> Ints:
        pane_s = self.config.pane_s
        starts: Ints = event_us // (pane_s * MICROSECONDS) * pane_s
        return starts

    def changes(self) -> Iterator[ChangedRows]:
        """Yield old and new rows of every unit that changed, by time slice."""
        place = dict(zip(self.ids, range(len(self.ids)), strict=True)) if self.units else {}
        members = dict.fromkeys(name for names in self.members.values() for name in names)
        grouped = np.array([place[name] for name in members if name in place], np.int64)
        parts = [self._changed(np.concatenate([self._changed_units[0], grouped]))]
        others = [name for name in members if name not in place]
        if others:
            parts.append(self._unchanged(others))
        sides = [_Side.together([each[k] for each in parts]) for k in range(2)]
        for start in sorted({start for side in sides for start in side.starts.tolist()}):
            yield ChangedRows(self.config, start, *(side.rows_at(start) for side in sides))

    def _changed(self, chosen: Ints) -> tuple[_Side, _Side]:
        """Return the old and the new rows of records of this group."""
        predictions = self.after.predictions.take(self.place[chosen])
        names = [self.ids[i] for i in chosen.tolist()]
        return self._sides(names, predictions, (self.before, self.after), chosen)

    def _unchanged(self, ids: Sequence[str]) -> tuple[_Side, _Side]:
        """Return the old and the new rows of other records of changed units: only their share differs."""
        records = Records.read([each or EMPTY for each in self._source.stored(ids)])
        chosen = np.flatnonzero(records.counts_in_pane)
        predictions = records.predictions.take(records.prediction[chosen])
        names = [ids[i] for i in chosen.tolist()]
        return self._sides(names, predictions, (records, records), chosen)

    def _sides(
        self,
        ids: Sequence[str],
        predictions: Predictions,
        records: tuple[Records, Records],
        chosen: Ints,
    ) -> tuple[_Side, _Side]:
        rows = rows_of_predictions(ids, predictions, self.config.task)
        starts = self._starts(predictions.event_us)
        found = []
        for each, sign in zip(records, (-1, 1), strict=True):
            own = each.counts_in_pane[chosen]
            labelled = labelled_rows(rows.where(own), each, chosen[own], sign)
            found.append(_Side(labelled, starts[own]))
        return found[0], found[1]

    def newly_predicted(self) -> dict[int, list[str]]:
        """Return the ids that have newly received their prediction, by the start of their pane, if it is not sealed."""
        after = self.after
        new = np.flatnonzero(
            self.joined.is_changed & ~self.before.has_prediction & after.has_prediction
        )
        return self._ids_by_start(new, self.marks.sealed_to)

    @property
    def n_erased(self) -> int:
        """Number of ids that are newly deleted."""
        new = self.joined.is_changed & self.after.is_deleted & ~self.before.is_deleted
        return int(np.count_nonzero(new))

    @property
    def has_raters(self) -> bool:
        """Whether a changed record has ratings of named raters."""
        return bool(self.joined.is_changed[self.after.ratings.row].any())

    def erased(self) -> dict[int, list[str]]:
        """Return the ids whose prediction was deleted, by the start of their time slice."""
        new = self.joined.is_changed & self.after.is_deleted & self.before.has_prediction
        return self._ids_by_start(np.flatnonzero(new), None)

    def _ids_by_start(self, chosen: Ints, least: int | None) -> dict[int, list[str]]:
        starts = self._starts(self.after.predictions.event_us[self.place[chosen]])
        found: dict[int, list[str]] = {}
        for i, start in zip(chosen.tolist(), starts.tolist(), strict=True):
            if least is None or start >= least:
                found.setdefault(start, []).append(self.ids[i])
        return found


def _together(before: list[str], names: list[str]) -> list[str]:
    """Return different ids with those of `names` that are not among them."""
    known = set(before)
    more = [name for name in names if name not in known]
    return before + more if more else before


@dataclass(frozen=True, eq=False)
class _Side:
    """Old or new rows, and the start of the time slice of each."""

    rows: Rows
    starts: Ints

    @classmethod
    def together(cls, parts: Sequence[_Side]) -> _Side:
        parts = [each for each in parts if len(each.rows)] or parts[:1]
        rows = Rows.together([each.rows for each in parts])
        return cls(rows, np.concatenate([each.starts for each in parts]))

    def rows_at(self, start: int) -> Rows | None:
        """Return the rows of a time slice, None without any."""
        own = self.starts == start
        return self.rows.where(own) if own.any() else None
