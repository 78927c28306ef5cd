"""Records of one model that change by columns in a commit, instead of record by record.

Most rows with ids are of few forms: a new prediction without unit and slices, the first label of such a prediction, and a label
that comes before its prediction. `first_predictions`, `first_labels` and `waiting_labels` compute the records and the rows of
the panes for all of them at once, to the bit as `RetainedRecord` does. What is of another form is left to the join record by
record, and so is a record that an entry changes again in the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Ratings
from calibrant.core.routing import MICROSECONDS
from calibrant_server.workers.ingest.retained_record import RECORD_HEAD, RetainedRecord
from calibrant_server.workers.ingest.tail_rows import SOURCES, TailRows

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
# The head of a record and one class with its number of ratings, as `RECORD_HEAD` and `COUNT_STRUCT` pack them.
HEAD = np.dtype(
    [("format", "u1"), ("flags", "u1"), ("since_s", "<u4"), ("n_scores", "<u2"), ("n_unnamed", "<u2"),
     ("n_ratings", "<u2"), ("n_slices", "<u2"), ("delay", "<u2")]
)  # fmt: skip
COUNT = np.dtype([("class_index", "<u2"), ("n", "<u4")])
HEAD_BYTES = HEAD.itemsize
assert RECORD_HEAD.size == HEAD_BYTES
MAX_CLASS = 2**16 - 1


class ChangedColumns(NamedTuple):
    """Rows that a time slice loses and gains."""

    lost: TailRows | None
    gained: TailRows


@dataclass
class JoinedRecords:
    """Records that one entry changes by columns, each of another id.

    Attributes
    ----------
    before : as stored; None of an id without a record
    after : as they are stored from now on
    is_labelled : bool (n,)
    event_us : int64 (n,), time of each prediction; None of labels that wait for theirs
    lost, gained : rows of the panes before and after; None if no row contributes
    """

    names: list[str]
    before: Sequence[bytes | None]
    after: list[bytes]
    is_labelled: Mask
    event_us: Ints | None = None
    lost: TailRows | None = None
    gained: TailRows | None = None
    is_kept: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.is_kept = np.ones(len(self.names), np.bool_)

    @cached_property
    def places(self) -> dict[str, int]:
        """Row of each id."""
        return dict(zip(self.names, range(len(self.names)), strict=True))

    @property
    def n(self) -> int:
        """Number of records that were not taken out again."""
        return int(self.is_kept.sum())

    def take_out(self, name: str) -> tuple[RetainedRecord | None, RetainedRecord] | None:
        """Leave the record of an id to the caller; return it before and after, None if it is not here."""
        row = self.places.get(name)
        if row is None or not self.is_kept[row]:
            return None
        self.is_kept[row] = False
        before = self.before[row]
        return (
            None if before is None else RetainedRecord.unpack(before),
            RetainedRecord.unpack(self.after[row]),
        )

    def written(self) -> tuple[list[str], list[bytes]]:
        """Return ids and records."""
        if self.is_kept.all():
            return self.names, self.after
        kept = self.is_kept.tolist()
        return list(compress(self.names, kept)), list(compress(self.after, kept))

    def tallies(self, field_bytes: int) -> dict[str, int]:
        """Return the changes of the model's counts; `field_bytes` are those of a stored field besides its name and record."""
        had = np.array([each is not None for each in self.before]) & self.is_kept
        new = self.is_kept & ~had
        labelled = int((self.is_labelled & self.is_kept).sum())
        names, after = self.written()
        known = [each for each in compress(self.before, had.tolist()) if each is not None]
        n_bytes = sum(map(len, after)) - sum(map(len, known))
        n_bytes += sum(map(len, compress(self.names, new.tolist()))) + field_bytes * int(new.sum())
        found = {"records": int(new.sum()), "bytes": n_bytes, "waiting": 0, "pending": 0}
        found["pending" if self.lost is not None else "waiting"] -= len(known)
        if self.event_us is None:
            found["waiting"] += len(names)
            return found
        found["pending"] += len(names) - labelled
        return found | {"joined": labelled}

    def starts(self, pane_s: int) -> Iterator[tuple[int, Mask]]:
        """Yield the time slices of the predictions, by their start in seconds, each with the rows in it."""
        if self.event_us is None:
            return
        starts = self.event_us // (pane_s * MICROSECONDS)
        if self.is_kept.any() and (starts == starts[0]).all():
            yield int(starts[0]) * pane_s, self.is_kept
            return
        for start in np.unique(starts[self.is_kept]).tolist():
            yield start * pane_s, (starts == start) & self.is_kept


