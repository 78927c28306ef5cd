"""Predictions that are the first of their id, joined by columns instead of record by record.

Their id has no record yet, or one with nothing but unnamed labels that wait. They have no unit and no slices. The records are
those of `RetainedRecord.predicted` and `timed`, to the bit, and the rows those of `TailRows.of_records`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN, delay_bin
from calibrant.core.batch import Batch, Ratings
from calibrant.core.float32 import narrow_scores
from calibrant_server.workers.ingest.joined_records import (
    COUNT,
    HEAD,
    HEAD_BYTES,
    MAX_CLASS,
    Bytes,
    Ints,
    JoinedRecords,
    Mask,
    as_bytes,
    by_length,
    counts_as_bytes,
    heads_of,
    rows_as_bytes,
    rows_by_id,
    table_of,
)
from calibrant_server.workers.ingest.retained_prediction import LOGITS, NARROW, WEIGHTED
from calibrant_server.workers.ingest.retained_record import (
    DIVIDED,
    FORMATS,
    MAX_RATINGS_OF_CLASS,
    PREDICTED,
)
from calibrant_server.workers.ingest.retained_rows import digests_of_rows


class _Facts(NamedTuple):
    """What the records of a batch's rows store besides the predictions themselves."""

    ratings: Ratings
    since_s: Ints
    delays: Ints


def first_predictions(
    batch: Batch, records: Mapping[str, bytes], received_ms: int, kept_from_us: int
) -> tuple[JoinedRecords | None, list[int]]:
    """Join the predictions of a batch that are the first of their id; also return the places of the others.

    Parameters
    ----------
    batch : of different ids, that `can_be_joined`
    records : stored records by id
    kept_from_us : event times before it have outlived their retention
    """
    assert batch.ids is not None
    n, names = batch.n, [str(name) for name in batch.ids]
    times = np.full(n, received_ms * 1000) if batch.event_times is None else batch.event_times
    good = times >= kept_from_us
    before: list[bytes | None] = list(map(records.get, names))
    waiting = _Waiting.of(before, batch)
    good &= waiting.is_joinable
    rows = np.flatnonzero(good)
    if not len(rows):
        return None, list(range(n))
    facts = _facts(batch, times, waiting, received_ms)
    if len(rows) < n:
        batch, times, facts = batch.take(rows), times[rows], _taken(facts, rows, n)
        names, before = [names[i] for i in rows], [before[i] for i in rows]
    total = np.bincount(facts.ratings.row, minlength=len(rows))
    weights = np.ones(len(rows)) if batch.weights is None else batch.weights
    gained = rows_by_id(
        batch.task, batch.scores, batch.is_logits, weights, facts.ratings, facts.delays, batch.prediction_hash, 1
    )  # fmt: skip
    after = _records(batch, times, facts, total)
    return (
        JoinedRecords(names, before, after, total > 0, times, None, gained),
        np.flatnonzero(~good).tolist(),
    )


def can_be_joined(batch: Batch) -> bool:
    """Return whether no row has a unit, slices, or numbers that a record cannot have."""
    if batch.units is not None or batch.cases is not None or batch.slices:
        return False
    return batch.n_classes <= MAX_CLASS and int(batch.ratings.count.max(initial=0)) <= (
        MAX_RATINGS_OF_CLASS
    )


class _Waiting(NamedTuple):
    """Labels that wait for predictions.

    Attributes
    ----------
    is_joinable : bool (n,), whether a row has no record, or one with nothing but such labels, and then no label of its own
    ratings : of the rows that have such a record
    since_s : time of the first fact of these, by row; -1 of the other rows
    """

    is_joinable: Mask
    ratings: Ratings
    since_s: Ints

    @classmethod
    def of(cls, before: list[bytes | None], batch: Batch) -> _Waiting:
        known = [i for i, data in enumerate(before) if data is not None]
        joinable, since_s = np.ones(batch.n, np.bool_), np.full(batch.n, -1)
        joinable[known] = False
        without_labels = np.bincount(batch.ratings.row, minlength=batch.n) == 0
        none = np.zeros(0, np.int64)
        columns: list[tuple[Ints, Ints, Ints]] = [(none, none, none)]
        for places, table in by_length([data for data in before if data is not None]):
            rows = np.array(known)[places]
            n_unnamed = _n_unnamed(table)
            if n_unnamed is None:
                continue
            heads = heads_of(table)
            counts = np.ascontiguousarray(table[:, HEAD_BYTES:]).view(COUNT)
            good = _are_labels(heads, counts, batch.n_classes) & without_labels[rows]
            own = rows[good]
            joinable[own], since_s[own] = True, heads["since_s"][good]
            found = (counts[name][good].astype(np.int64).ravel() for name in ("class_index", "n"))
            columns.append((np.repeat(own, n_unnamed), *found))
        row, class_index, count = (np.concatenate(each) for each in zip(*columns, strict=True))
        return cls(joinable, Ratings(row, class_index, count), since_s)


