"""Retained records as columns: read together from their stored bytes, and written together.

A record has all that is stored of one id: when it was first received, its prediction, the ratings of unnamed raters by class, the
latest rating of each named rater, whether it was deleted, and the delay of its first label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.join.predictions import Predictions
from calibrant_server.workers.join.ratings import Counts, NamedRatings, coded, placed, summed
from calibrant_server.workers.join.record_format import (
    COUNT,
    DELETED,
    DIVIDED,
    FORMATS,
    HEAD,
    LONG_NAMES,
    LONG_RATERS,
    MAX_SHORT,
    PLAIN,
    PREDICTED,
    RATING,
    RecordError,
    rules_in_format,
)
from calibrant_server.workers.segments.ragged import (
    Bytes,
    Ints,
    owners,
    places,
    starts_of,
    table_at,
)

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Records:
    """Records of different ids.

    Attributes
    ----------
    since_s : int64 (n,), time of the first fact about the id
    is_deleted : bool (n,); the prediction was removed permanently
    delay : int64 (n,), of the first label, as a bin of `calibrant.accumulators.delays`; -1 without labels
    predictions : of the records that have one
    prediction : int64 (n,), place in `predictions`; -1 while labels wait for it
    """

    since_s: Ints
    is_deleted: Mask
    delay: Ints
    counts: Counts
    ratings: NamedRatings
    predictions: Predictions
    prediction: Ints

    def __len__(self) -> int:
        return len(self.since_s)

    @property
    def has_prediction(self) -> Mask:
        """Which records have their prediction."""
        return np.asarray(self.prediction >= 0)

    @cached_property
    def counts_in_pane(self) -> Mask:
        """Which records have a prediction that counts."""
        return self.has_prediction & ~self.is_deleted

    @cached_property
    def n_active(self) -> Ints:
        """Ratings of each record that count: unnamed, and named that are not withdrawn."""
        active = self.ratings.row[self.ratings.class_index != WITHDRAWN]
        found = np.bincount(active, minlength=len(self))
        np.add.at(found, self.counts.row, self.counts.n)
        return found

    def states(self) -> dict[str, Mask]:
        """Return which records are deleted, wait for their prediction, are joined with a label, or lack one."""
        waiting = ~self.is_deleted & ~self.has_prediction
        joined = self.has_prediction & ~self.is_deleted & (self.n_active > 0)
        pending = self.has_prediction & ~self.is_deleted & ~joined
        return {
            "deleted": self.is_deleted,
            "waiting": waiting,
            "joined": joined,
            "pending": pending,
        }

    def ratings_by_class(self, chosen: Ints) -> Counts:
        """Return ratings of some records by class, unnamed and named together, by place in `chosen`."""
        place = np.full(len(self), -1)
        place[chosen] = np.arange(len(chosen))
        named = self.ratings.take(self.ratings.class_index != WITHDRAWN)
        row = place[np.concatenate([self.counts.row, named.row])]
        class_index = np.concatenate([self.counts.class_index, named.class_index])
        n = np.concatenate([self.counts.n, np.ones(len(named.row), np.int64)])
        own = (row >= 0) & (n > 0)
        return summed(row[own], class_index[own], n[own])

    def take(self, index: Ints) -> Records:
        """Return some records, each at most once; they share the bytes of their predictions."""
        place = np.full(len(self), -1)
        place[index] = np.arange(len(index))
        return Records(
            self.since_s[index],
            self.is_deleted[index],
            self.delay[index],
            Counts(*placed((self.counts.row, self.counts.class_index, self.counts.n), place)),
            self.ratings.with_columns(placed(self.ratings.columns, place)),
            self.predictions,
            self.prediction[index],
        )

    @classmethod
    def read(cls, packed: Sequence[bytes]) -> Records:
        """Read records.

        Raises
        ------
        RecordError
            Damaged bytes, or a record of another format.
        """
        try:
            return _Reader(packed).records()
        except (IndexError, ValueError) as error:
            raise RecordError(f"a record cannot be read: {error}") from error

    def write(self) -> list[bytes]:
        """Return the stored bytes of each record."""
        pieces = _Pieces(len(self))
        pieces.add(np.arange(len(self)), _bytes_of(self._heads()))
        pieces.add(self.counts.row, _bytes_of(_counts_table(self.counts)))
        self._add_ratings(pieces)
        own = np.flatnonzero(self.has_prediction)
        predictions, some = self.predictions, self.prediction[own]
        pieces.add_ragged(own, predictions.data, predictions.start[some], predictions.n_bytes[some])
        return pieces.joined()

    def _heads(self) -> NDArray[np.void]:
        heads = np.zeros(len(self), HEAD)
        heads["format"] = PLAIN + LONG_RATERS * self._has_long_raters
        heads["flags"] = np.where(self.is_deleted, DELETED, 0)
        heads["since_s"], heads["delay"] = self.since_s, self.delay + 1
        heads["n_unnamed"] = np.bincount(self.counts.row, minlength=len(self))
        heads["n_ratings"] = np.bincount(self.ratings.row, minlength=len(self))
        own = np.flatnonzero(self.has_prediction)
        predictions, some = self.predictions, self.prediction[own]
        form = DIVIDED * predictions.is_divided[some] + LONG_NAMES * predictions.is_long[some]
        form |= rules_in_format(predictions.flags[some])
        heads["format"][own] += form.astype(np.uint8)
        heads["flags"][own] |= (predictions.flags[some] & 255 | PREDICTED).astype(np.uint8)
        heads["n_scores"][own] = predictions.n_scores[some]
        heads["n_slices"][own] = predictions.n_slices[some]
        return heads

    @cached_property
    def _name_bytes(self) -> Ints:
        raters = self.ratings.raters
        return np.fromiter(map(len, raters), np.int64, len(raters))

    @cached_property
    def _has_long_raters(self) -> Mask:
        found = np.zeros(len(self), np.bool_)
        found[self.ratings.row[self._name_bytes[self.ratings.rater] > MAX_SHORT]] = True
        return found

    def _add_ratings(self, pieces: _Pieces) -> None:
        """Add each rating, between the length and the name of its rater."""
        ratings, lengths = self.ratings, self._name_bytes
        n, length = len(ratings.row), lengths[ratings.rater]
        names = np.frombuffer(b"".join(ratings.raters), np.uint8)
        table = np.zeros(n, RATING)
        for name in ("class_index", "revision", "order"):
            table[name] = getattr(ratings, name)
        data = np.concatenate(
            [length.astype("<u2").view(np.uint8), _bytes_of(table).reshape(-1), names]
        )
        number, width = np.arange(n), 1 + self._has_long_raters[ratings.row]
        name_at = 2 * n + table.nbytes + starts_of(lengths)[ratings.rater]
        starts = np.stack([2 * number, 2 * n + RATING.itemsize * number, name_at], 1)
        sizes = np.stack([width, np.full(n, RATING.itemsize), length], 1)
        pieces.add_ragged(np.repeat(ratings.row, 3), data, starts.ravel(), sizes.ravel())


class _Reader:
    """Reader of records from one array of their bytes; `at` is where each is read next."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        self.data = np.frombuffer(b"".join(packed), np.uint8)
        lengths = np.fromiter(map(len, packed), np.int64, len(packed))
        starts = starts_of(lengths)
        self.end = starts + lengths
        if len(packed) and lengths.min() < HEAD.itemsize:
            raise RecordError(f"received {lengths.min()} bytes; expected at least {HEAD.itemsize}")
        self.heads = table_at(self.data, starts, HEAD)
        unknown = ~np.isin(self.heads["format"], FORMATS)
        if unknown.any():
            raise RecordError(f"record format {self.heads['format'][unknown][0]} is not known")
        self.at = starts + HEAD.itemsize

    def records(self) -> Records:
        heads = self.heads
        counts, ratings = self._counts(), self._ratings()
        own = np.flatnonzero(heads["flags"] & PREDICTED)
        place = np.full(len(heads), -1)
        place[own] = np.arange(len(own))
        predictions = Predictions.read(self.data, self.at[own], self.end[own], heads[own])
        if (self.at > self.end).any():
            raise RecordError("received a record that is too short")
        return Records(
            heads["since_s"].astype(np.int64),
            (heads["flags"] & DELETED).astype(np.bool_),
            heads["delay"].astype(np.int64) - 1,
            counts,
            ratings,
            predictions,
            place,
        )

    def _is(self, form: int) -> Mask:
        """Return which records differ from the plain format in this."""
        return ((self.heads["format"] - PLAIN) & form).astype(np.bool_)

    def _counts(self) -> Counts:
        n = self.heads["n_unnamed"].astype(np.int64)
        rows = owners(n)
        within = np.arange(len(rows)) - np.repeat(starts_of(n), n)
        table = table_at(self.data, self.at[rows] + COUNT.itemsize * within, COUNT)
        self.at = self.at + COUNT.itemsize * n
        return Counts(rows, table["class_index"].astype(np.int64), table["n"].astype(np.int64))

    def _ratings(self) -> NamedRatings:
        """Read named ratings, the k-th of all records together: only its name says where the next one begins."""
        left, n = np.flatnonzero(self.heads["n_ratings"]), self.heads["n_ratings"].astype(np.int64)
        rows, tables, starts, lengths = [left[:0]], [np.zeros(0, RATING)], [left[:0]], [left[:0]]
        width = 1 + self._is(LONG_RATERS)
        for k in range(int(n.max(initial=0))):
            left = left[n[left] > k]
            at = self.at[left]
            length = self.data[at].astype(np.int64)
            length += np.where(width[left] > 1, 256 * self.data[at + 1].astype(np.int64), 0)
            rows.append(left)
            tables.append(table_at(self.data, at + width[left], RATING))
            starts.append(at + width[left] + RATING.itemsize)
            lengths.append(length)
            self.at[left] = starts[-1] + length
        row, table = np.concatenate(rows), np.concatenate(tables)
        if (table["class_index"] < WITHDRAWN).any():
            raise RecordError(f"received class {table['class_index'].min()}")
        rater, raters = self._raters(np.concatenate(starts), np.concatenate(lengths))
        found = NamedRatings(
            row,
            rater,
            table["class_index"].astype(np.int64),
            table["revision"].astype(np.int64),
            table["order"].astype(np.int64),
            raters,
        )
        return found.take(np.argsort(row, kind="stable"))

    def _raters(self, starts: Ints, lengths: Ints) -> tuple[Ints, list[bytes]]:
        """Return places in the list of different names, and this list in ascending order."""
        data = self.data.tobytes() if len(starts) else b""
        ends = (starts + lengths).tolist()
        names = [data[at:end] for at, end in zip(starts.tolist(), ends, strict=True)]
        return coded(names)