@dataclass
class JoinedColumns:
    """All records of a model that change by columns in one commit."""

    _joined: list[JoinedRecords] = field(default_factory=list)

    def append(self, joined: JoinedRecords) -> None:
        """Add records; none of their ids is here."""
        if joined.names:
            self._joined.append(joined)

    def __iter__(self) -> Iterator[JoinedRecords]:
        return iter(self._joined)

    def __contains__(self, name: str) -> bool:
        """Whether the record of an id is here, or was."""
        return any(name in each.places for each in self._joined)

    def has_any(self, names: set[str]) -> bool:
        """Whether the record of any of these ids is here, or was."""
        return not all(names.isdisjoint(each.places) for each in self._joined)

    @property
    def n(self) -> int:
        """Number of records."""
        return sum(each.n for each in self._joined)

    def take_out(
        self, names: Iterable[str]
    ) -> Iterator[tuple[str, RetainedRecord | None, RetainedRecord]]:
        """Yield the id and the records before and after of those of some ids that are here, and leave them to the caller."""
        for name in names if self._joined else ():
            for each in self._joined:
                found = each.take_out(name)
                if found is not None:
                    yield name, *found

    def rows_by_start(self, pane_s: int) -> Iterator[tuple[int, ChangedColumns]]:
        """Yield what each time slice loses and gains, by its start in seconds."""
        for each in self._joined:
            for start, rows in each.starts(pane_s):
                assert each.gained is not None
                lost = None if each.lost is None else _some(each.lost, rows)
                yield start, ChangedColumns(lost, _some(each.gained, rows))

    def predicted(self, pane_s: int) -> Iterator[tuple[int, list[str]]]:
        """Yield the ids that have newly received their prediction, by the start of their pane."""
        for each in self._joined:
            if each.lost is None:
                for start, rows in each.starts(pane_s):
                    yield start, list(compress(each.names, rows.tolist()))


def _some(rows: TailRows, chosen: Mask) -> TailRows:
    return rows if chosen.all() else rows.take(chosen)


def by_length(records: Sequence[bytes]) -> Iterator[tuple[list[int], Bytes]]:
    """Yield the places of the records of each length, and these as a table."""
    lengths: dict[int, list[int]] = {}
    for i, data in enumerate(records):
        try:
            lengths[len(data)].append(i)
        except KeyError:
            lengths[len(data)] = [i]
    for length, some in lengths.items():
        data = b"".join([records[i] for i in some])
        yield some, np.frombuffer(data, np.uint8).reshape(len(some), length)


def heads_of(table: Bytes) -> NDArray[np.void]:
    """Return the heads of a table of records."""
    return np.array(table[:, :HEAD_BYTES], order="C").view(HEAD)[:, 0]


def as_bytes(values: NDArray[np.generic]) -> Bytes:
    """Return values of one or two dimensions as a table of bytes."""
    width = values.itemsize * (values.shape[1] if values.ndim > 1 else 1)
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)


def table_of(*parts: Bytes) -> Bytes:
    """Return tables next to each other."""
    return np.concatenate(parts, axis=1)


def rows_as_bytes(table: Bytes) -> list[bytes]:
    """Return the rows of a table."""
    data, length = table.tobytes(), table.shape[1]
    return [data[at : at + length] for at in range(0, len(data), length)]


def counts_as_bytes(class_index: Ints, n_ratings: Ints) -> Bytes:
    """Return classes with their numbers of ratings as records store them."""
    counts = np.empty(len(class_index), COUNT)
    counts["class_index"], counts["n"] = class_index, n_ratings
    return as_bytes(counts)


def rows_by_id(
    task: str,
    scores: NDArray[np.float64],
    is_logits: bool,
    weights: NDArray[np.float64],
    ratings: Ratings,
    delays: Ints,
    hashes: NDArray[np.uint64],
    sign: int,
) -> TailRows:
    """Return rows with ids that are units of their own, as `TailRows.of_records` does."""
    n = len(scores)
    return TailRows(
        task, scores, ratings, np.full(n, is_logits), np.full(n, sign), np.zeros(n, np.int64), weights,
        np.full(n, SOURCES.index("id")), np.ones(n, np.bool_), delays, hashes, hashes, np.full(n, None, dtype=object), {},
    )  # fmt: skip
