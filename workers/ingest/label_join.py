"""Join of the entries of a group with retained records: what a commit writes, and what its panes lose and gain.

The facts of all entries are joined together (`workers/join`). Then, for every changed unit, all of its old rows are subtracted
from the panes and all of its new rows are added. A unit's rows share one weight, so they change together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.routing import ALL_ROWS, MICROSECONDS
from calibrant.input.labels import MAX_NAMED
from calibrant_server.workers.ingest.entries import Places
from calibrant_server.workers.ingest.joined_model import ChangedRows, Group, JoinedModel
from calibrant_server.workers.join.facts import (
    CONFLICT,
    DELETION,
    DUPLICATE,
    EXPIRED,
    FULL,
    GONE,
    LABELS,
    NEW,
    REVISED,
    STALE,
    EntryFacts,
)
from calibrant_server.workers.join.join import EMPTY
from calibrant_server.workers.join.record_format import MAX_RATINGS_OF_CLASS
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.segments.ragged import Ints
from calibrant_server.workers.store.batch_records import BatchRecord, RowError
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks


@dataclass
class RowOutcomes:
    """Outcomes of the rows of one entry.

    Attributes
    ----------
    joined, waiting : rows of labels whose prediction is stored, and whose prediction has not arrived; None for predictions
    """

    n: int = 0
    duplicates: int = 0
    stale: int = 0
    joined: int | None = None
    waiting: int | None = None
    errors: list[RowError] = field(default_factory=list)

    def placed(self, places: Places | None) -> RowOutcomes:
        """Return the same with pointers to rows as they were sent."""
        if places is None:
            return self
        errors = []
        for error in self.errors:
            _, column, row = error["pointer"].split("/")
            errors.append(error | {"pointer": places.pointer(column, int(row))})
        return replace(self, errors=errors)

    def counts_after(self, record: BatchRecord) -> dict[str, int]:
        """Return the row counts of a batch record after these outcomes."""
        n_errors = len(self.errors)
        return {
            "duplicate_rows": self.duplicates,
            "stale_rows": self.stale,
            "conflicts": n_errors,
            "accepted": max(record.accepted - n_errors, 0),
            "rejected": record.rejected + n_errors,
        } | ({} if self.joined is None else {"joined": self.joined, "waiting": self.waiting or 0})

    @classmethod
    def of(cls, outcome: Ints, is_of_rows: bool) -> RowOutcomes:
        """Return the outcomes of an entry's facts.

        Parameters
        ----------
        outcome : of each fact (`workers/join/outcomes`)
        is_of_rows : errors point to rows; a deletion has none
        """
        n = np.bincount(outcome, minlength=len(_RULES) + 3).tolist()
        found = cls(n[NEW], n[DUPLICATE], n[STALE])
        if sum(n) > n[NEW] + n[DUPLICATE] + n[STALE]:
            for row in np.flatnonzero(~np.isin(outcome, (NEW, DUPLICATE, STALE))).tolist():
                found.errors.append(_error(int(outcome[row]), row if is_of_rows else None))
        return found

    def count_labels(self, outcome: Ints, has_prediction: NDArray[np.bool_]) -> RowOutcomes:
        """Count the rows of labels that are stored with and without their prediction."""
        stored = np.isin(outcome, (NEW, DUPLICATE, STALE))
        self.joined = int(np.count_nonzero(stored & has_prediction))
        self.waiting = int(np.count_nonzero(stored & ~has_prediction))
        return self


def _error(outcome: int, row: int | None) -> RowError:
    rule, detail = _RULES[outcome]
    if row is None:
        return {"pointer": "/id", "rule": rule, "detail": detail}
    column = "revision" if outcome == REVISED else "ids"
    return {"pointer": f"/{column}/{row}", "rule": rule, "detail": detail}


_RULES = {
    CONFLICT: ("conflict", "this id was sent before with other content; the first is stored"),
    REVISED: (
        "revision_conflict",
        "this revision of the rater arrived before with another class; the first is stored",
    ),
    GONE: ("deleted", "the prediction of this id was deleted"),
    FULL: (
        "too_many_ratings",
        f"a prediction has at most {MAX_NAMED} named raters and {MAX_RATINGS_OF_CLASS} unnamed ratings of a class; this one has reached a limit",
    ),
    EXPIRED: ("retention", "the event time is before the model's retention"),
}


Name = tuple[str, str]


class RecordReader(Protocol):
    """Reader of retained records and of the members of units."""

    def packed(self, config: ModelConfig, names: list[str]) -> dict[str, bytes]:
        """Return the stored bytes of the records of some ids; ids without a record are omitted."""

    def unit_members(self, config: ModelConfig, groups: list[Group]) -> dict[Group, list[str]]:
        """Return the ids of each unit of a pane."""

    def marks(self, config: ModelConfig) -> Watermarks:
        """Return how far the model's panes are dropped and sealed."""


