"""Join of predictions and labels by id: how entries change the retained records, and so the panes.

A run of entries is applied to the records in memory. Then, for every changed unit, all of its old rows are subtracted from
the panes and all of its new rows are added. A unit's rows share one weight, so they change together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from calibrant.accumulators.delays import delay_bin
from calibrant.core.batch import Batch
from calibrant.core.routing import ALL_ROWS, MICROSECONDS, pane_start
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.changed_rows import ChangedRows, panes_of_records
from calibrant_server.workers.ingest.first_labels import first_labels
from calibrant_server.workers.ingest.first_predictions import can_be_joined, first_predictions
from calibrant_server.workers.ingest.joined_records import JoinedColumns
from calibrant_server.workers.ingest.payloads import PlainLabels, SentLabels
from calibrant_server.workers.ingest.retained_record import (
    CONFLICT,
    DUPLICATE,
    EXPIRED,
    FULL,
    GONE,
    NEW,
    REVISED,
    STALE,
    RetainedRecord,
)
from calibrant_server.workers.ingest.retained_rows import rows_of
from calibrant_server.workers.ingest.row_outcomes import RowOutcomes
from calibrant_server.workers.ingest.waiting_labels import waiting_labels
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks

Group = tuple[int, str]


class Records(Protocol):
    """Reader of retained records and of the members of units."""

    def records(self, config: ModelConfig, names: list[str]) -> dict[str, RetainedRecord]:
        """Return the records of some ids; ids without a record are omitted."""

    def packed(self, config: ModelConfig, names: list[str]) -> dict[str, bytes]:
        """Return the stored bytes of the same."""

    def unit_members(self, config: ModelConfig, groups: list[Group]) -> dict[Group, list[str]]:
        """Return the ids of each unit of a pane."""

    def marks(self, config: ModelConfig) -> Watermarks:
        """Return how far the model's panes are dropped and sealed."""


class NoRecords:
    """Reader without records: for a trial of an entry where the store must not be reached."""

    def records(self, config: ModelConfig, names: list[str]) -> dict[str, RetainedRecord]:
        return {}

    def packed(self, config: ModelConfig, names: list[str]) -> dict[str, bytes]:
        return {}

    def unit_members(self, config: ModelConfig, groups: list[Group]) -> dict[Group, list[str]]:
        return {}

    def marks(self, config: ModelConfig) -> Watermarks:
        return Watermarks()


