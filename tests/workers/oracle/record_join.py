"""The join record by record: the second version of `workers/join`, for one model and in the order of the stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from calibrant.accumulators.delays import delay_bin
from calibrant.core.routing import pane_start
from calibrant_server.workers.store.model_config import ModelConfig
from tests.workers.oracle.prediction_rows import rows_of
from tests.workers.oracle.retained_record import (
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

WORST = (GONE, CONFLICT, REVISED, FULL, NEW, STALE, DUPLICATE)


@dataclass
class RecordJoin:
    """Records of one model by id: as stored, and after the entries.

    Attributes
    ----------
    members : ids of each unit of several rows, by time slice and unit, as stored
    """

    config: ModelConfig
    stored: dict[str, bytes]
    members: dict[tuple[int, str], list[str]] = field(default_factory=dict)
    kept_from: int = 0
    after: dict[str, RetainedRecord] = field(default_factory=dict)

    def record(self, name):
        """The record of an id now, None without one."""
        if name in self.after:
            return self.after[name]
        data = self.stored.get(name)
        return None if data is None else RetainedRecord.unpack(data)

    def predictions(self, batch, received_ms):
        """The outcome of each row of a batch."""
        outcomes = []
        for name, prediction, unnamed in zip(
            batch.ids, *rows_of(batch, received_ms * 1000), strict=True
        ):
            if pane_start(prediction.event_us, self.config.pane_s) < self.kept_from:
                outcomes.append(EXPIRED)
                continue
            known = self.record(name) or RetainedRecord(received_ms // 1000)
            first_ms = known.since_s * 1000 if known.is_labelled else received_ms
            record, outcome = known.predicted(prediction, unnamed)
            self._keep(name, record.timed(_delay(first_ms, prediction.event_us)), known)
            outcomes.append(outcome)
        return outcomes

    def labels(self, rows, received_ms, order):
        """The outcome of each row of labels, and whether its id has its prediction."""
        outcomes = []
        for name, unnamed, named in rows:
            known = record = self.record(name) or RetainedRecord(received_ms // 1000)
            results = []
            if unnamed:
                record, result = record.with_unnamed(dict(unnamed))
                results.append(result)
            for rater, class_index, revision in named:
                record, result = record.rated(rater, class_index, revision, order)
                results.append(result)
            if record.prediction is not None:
                record = record.timed(_delay(received_ms, record.prediction.event_us))
            self._keep(name, record, known)
            outcomes.append((min(results, key=WORST.index), record.prediction is not None))
        return outcomes

    def deletion(self, name, received_ms):
        """The outcome of a deletion."""
        known = self.record(name) or RetainedRecord(received_ms // 1000)
        record, outcome = known.removed()
        self._keep(name, record, known)
        return outcome

    def _keep(self, name, record, known):
        if record is not known or (name not in self.stored and name not in self.after):
            self.after[name] = record

    def changes(self):
        """Records that are lost and gained, by time slice: all of each unit that has a changed record."""
        touched = {}
        for name, record in self.after.items():
            for each in (self._before(name), record):
                if each is None or each.prediction is None:
                    continue
                start = pane_start(each.prediction.event_us, self.config.pane_s)
                if start < self.kept_from:
                    continue
                touched[name] = None
                if each.prediction.group is not None:
                    group = (start, each.prediction.group)
                    self.members.setdefault(group, [])
                    if name not in self.members[group]:
                        self.members[group].append(name)
                    touched |= dict.fromkeys(self.members[group])
        found = {}
        for name in touched:
            for record, is_new in ((self._before(name), False), (self.record(name), True)):
                if record is not None and record.counts:
                    start = pane_start(record.prediction.event_us, self.config.pane_s)
                    found.setdefault(start, ([], []))[is_new].append((name, record))
        return found

    def _before(self, name):
        data = self.stored.get(name)
        return None if data is None else RetainedRecord.unpack(data)


def _delay(received_ms, event_us):
    return int(delay_bin(np.array([received_ms / 1000 - event_us / 1e6]))[0])
