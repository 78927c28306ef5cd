"""First labels of predictions that wait for them, joined by columns instead of record by record.

Most labels that come by id are of one form: one unnamed rating of a prediction that has none yet and is a unit of its own,
without slices. Such records of equal length are a table of bytes: scores, times and the records with their labels are computed for all
of them at once. The results are those of `RetainedRecord.with_unnamed` and `timed`, to the bit. What is of another form is left
to the join record by record, and so is a record that an entry changes again in the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN, delay_bin
from calibrant.core.batch import Ratings
from calibrant.core.hashing import hash_names
from calibrant.core.routing import MICROSECONDS
from calibrant_server.workers.ingest.payloads import PlainLabels
from calibrant_server.workers.ingest.retained_prediction import LOGITS, NARROW, WEIGHTED
from calibrant_server.workers.ingest.retained_record import (
    DIVIDED,
    FORMATS,
    MAX_RATINGS_OF_CLASS,
    PREDICTED,
    RECORD_HEAD,
    RetainedRecord,
)
from calibrant_server.workers.ingest.tail_rows import SOURCES, TailRows

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
_PLAIN_FLAGS = PREDICTED | LOGITS | NARROW | WEIGHTED
_HEAD_BYTES = RECORD_HEAD.size
# Bytes of time and digest before the scores, of one class with its number of ratings, and of a sum or weight.
_TIME_BYTES, _COUNT_BYTES, _NUMBER_BYTES = 16, 6, 8
# Places in the head, in bytes.
_SCORES, _UNNAMED, _REST, _DELAY = 6, 8, 10, 14
_MAX_CLASS = 2**16 - 1


class JoinedRows(NamedTuple):
    """Rows that a time slice loses and gains."""

    lost: TailRows
    gained: TailRows


@dataclass
class _Table:
    """Records of one form, with the ratings that each receives.

    Attributes
    ----------
    places : row of each id
    before, after : the records as bytes, (n, length)
    kept : which of them were not taken out again
    """

    places: dict[str, int]
    before: Bytes
    after: Bytes
    class_index: Ints
    count: Ints
    event_us: Ints
    delays: Ints
    kept: NDArray[np.bool_]

    def __contains__(self, name: str) -> bool:
        return name in self.places and bool(self.kept[self.places[name]])


@dataclass
class FirstLabels:
    """Records of one model that received their first label in this commit, by columns."""

    n_classes: int
    _tables: list[_Table] = field(default_factory=list)

    def has_any(self, names: set[str]) -> bool:
        """Whether the record of any of these ids is here, or was."""
        return not all(names.isdisjoint(table.places) for table in self._tables)

    def add(
        self,
        labels: PlainLabels,
        records: Mapping[str, bytes],
        received_ms: int,
        kept_from_us: int,
    ) -> list[int]:
        """Join the labels of predictions that wait for their first one; return the places of the others, in order.

        Parameters
        ----------
        labels : of different ids
        records : stored records by id
        kept_from_us : event times before it have outlived their retention
        """
        left, forms = _by_form(list(map(records.get, labels.ids)))
        is_storable = (labels.class_index >= 0) & (labels.class_index <= _MAX_CLASS)
        is_storable &= (labels.n_ratings > 0) & (labels.n_ratings <= MAX_RATINGS_OF_CLASS)
        for (number, flags, length), some in forms.items():
            if length != _length(number, flags, self.n_classes):
                left += some
                continue
            places = np.array(some)
            before = _joined([records[labels.ids[i]] for i in some])
            good = self._waits(before, kept_from_us) & is_storable[places]
            left += places[~good].tolist()
            if good.any():
                self._add(labels, places[good], before[good], received_ms)
        return sorted(left)

    def take_out(
        self, names: Iterable[str]
    ) -> Iterator[tuple[str, RetainedRecord, RetainedRecord]]:
        """Yield the id and the records before and after of those of some ids that are here, and leave them to the caller."""
        for name in names if self._tables else ():
            for table in self._tables:
                if name in table:
                    row = table.places[name]
                    table.kept[row] = False
                    states = (each[row].tobytes() for each in (table.before, table.after))
                    before, after = map(RetainedRecord.unpack, states)
                    yield name, before, after

    def written(self) -> Iterator[tuple[str, bytes]]:
        """Yield ids and their records as they are stored from now on."""
        for table in self._tables:
            data, length = table.after.tobytes(), table.after.shape[1]
            for (name, row), is_kept in zip(table.places.items(), table.kept.tolist(), strict=True):
                if is_kept:
                    yield name, data[row * length : (row + 1) * length]

    @property
    def n_more_bytes(self) -> int:
        """Bytes by which each record grows."""
        return _COUNT_BYTES

    @property
    def n(self) -> int:
        """Number of records."""
        return sum(int(table.kept.sum()) for table in self._tables)

    def rows_by_start(self, task: str, pane_s: int) -> Iterator[tuple[int, JoinedRows]]:
        """Yield what each time slice loses and gains, by its start in seconds."""
        for table in self._tables:
            starts = table.event_us // (pane_s * MICROSECONDS)
            for start in np.unique(starts[table.kept]).tolist():
                yield (
                    start * pane_s,
                    _rows(table, (starts == start) & table.kept, task, self.n_classes),
                )

    def _waits(self, before: Bytes, kept_from_us: int) -> NDArray[np.bool_]:
        """Return which records have nothing but a prediction, which is still retained."""
        n_scores = _words(before, _SCORES)
        nothing = before[:, _UNNAMED:_HEAD_BYTES].any(axis=1)
        good = (n_scores == self.n_classes) & ~nothing & (_times(before) >= kept_from_us)
        if before[0, 0] == DIVIDED:
            totals = _totals(before, int(before[0, 1]), self.n_classes)
            good &= (totals > 0.5) & (totals < 2.0)
        return np.asarray(good)

    def _add(self, labels: PlainLabels, places: Ints, before: Bytes, received_ms: int) -> None:
        n = len(places)
        class_index, count = labels.class_index[places], labels.n_ratings[places]
        event_us = _times(before)
        delays = delay_bin(received_ms / 1000 - event_us / 1e6)
        after = np.empty((n, before.shape[1] + _COUNT_BYTES), np.uint8)
        after[:, :_HEAD_BYTES] = before[:, :_HEAD_BYTES]
        after[:, _UNNAMED:_REST] = _as_bytes(np.ones(n), "<u2")
        after[:, _DELAY:_HEAD_BYTES] = _as_bytes(delays + 1, "<u2")
        after[:, _HEAD_BYTES : _HEAD_BYTES + 2] = _as_bytes(class_index, "<u2")
        after[:, _HEAD_BYTES + 2 : _HEAD_BYTES + _COUNT_BYTES] = _as_bytes(count, "<u4")
        after[:, _HEAD_BYTES + _COUNT_BYTES :] = before[:, _HEAD_BYTES:]
        ids = {labels.ids[place]: row for row, place in enumerate(places.tolist())}
        table = _Table(ids, before, after, class_index, count, event_us, delays, np.ones(n, bool))
        self._tables.append(table)


def _by_form(
    records: list[bytes | None],
) -> tuple[list[int], dict[tuple[int, int, int], Sequence[int]]]:
    """Return the places of absent records, and those of the others by format, flags and length."""
    absent: list[int] = []
    forms: dict[tuple[int, int, int], list[int]] = {}
    for i, data in enumerate(records):
        if data is None or len(data) < _HEAD_BYTES:
            absent.append(i)
            continue
        form = data[0], data[1], len(data)
        try:
            forms[form].append(i)
        except KeyError:
            forms[form] = [i]
    return absent, dict(forms)


def _length(number: int, flags: int, n_classes: int) -> int | None:
    """Return the length of a record with nothing but a prediction; None of another form."""
    if number not in FORMATS or not flags & PREDICTED or flags & ~_PLAIN_FLAGS:
        return None
    n_numbers = (number == DIVIDED) + bool(flags & WEIGHTED)
    return _HEAD_BYTES + _TIME_BYTES + n_classes * _width(flags) + n_numbers * _NUMBER_BYTES


def _width(flags: int) -> int:
    return 4 if flags & NARROW else 8


def _joined(records: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)


def _as_bytes(values: NDArray[np.float64] | Ints, dtype: str) -> Bytes:
    return values.astype(dtype).view(np.uint8).reshape(len(values), -1)


def _words(table: Bytes, at: int) -> Ints:
    return np.ascontiguousarray(table[:, at : at + 2]).view("<u2")[:, 0].astype(np.int64)


def _column(table: Bytes, at: int, dtype: str, n: int) -> NDArray[np.float64] | Ints:
    size = np.dtype(dtype).itemsize
    return np.ascontiguousarray(table[:, at : at + n * size]).view(dtype)


def _times(table: Bytes) -> Ints:
    return np.asarray(_column(table, _HEAD_BYTES, "<i8", 1)[:, 0], np.int64)


def _totals(table: Bytes, flags: int, n_classes: int) -> NDArray[np.float64]:
    at = _HEAD_BYTES + _TIME_BYTES + n_classes * _width(flags)
    return np.asarray(_column(table, at, "<f8", 1)[:, 0], np.float64)


def _rows(table: _Table, chosen: NDArray[np.bool_], task: str, n_classes: int) -> JoinedRows:
    """Return the rows of some records before and after their label, as `TailRows.of_records` does."""
    before = table.before[chosen]
    n, number, flags = len(before), int(before[0, 0]), int(before[0, 1])
    at = _HEAD_BYTES + _TIME_BYTES
    dtype = "<f4" if flags & NARROW else "<f8"
    scores = _column(before, at, dtype, n_classes).astype(np.float64)
    at += n_classes * _width(flags)
    if number == DIVIDED:
        scores /= _totals(before, flags, n_classes)[:, None]
        at += _NUMBER_BYTES
    weights = (
        _column(before, at, "<f8", 1)[:, 0].astype(np.float64) if flags & WEIGHTED else np.ones(n)
    )
    names = [name for name, own in zip(table.places, chosen.tolist(), strict=True) if own]
    hashes = hash_names(names)
    none = np.zeros(0, np.int64)
    ratings = Ratings(np.arange(n), table.class_index[chosen], table.count[chosen])

    def rows(sign: int, own: Ratings, delays: Ints) -> TailRows:
        return TailRows(
            task, scores, own, np.full(n, bool(flags & LOGITS)), np.full(n, sign), np.zeros(n, np.int64), weights,
            np.full(n, SOURCES.index("id")), np.ones(n, np.bool_), delays, hashes, hashes, np.full(n, None, dtype=object), {},
        )  # fmt: skip

    lost = rows(-1, Ratings(none, none, none), np.full(n, UNKNOWN))
    return JoinedRows(lost, rows(1, ratings, table.delays[chosen]))