def _n_unnamed(table: Bytes) -> int | None:
    """Return how many classes a record of labels has by its length; None if it is none of labels."""
    n, rest = divmod(table.shape[1] - HEAD_BYTES, COUNT.itemsize)
    return n if n > 0 and rest == 0 else None


def _are_labels(heads: NDArray[np.void], counts: NDArray[np.void], n_classes: int) -> Mask:
    """Return which records of one length have nothing but unnamed labels of a model's classes."""
    good = (heads["format"] == FORMATS[0]) & (heads["n_unnamed"] == counts.shape[1])
    for name in ("flags", "n_scores", "n_ratings", "n_slices", "delay"):
        good &= heads[name] == 0
    classes = counts["class_index"].astype(np.int64)
    good &= ((counts["n"] > 0) & (counts["n"] <= MAX_RATINGS_OF_CLASS)).all(axis=1)
    return np.asarray(good & (np.diff(classes) > 0).all(axis=1) & (classes[:, -1] < n_classes))


def _facts(batch: Batch, times: Ints, waiting: _Waiting, received_ms: int) -> _Facts:
    """Return ratings of rows and of the labels that waited for them, times of first facts and delays of labels."""
    own, other = batch.ratings, waiting.ratings
    row = np.concatenate([own.row, other.row])
    order = np.argsort(row, kind="stable") if len(other.row) else slice(None)
    ratings = Ratings(
        row[order],
        np.concatenate([own.class_index, other.class_index])[order],
        np.concatenate([own.count, other.count])[order],
    )
    waited = waiting.since_s >= 0
    # Labels that waited arrived when the id was first received.
    arrived_s = np.where(waited, waiting.since_s, received_ms / 1000)
    delays = delay_bin(arrived_s - times / 1e6)
    labelled = np.bincount(row, minlength=batch.n) > 0
    since_s = np.where(waited, waiting.since_s, received_ms // 1000)
    return _Facts(ratings, since_s, np.where(labelled, delays, UNKNOWN))


def _taken(facts: _Facts, rows: Ints, n: int) -> _Facts:
    """Return the facts of some rows of n, in order."""
    place = np.full(n, -1)
    place[rows] = np.arange(len(rows))
    new = place[facts.ratings.row]
    kept = new >= 0
    ratings = Ratings(new[kept], facts.ratings.class_index[kept], facts.ratings.count[kept])
    return _Facts(ratings, facts.since_s[rows], facts.delays[rows])


def _records(batch: Batch, times: Ints, facts: _Facts, total: Ints) -> list[bytes]:
    """Return the stored record of each row; `total` are its classes with ratings."""
    heads = np.zeros(batch.n, HEAD)
    heads["since_s"], heads["n_scores"] = facts.since_s, batch.n_classes
    heads["n_unnamed"], heads["delay"] = total, facts.delays + 1
    counts = counts_as_bytes(facts.ratings.class_index, facts.ratings.count)
    first = np.cumsum(total) - total
    digests = digests_of_rows(batch)
    found: list[bytes] = [b""] * batch.n
    for rows, number, flags, scores in _forms(batch, total):
        heads["format"][rows], heads["flags"][rows] = number, PREDICTED | flags
        n_unnamed = int(total[rows[0]])
        of_row = counts[first[rows][:, None] + np.arange(n_unnamed)].reshape(len(rows), -1)
        parts = [as_bytes(heads[rows]), of_row, as_bytes(times[rows].astype("<i8"))]
        parts += [digests[rows], scores]
        if batch.weights is not None:
            parts.append(as_bytes(batch.weights[rows].astype("<f8")))
        records = rows_as_bytes(table_of(*parts))
        if len(rows) == batch.n:
            return records
        for row, data in zip(rows.tolist(), records, strict=True):
            found[row] = data
    return found


def _forms(batch: Batch, total: Ints) -> Iterator[tuple[Ints, int, int, Bytes]]:
    """Yield the rows whose records have one form: these, format, flags and the bytes of their scores."""
    fits, narrow, totals = narrow_scores(batch.scores, np.full(batch.n, batch.is_logits))
    divided = fits & (totals != 1.0)
    always = (LOGITS if batch.is_logits else 0) | (0 if batch.weights is None else WEIGHTED)
    for chosen, is_narrow, is_divided in (
        (fits & ~divided, True, False), (divided, True, True), (~fits, False, False)
    ):  # fmt: skip
        for n_unnamed in np.unique(total[chosen]).tolist():
            rows = np.flatnonzero(chosen & (total == n_unnamed))
            values = narrow[rows].astype("<f4") if is_narrow else batch.scores[rows].astype("<f8")
            scores = as_bytes(values)
            if is_divided:
                scores = table_of(scores, as_bytes(totals[rows].astype("<f8")))
            number = DIVIDED if is_divided else FORMATS[0]
            yield rows, number, always | (NARROW if is_narrow else 0), scores