class ModelFacts:
    """Facts of one model, entry by entry, with the records that were read for them."""

    def __init__(self, reader: RecordReader, config: ModelConfig) -> None:
        self.config = config
        self.entries: list[EntryFacts] = []
        self.marks = reader.marks(config)
        self._reader = reader
        self._stored: dict[str, bytes | None] = {}
        self._joined: JoinedModel | None = None

    @property
    def kept_from_us(self) -> int:
        """Limit of event times in microseconds: the panes of earlier ones have outlived their retention."""
        pane_s = self.config.pane_s
        return -(-self.marks.kept_from // pane_s) * pane_s * MICROSECONDS

    def add(self, facts: EntryFacts) -> None:
        """Add the facts of an entry."""
        self.entries.append(facts)
        self._joined = None

    def stored(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the stored bytes of records, None of ids without one."""
        missing = [name for name in names if name not in self._stored]
        if missing:
            found = self._reader.packed(self.config, missing)
            self._stored |= {name: found.get(name) for name in missing}
        return [self._stored[name] for name in names]

    def unit_members(self, groups: list[Group]) -> dict[Group, list[str]]:
        """Return the stored members of units."""
        return self._reader.unit_members(self.config, groups) if groups else {}

    def joined(self) -> JoinedModel:
        """Return the join of all entries."""
        if self._joined is None:
            self._joined = JoinedModel(self, self.entries)
        return self._joined

    def new_rows(self, batch: Batch, received_ms: int) -> list[bool]:
        """Return which rows of a batch that carries ids would count: no prediction of the id came before, nor its deletion."""
        names = [str(name) for name in batch.ids] if batch.ids is not None else []
        records = Records.read([data or EMPTY for data in self.stored(names)])
        came = {
            name for each in self.entries if each.kind != LABELS for name in self._lasting(each)
        }
        times = (
            np.full(batch.n, received_ms * 1000) if batch.event_times is None else batch.event_times
        )
        is_new = ~records.has_prediction & ~records.is_deleted & (times >= self.kept_from_us)
        return [new and name not in came for new, name in zip(is_new.tolist(), names, strict=True)]

    def _lasting(self, facts: EntryFacts) -> list[str]:
        """Return the ids of an entry whose fact has not outlived the retention."""
        if facts.predictions is None:
            return facts.ids
        kept = (facts.predictions.event_us >= self.kept_from_us).tolist()
        return [name for name, is_kept in zip(facts.ids, kept, strict=True) if is_kept]


class LabelJoin:
    """Facts of the entries of a group, by model, and what their join changes."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self.models: dict[Name, ModelFacts] = {}

    def add(self, config: ModelConfig, facts: EntryFacts) -> None:
        """Add the facts of an entry."""
        self._of(config).add(facts)

    def new_rows(self, config: ModelConfig, batch: Batch, received_ms: int) -> list[bool]:
        """Return which rows of a batch that carries ids would count."""
        return self._of(config).new_rows(batch, received_ms)

    def outcomes(self) -> dict[str, RowOutcomes]:
        """Return the outcomes of the rows of each entry."""
        found: dict[str, RowOutcomes] = {}
        for model in self._filled():
            found |= outcomes_of(model.joined())
        return found

    def changes(self) -> dict[PaneKey, ChangedRows]:
        """Return the old and new rows of every unit that changed, by the pane of all rows of their time slice."""
        return {
            _pane(model.config, change.start_s): change
            for model in self._filled()
            for change in model.joined().changes()
        }

    def erased(self) -> dict[PaneKey, tuple[list[str], ModelConfig]]:
        """Return the ids whose prediction was deleted, by the pane of all rows of their time slice."""
        return {
            _pane(model.config, start_s): (names, model.config)
            for model in self._filled()
            for start_s, names in model.joined().erased().items()
        }

    def joined(self) -> list[JoinedModel]:
        """Return the join of each model."""
        return [model.joined() for model in self._filled()]

    def _filled(self) -> list[ModelFacts]:
        return [model for model in self.models.values() if model.entries]

    def _of(self, config: ModelConfig) -> ModelFacts:
        name = (config.key, config.generation)
        if name not in self.models:
            self.models[name] = ModelFacts(self._reader, config)
        return self.models[name]


def _pane(config: ModelConfig, start_s: int) -> PaneKey:
    return PaneKey(config.key, config.generation, ALL_ROWS, start_s)


def outcomes_of(joined: JoinedModel) -> dict[str, RowOutcomes]:
    """Return the outcomes of the rows of each entry of a model."""
    found: dict[str, RowOutcomes] = {}
    first = 0
    for facts in joined.entries:
        rows = slice(first, first + len(facts.ids))
        outcomes = RowOutcomes.of(joined.joined.outcome[rows], facts.kind != DELETION)
        if facts.kind == LABELS:
            outcomes.count_labels(joined.joined.outcome[rows], joined.joined.has_prediction[rows])
        found[facts.entry] = outcomes
        first = rows.stop
    return found