class _Pieces:
    """Pieces of bytes, each of a record, in the order in which a record has them."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._row: list[Ints] = []
        self._data: list[Bytes] = []
        self._start: list[Ints] = []
        self._length: list[Ints] = []
        self._n_bytes = 0

    def add(self, row: Ints, table: Bytes) -> None:
        """Add the rows of a table of bytes."""
        width = table.shape[1]
        self.add_ragged(
            row, table.reshape(-1), np.arange(len(row)) * width, np.full(len(row), width)
        )

    def add_ragged(self, row: Ints, data: Bytes, start: Ints, length: Ints) -> None:
        """Add pieces that begin at some bytes of `data`."""
        self._row.append(row)
        self._data.append(data)
        self._start.append(start + self._n_bytes)
        self._length.append(length)
        self._n_bytes += len(data)

    def joined(self) -> list[bytes]:
        """Return the bytes of each record."""
        row, length = np.concatenate(self._row), np.concatenate(self._length)
        order = np.argsort(row, kind="stable")
        index = places(np.concatenate(self._start)[order], length[order])
        data = np.concatenate(self._data)[index].tobytes()
        n_bytes = np.bincount(row, length, self._n).astype(np.int64)
        starts = starts_of(n_bytes)
        ends = (starts + n_bytes).tolist()
        return [data[at:end] for at, end in zip(starts.tolist(), ends, strict=True)]


def _bytes_of(table: NDArray[np.void]) -> Bytes:
    return table.view(np.uint8).reshape(len(table), table.itemsize)


def _counts_table(counts: Counts) -> NDArray[np.void]:
    table = np.empty(len(counts.row), COUNT)
    table["class_index"], table["n"] = counts.class_index, counts.n
    return table