@dataclass
class ModelJoin:
    """The changed records of one model in a run.

    Attributes
    ----------
    before, after : records that are joined one by one
    columns : those that are joined by columns
    """

    config: ModelConfig
    before: dict[str, RetainedRecord | None] = field(default_factory=dict)
    after: dict[str, RetainedRecord] = field(default_factory=dict)
    unit_members: dict[Group, list[str]] = field(default_factory=dict)
    unit_members_before: dict[Group, list[str]] = field(default_factory=dict)
    marks: Watermarks = field(default_factory=Watermarks)
    columns: JoinedColumns = field(default_factory=JoinedColumns)

    @property
    def kept_from(self) -> int:
        """Limit in seconds: panes that began earlier have outlived their retention."""
        return self.marks.kept_from

    @property
    def kept_from_us(self) -> int:
        """Limit of event times in microseconds: the panes of earlier ones have outlived their retention."""
        return -(-self.kept_from // self.config.pane_s) * self.config.pane_s * MICROSECONDS

    def changed(self) -> dict[str, RetainedRecord]:
        """Return the records that differ from the store's."""
        return {
            name: record for name, record in self.after.items() if record is not self.before[name]
        }

    def joined(self) -> dict[int, list[str]]:
        """Return the ids that have newly received their prediction, by the start of their pane, if it is not sealed."""
        found: dict[int, list[str]] = {}
        for name, record in self.changed().items():
            before = self.before[name]
            if record.prediction is None or (before is not None and before.prediction is not None):
                continue
            start = pane_start(record.prediction.event_us, self.config.pane_s)
            if start >= self.marks.sealed_to:
                found.setdefault(start, []).append(name)
        for start, names in self.columns.predicted(self.config.pane_s):
            if start >= self.marks.sealed_to:
                found.setdefault(start, []).extend(names)
        return found

    def new_places(self, ids: Sequence[str]) -> list[int] | None:
        """Return the places of the ids that no entry of the run has changed; None if an id is repeated."""
        distinct = set(ids)
        if len(distinct) < len(ids):
            return None
        if distinct.isdisjoint(self.before) and not self.columns.has_any(distinct):
            return list(range(len(ids)))
        return [
            i for i, name in enumerate(ids) if name not in self.before and name not in self.columns
        ]


class LabelJoin:
    """Join of entries with retained records; computes what panes lose and gain.

    Parameters
    ----------
    by_columns : join by columns what can be. A mark does not cover these
    """

    def __init__(self, records: Records, by_columns: bool = False):
        self._records = records
        self._by_columns = by_columns
        self.models: dict[tuple[str, str], ModelJoin] = {}

    def mark(self) -> dict[tuple[str, str], dict[str, RetainedRecord]]:
        """Return a mark of the current records, for `back` if an entry fails half way."""
        return {key: dict(model.after) for key, model in self.models.items()}

    def back(self, mark: dict[tuple[str, str], dict[str, RetainedRecord]]) -> None:
        """Undo all changes since the mark."""
        for key, model in self.models.items():
            model.after = mark.get(key, {})

    def touched_since(
        self, mark: Mapping[tuple[str, str], Mapping[str, RetainedRecord]]
    ) -> set[PaneKey]:
        """Return the panes of the predictions whose records have changed since the mark."""
        touched: set[PaneKey] = set()
        for key, model in self.models.items():
            earlier, changed = mark.get(key, {}), []
            for name, record in model.after.items():
                before = earlier.get(name) or model.before[name]
                if record is not before:
                    changed += [record] if before is None else [before, record]
            touched |= panes_of_records(model.config, changed)
        return touched

    def predictions(
        self, config: ModelConfig, batch: Batch, received_ms: int, sent: Batch | None = None
    ) -> RowOutcomes:
        """Apply a batch that carries ids; `sent` is the batch as the client sent it, where slices were renamed."""
        left: Sequence[int] = range(batch.n)
        if self._by_columns and isinstance(batch, Batch):
            left = self._predict_first(config, batch, received_ms)
        if len(left) == batch.n:
            return self._predictions(config, batch, left, received_ms, sent)
        rows = np.array(left, np.int64)
        outcomes = RowOutcomes()
        if left:
            # A batch with other slices than were sent has no rows that are joined by columns.
            outcomes = self._predictions(config, batch.take(rows), left, received_ms)
        outcomes.n += batch.n - len(left)
        return outcomes

    def _predictions(
        self,
        config: ModelConfig,
        batch: Batch,
        places: Sequence[int],
        received_ms: int,
        sent: Batch | None = None,
    ) -> RowOutcomes:
        """Apply a batch row by row; `places` are the numbers of its rows in the entry."""
        names = _ids_of(batch)
        model, outcomes = self._model(config, names), RowOutcomes()
        predictions, ratings = rows_of(batch, received_ms * 1000, sent)
        delays = _delays(received_ms, [each.event_us for each in predictions])
        for i, name, prediction, unnamed, delay in zip(
            places, names, predictions, ratings, delays, strict=True
        ):
            if pane_start(prediction.event_us, config.pane_s) < model.kept_from:
                outcomes.note("ids", i, EXPIRED)
                continue
            known = self._record(model, name, received_ms)
            if known.is_labelled:
                # Labels that waited arrived when the id was first received.
                delay = _delays(known.since_s * 1000, [prediction.event_us])[0]
            record, result = known.predicted(prediction, unnamed)
            model.after[name] = record.timed(delay)
            outcomes.note("ids", i, result)
        return outcomes

    def _predict_first(self, config: ModelConfig, batch: Batch, received_ms: int) -> Sequence[int]:
        """Join the rows that are the first prediction of their id; return the places of the others."""
        model, ids = self._model(config, []), _ids_of(batch)
        places = model.new_places(ids)
        if not places or not can_be_joined(batch):
            return range(batch.n)
        own = ids if len(places) == len(ids) else [ids[i] for i in places]
        some = batch if own is ids else batch.take(np.array(places))
        packed = self._records.packed(config, own)
        joined, left = first_predictions(some, packed, received_ms, model.kept_from_us)
        if joined is not None:
            model.columns.append(joined)
        return self._left(model, ids, places, left, packed)

    @staticmethod
    def _left(
        model: ModelJoin,
        ids: Sequence[str],
        places: Sequence[int],
        left: Sequence[int],
        packed: Mapping[str, bytes],
    ) -> Sequence[int]:
        """Return the places of an entry's rows that are not joined by columns, and keep their records that were read.

        Parameters
        ----------
        places : rows whose records were read
        left : which of these are not joined by columns
        """
        others = [places[i] for i in left]
        for i in others:
            data = packed.get(ids[i])
            model.before[ids[i]] = None if data is None else RetainedRecord.unpack(data)
        if len(places) == len(ids):
            return others
        return sorted({*range(len(ids))} - {*places} | {*others})

    def new_rows(self, config: ModelConfig, batch: Batch, received_ms: int) -> list[bool]:
        """Which rows of a batch that carries ids would count: no prediction of the id came before, nor its deletion."""
        names = _ids_of(batch)
        model = self._model(config, names)
        times = (
            [received_ms * 1000] * batch.n
            if batch.event_times is None
            else batch.event_times.tolist()
        )
        known = (self._record(model, name, received_ms) for name in names)
        return [
            record.prediction is None
            and not record.deleted
            and pane_start(at_us, config.pane_s) >= model.kept_from
            for record, at_us in zip(known, times, strict=True)
        ]

    def labels(
        self, config: ModelConfig, rows: Sequence[LabelRow], received_ms: int, order: int
    ) -> RowOutcomes:
        """Apply labels; `order` grows along the stream."""
        return self._labels(config, rows, range(len(rows)), received_ms, order)

    def sent_labels(
        self, config: ModelConfig, sent: SentLabels, received_ms: int, order: int
    ) -> RowOutcomes:
        """Apply the labels of an entry: by columns those that can be, the others row by row."""
        plain = sent.plain if self._by_columns else None
        left: Sequence[int] = range(len(sent))
        n_waiting = 0
        if plain is not None:
            left, n_waiting = self._join_first(config, plain, received_ms)
        outcomes = self._labels(config, sent.rows(left), left, received_ms, order)
        n_by_columns = len(sent) - len(left)
        outcomes.n += n_by_columns
        outcomes.count_labels(n_by_columns - n_waiting, n_waiting)
        return outcomes

    def _labels(
        self,
        config: ModelConfig,
        rows: Sequence[LabelRow],
        places: Sequence[int],
        received_ms: int,
        order: int,
    ) -> RowOutcomes:
        """Apply labels row by row; `places` are their numbers in the entry."""
        model, outcomes = self._model(config, [row.id for row in rows]), RowOutcomes()
        known = [model.after.get(row.id) or model.before[row.id] for row in rows]
        sent = [None if each is None else each.prediction for each in known]
        delays = _delays(received_ms, [0 if each is None else each.event_us for each in sent])
        new = RetainedRecord(received_ms // 1000)
        for i, row, delay, earlier in zip(places, rows, delays, known, strict=True):
            record, results = model.after.get(row.id) or earlier or new, []
            if row.unnamed:
                record, result = record.with_unnamed(row.unnamed)
                results.append(result)
            for rater, class_index, revision in row.ratings:
                record, result = record.rated(rater, class_index, revision, order)
                results.append(result)
            model.after[row.id] = record.timed(delay)
            worst = _worst(results)
            outcomes.note("revision" if worst == REVISED else "ids", i, worst)
            if worst in (NEW, DUPLICATE, STALE):
                has_prediction = record.prediction is not None
                outcomes.count_labels(int(has_prediction), int(not has_prediction))
        return outcomes

    def _join_first(
        self, config: ModelConfig, plain: PlainLabels, received_ms: int
    ) -> tuple[Sequence[int], int]:
        """Join the rows that are the first labels of their id; return the places of the others, and how many wait."""
        model, ids, n_waiting = self._model(config, []), plain.ids, 0
        places = model.new_places(ids)
        if not places:
            return range(len(ids)), 0
        some = plain if len(places) == len(ids) else plain.take(places)
        packed = self._records.packed(config, some.ids)
        left: Sequence[int] = range(len(places))
        if packed:
            joined, left = first_labels(config, some, packed, received_ms, model.kept_from_us)
            for each in joined:
                model.columns.append(each)
        absent = [i for i in left if some.ids[i] not in packed]
        if absent:
            waiting, unstorable = waiting_labels(some.take(absent), received_ms)
            model.columns.append(waiting)
            n_waiting = len(absent) - len(unstorable)
            known = {*left} - {*absent}
            left = sorted(known | {absent[i] for i in unstorable})
        return self._left(model, ids, places, left, packed), n_waiting

    def deletion(self, config: ModelConfig, name: str, received_ms: int) -> RowOutcomes:
        """Take one prediction out."""
        model = self._model(config, [name])
        outcomes = RowOutcomes()
        model.after[name], result = self._record(model, name, received_ms).removed()
        outcomes.note("id", None, result)
        return outcomes

    def changes(self) -> dict[PaneKey, ChangedRows]:
        """Return the old and new rows of every unit that changed, by the pane of all rows of their time slice."""
        return {
            PaneKey(model.config.key, model.config.generation, ALL_ROWS, start): change
            for model in self.models.values()
            for start, change in self._rows_by_start(model).items()
        }

    def erased(self) -> dict[PaneKey, tuple[list[str], ModelConfig]]:
        """Return the ids whose prediction was deleted, by the pane of all rows of their time slice."""
        found: dict[PaneKey, tuple[list[str], ModelConfig]] = {}
        for model in self.models.values():
            config = model.config
            for name, record in model.changed().items():
                before = model.before[name]
                if not record.deleted or before is None or before.prediction is None:
                    continue
                start = pane_start(before.prediction.event_us, config.pane_s)
                key = PaneKey(config.key, config.generation, ALL_ROWS, start)
                found.setdefault(key, ([], config))[0].append(name)
        return found

    def _model(self, config: ModelConfig, names: list[str]) -> ModelJoin:
        """Return the model's records, with those of `names` read."""
        key = (config.key, config.generation)
        if key not in self.models:
            self.models[key] = ModelJoin(config, marks=self._records.marks(config))
        model = self.models[key]
        for name, before, after in model.columns.take_out(names):
            model.before[name], model.after[name] = before, after
        missing = [name for name in dict.fromkeys(names) if name not in model.before]
        self._read(model, missing)
        return model

    def _read(self, model: ModelJoin, names: list[str]) -> None:
        if names:
            found = self._records.records(model.config, names)
            for name in names:
                model.before[name] = found.get(name)

    @staticmethod
    def _record(model: ModelJoin, name: str, received_ms: int) -> RetainedRecord:
        known = model.after.get(name) or model.before[name]
        return known if known is not None else RetainedRecord(received_ms // 1000)

    def _rows_by_start(self, model: ModelJoin) -> dict[int, ChangedRows]:
        """Return old and new rows of every unit that changed, by the time slices that they belong to."""
        by_start: dict[int, ChangedRows] = {}
        for name in self._touched_names(model):
            before = model.before[name]
            after = model.after.get(name) or before
            for record, is_new in ((before, False), (after, True)):
                if record is None or record.prediction is None or record.deleted:
                    continue
                start = pane_start(record.prediction.event_us, model.config.pane_s)
                if start not in by_start:
                    by_start[start] = ChangedRows(model.config, start)
                change = by_start[start]
                (change.gained if is_new else change.lost).append((name, record))
        config = model.config
        for start, changed in model.columns.rows_by_start(config.pane_s):
            by_start.setdefault(start, ChangedRows(config, start)).columns.append(changed)
        return by_start

    def _touched_names(self, model: ModelJoin) -> list[str]:
        """Return the ids of every unit of a pane with a changed row, each once; also record new members."""
        singles: dict[str, None] = {}
        named: dict[Group, list[str]] = {}
        for name, record in model.changed().items():
            for each in (model.before[name], record):
                if each is None or each.prediction is None:
                    continue
                start = pane_start(each.prediction.event_us, model.config.pane_s)
                if start < model.kept_from:
                    # The pane is deleted and its records will be: nothing is subtracted from it any more.
                    continue
                group = each.prediction.group
                if group is None:
                    singles[name] = None
                else:
                    named.setdefault((start, group), []).append(name)
        self._read_members(model, list(named))
        for key, names in named.items():
            model.unit_members[key] = list(dict.fromkeys(model.unit_members[key] + names))
        members = [name for key in named for name in model.unit_members[key]]
        self._read(model, [name for name in members if name not in model.before])
        return list(singles | dict.fromkeys(members))

    def _read_members(self, model: ModelJoin, groups: list[Group]) -> None:
        missing = [group for group in groups if group not in model.unit_members]
        if missing:
            found = self._records.unit_members(model.config, missing)
            for group in missing:
                model.unit_members_before[group] = found.get(group, [])
                model.unit_members[group] = list(model.unit_members_before[group])


def _delays(received_ms: int, event_us: list[int]) -> list[int]:
    """Return the delay of labels received at a time, as bins."""
    bins: list[int] = delay_bin(received_ms / 1000 - np.array(event_us) / 1e6).tolist()
    return bins


def _worst(results: list[str]) -> str:
    if len(results) == 1:
        return results[0]
    for result in (GONE, CONFLICT, REVISED, FULL, NEW, STALE, DUPLICATE):
        if result in results:
            return result
    return DUPLICATE


def _ids_of(batch: Batch) -> list[str]:
    assert batch.ids is not None
    return [str(name) for name in batch.ids]
