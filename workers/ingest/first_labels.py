"""First labels of predictions that wait for them, joined by columns instead of record by record.

Most labels that come by id are of one form: one unnamed rating of a prediction that has none yet and is a unit of its own,
without slices. Such records of equal length are a table of bytes: scores, times and the records with their labels are computed for all
of them at once. The results are those of `RetainedRecord.with_unnamed` and `timed`, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN, delay_bin
from calibrant.core.batch import Ratings
from calibrant.core.hashing import hash_names
from calibrant_server.workers.ingest.joined_records import (
    HEAD_BYTES,
    MAX_CLASS,
    Bytes,
    Ints,
    JoinedRecords,
    Mask,
    as_bytes,
    counts_as_bytes,
    heads_of,
    rows_as_bytes,
    rows_by_id,
    table_of,
)
from calibrant_server.workers.ingest.payloads import PlainLabels
from calibrant_server.workers.ingest.retained_prediction import LOGITS, NARROW, WEIGHTED
from calibrant_server.workers.ingest.retained_record import (
    DIVIDED,
    FORMATS,
    MAX_RATINGS_OF_CLASS,
    PREDICTED,
)
from calibrant_server.workers.ingest.tail_rows import TailRows
from calibrant_server.workers.store.model_config import ModelConfig

_PLAIN_FLAGS = PREDICTED | LOGITS | NARROW | WEIGHTED
# Bytes of time and digest before the scores, and of a sum or weight.
_TIME_BYTES, _NUMBER_BYTES = 16, 8


def first_labels(
    config: ModelConfig,
    labels: PlainLabels,
    records: Mapping[str, bytes],
    received_ms: int,
    kept_from_us: int,
) -> tuple[list[JoinedRecords], list[int]]:
    """Join the labels of predictions that wait for their first one; also return the places of the others, in order.

    Parameters
    ----------
    labels : of different ids
    records : stored records by id
    kept_from_us : event times before it have outlived their retention
    """
    found: list[JoinedRecords] = []
    left, forms = _by_form(list(map(records.get, labels.ids)))
    storable = are_storable(labels)
    for (number, flags, length), some in forms.items():
        if length != _length(number, flags, config.n_classes):
            left += some
            continue
        places = np.array(some)
        before = _joined([records[labels.ids[i]] for i in some])
        good = _waits(before, config.n_classes, kept_from_us) & storable[places]
        left += places[~good].tolist()
        if good.any():
            own = places[good]
            had = [records[labels.ids[i]] for i in own.tolist()]
            found.append(_labelled(config, labels.take(own), had, before[good], received_ms))
    return found, sorted(left)


def are_storable(labels: PlainLabels) -> Mask:
    """Return which labels a record can have."""
    good = (labels.class_index >= 0) & (labels.class_index <= MAX_CLASS)
    good &= (labels.n_ratings > 0) & (labels.n_ratings <= MAX_RATINGS_OF_CLASS)
    return np.asarray(good)


def _waits(before: Bytes, n_classes: int, kept_from_us: int) -> Mask:
    """Return which records have nothing but a prediction, which is still retained."""
    heads = heads_of(before)
    nothing = np.ones(len(before), np.bool_)
    for name in ("n_unnamed", "n_ratings", "n_slices", "delay"):
        nothing &= heads[name] == 0
    good = (heads["n_scores"] == n_classes) & nothing & (_times(before) >= kept_from_us)
    if before[0, 0] == DIVIDED:
        totals = _totals(before, int(before[0, 1]), n_classes)
        good &= (totals > 0.5) & (totals < 2.0)
    return np.asarray(good)


def _labelled(
    config: ModelConfig,
    labels: PlainLabels,
    had: list[bytes],
    before: Bytes,
    received_ms: int,
) -> JoinedRecords:
    """Return records of one form with their labels, and the rows that these change."""
    n, event_us = len(before), _times(before)
    delays = delay_bin(received_ms / 1000 - event_us / 1e6)
    heads = heads_of(before)
    heads["n_unnamed"], heads["delay"] = 1, delays + 1
    counts = counts_as_bytes(labels.class_index, labels.n_ratings)
    after = table_of(as_bytes(heads), counts, before[:, HEAD_BYTES:])
    ratings = Ratings(np.arange(n), labels.class_index, labels.n_ratings)
    lost, gained = _rows(config, labels.ids, before, ratings, delays)
    return JoinedRecords(
        labels.ids, had, rows_as_bytes(after), np.ones(n, np.bool_), event_us, lost, gained
    )


def _by_form(
    records: list[bytes | None],
) -> tuple[list[int], dict[tuple[int, int, int], Sequence[int]]]:
    """Return the places of absent records, and those of the others by format, flags and length."""
    absent: list[int] = []
    forms: dict[tuple[int, int, int], list[int]] = {}
    for i, data in enumerate(records):
        if data is None or len(data) < HEAD_BYTES:
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
    return HEAD_BYTES + _TIME_BYTES + n_classes * _width(flags) + n_numbers * _NUMBER_BYTES


def _width(flags: int) -> int:
    return 4 if flags & NARROW else 8


def _joined(records: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)


def _column(table: Bytes, at: int, dtype: str, n: int) -> NDArray[np.float64] | Ints:
    size = np.dtype(dtype).itemsize
    return np.ascontiguousarray(table[:, at : at + n * size]).view(dtype)


def _times(table: Bytes) -> Ints:
    return np.asarray(_column(table, HEAD_BYTES, "<i8", 1)[:, 0], np.int64)


def _totals(table: Bytes, flags: int, n_classes: int) -> NDArray[np.float64]:
    at = HEAD_BYTES + _TIME_BYTES + n_classes * _width(flags)
    return np.asarray(_column(table, at, "<f8", 1)[:, 0], np.float64)


class _Scores(NamedTuple):
    """Scores and weights of records of one form."""

    scores: NDArray[np.float64]
    weights: NDArray[np.float64]
    is_logits: bool

    @classmethod
    def of(cls, before: Bytes, n_classes: int) -> _Scores:
        n, number, flags = len(before), int(before[0, 0]), int(before[0, 1])
        at = HEAD_BYTES + _TIME_BYTES
        dtype = "<f4" if flags & NARROW else "<f8"
        scores = _column(before, at, dtype, n_classes).astype(np.float64)
        at += n_classes * _width(flags)
        if number == DIVIDED:
            scores /= _totals(before, flags, n_classes)[:, None]
            at += _NUMBER_BYTES
        weights = np.ones(n)
        if flags & WEIGHTED:
            weights = _column(before, at, "<f8", 1)[:, 0].astype(np.float64)
        return cls(scores, weights, bool(flags & LOGITS))


def _rows(
    config: ModelConfig, names: list[str], before: Bytes, ratings: Ratings, delays: Ints
) -> tuple[TailRows, TailRows]:
    """Return the rows of some records before and after their label, as `TailRows.of_records` does."""
    scores, weights, is_logits = _Scores.of(before, config.n_classes)
    none, unknown = np.zeros(0, np.int64), np.full(len(before), UNKNOWN)
    hashes = hash_names(names)
    return (
        rows_by_id(config.task, scores, is_logits, weights, Ratings(none, none, none), unknown, hashes, -1),
        rows_by_id(config.task, scores, is_logits, weights, ratings, delays, hashes, 1),
    )  # fmt: skip
