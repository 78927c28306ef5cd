"""Rows of a batch as retained predictions, and retained predictions as batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from calibrant.kernel.digests import digests_of
from calibrant_server.workers.ingest.retained_prediction import (
    Prediction,
    PredictionColumns,
    Slices,
    group_name,
    scores_of,
)
from calibrant_server.workers.ingest.retained_record import COUNT_STRUCT, RetainedRecord


class FilledRow(NamedTuple):
    """A retained prediction in the form in which it is filled."""

    name: str
    record: RetainedRecord
    scores: NDArray[np.float64]
    is_logits: bool
    weight: float | None = None
    unit: str | None = None
    case: str | None = None

    @property
    def group(self) -> str | None:
        """Name of the unit that it shares, or None if it is a separate unit."""
        return group_name(self.unit, self.case)


def filled_rows(records: Sequence[tuple[str, RetainedRecord]]) -> list[FilledRow]:
    """Return the predictions that count, as they were sent, in the given order."""
    counted = [(name, each, each.prediction) for name, each in records if each.counts]
    rows = [(name, each, one) for name, each, one in counted if one is not None]
    if not rows:
        return []
    scores = scores_of([one for _, _, one in rows])
    return [
        FilledRow(name, each, values, one.is_logits, one.weight, one.unit, one.case)
        for (name, each, one), values in zip(rows, scores, strict=True)
    ]


def rows_of(
    batch: Batch, received_us: int, sent: Batch | None = None
) -> tuple[list[Prediction], list[dict[int, int]]]:
    """Return prediction and unnamed ratings of each row of a batch with ids; repeats are recognised by `sent`."""
    n = batch.n
    times = np.full(n, received_us) if batch.event_times is None else batch.event_times
    slices: list[Slices] = [()] * n
    if batch.slices:
        keys = sorted(batch.slices)
        columns = [list(map(str, batch.slices[key])) for key in keys]
        slices = [tuple(zip(keys, values, strict=True)) for values in zip(*columns, strict=True)]
    columns_of = PredictionColumns(
        batch.scores,
        batch.is_logits,
        times,
        row_digests(batch if sent is None else sent),
        [None] * n if batch.weights is None else batch.weights.tolist(),
        [None] * n if batch.units is None else list(map(str, batch.units)),
        [None] * n if batch.cases is None else list(map(str, batch.cases)),
        slices,
    )
    ratings: list[dict[int, int]] = [{} for _ in range(n)]
    for row, class_index, count in zip(
        batch.ratings.row.tolist(),
        batch.ratings.class_index.tolist(),
        batch.ratings.count.tolist(),
        strict=True,
    ):
        ratings[row][class_index] = count
    return columns_of.predictions(), ratings


def row_digests(batch: Batch) -> list[bytes]:
    """Return eight bytes per row that identify its content, excluding the default event time."""
    return [digest.tobytes() for digest in digests_of_rows(batch)]


def digests_of_rows(batch: Batch) -> NDArray[np.uint8]:
    """Return the same as an array, uint8 (n, 8)."""
    counts = [b""] * batch.n
    for row, class_index, n in zip(
        batch.ratings.row.tolist(),
        batch.ratings.class_index.tolist(),
        batch.ratings.count.tolist(),
        strict=True,
    ):
        counts[row] += COUNT_STRUCT.pack(class_index, n)
    form = b"l" if batch.is_logits else b"p"
    width = batch.scores.itemsize * batch.scores.shape[1]
    scores = batch.scores.tobytes()
    rest = [form + own + other for own, other in zip(counts, _other_columns(batch), strict=True)]
    return digests_of([scores[width * i : width * (i + 1)] + rest[i] for i in range(batch.n)], 8)


def _other_columns(batch: Batch) -> list[bytes]:
    """Return what a row's digest contains of weight, event time, unit, case and slices."""
    columns = (batch.weights, batch.event_times, batch.units, batch.cases)
    if all(column is None for column in columns) and not batch.slices:
        return [b"\0" * len(columns)] * batch.n
    texts = [""] * batch.n
    for column in columns:
        if column is None:
            texts = [text + "\0" for text in texts]
        else:
            values = column.tolist()
            texts = [f"{text}\1{value}" for text, value in zip(texts, values, strict=True)]
    for key, values in sorted((batch.slices or {}).items()):
        texts = [f"{text}\2{key}\3{value}" for text, value in zip(texts, values, strict=True)]
    return [text.encode() for text in texts]


def batches_of(rows: Sequence[FilledRow], task: str) -> list[Batch]:
    """Return rows as batches of one shape each, in the given order.

    A unit's rows share its weight and therefore are in one batch. If some of them were sent as logits and some as probabilities,
    the batch has probabilities.
    """
    forms: dict[str, set[bool]] = {}
    for row in rows:
        if row.group is not None:
            forms.setdefault(row.group, set()).add(row.is_logits)
    shapes: dict[Any, list[FilledRow]] = {}
    for sent in rows:
        is_mixed = sent.group is not None and len(forms[sent.group]) > 1
        row = as_probabilities(sent) if is_mixed and sent.is_logits else sent
        named = "unit" if sent.unit is not None else "case" if sent.case is not None else None
        shapes.setdefault((row.is_logits, named), []).append(row)
    return [_batch(some, task) for some in shapes.values()]


def as_probabilities(row: FilledRow) -> FilledRow:
    """Return a row of logits with the probabilities that they stand for."""
    none = np.zeros(0, np.int64)
    batch = Batch("multiclass", row.scores[None, :], True, Ratings(none, none, none))
    return row._replace(scores=batch.probabilities[0], is_logits=False)


def _batch(rows: list[FilledRow], task: str) -> Batch:
    entries = [
        (i, class_index, n)
        for i, row in enumerate(rows)
        for class_index, n in sorted(row.record.totals.items())
        if n
    ]
    columns = np.array(entries, np.int64).reshape(-1, 3).T
    first = rows[0]
    weighted = any(row.weight is not None for row in rows)
    delays = [row.record.delay for row in rows]
    return Batch(
        task=task,
        scores=np.stack([row.scores for row in rows]),
        is_logits=first.is_logits,
        ratings=Ratings(*(np.ascontiguousarray(column) for column in columns)),
        weights=np.array([1.0 if row.weight is None else row.weight for row in rows])
        if weighted
        else None,
        ids=np.array([row.name for row in rows], dtype=object),
        delays=np.array([UNKNOWN if delay is None else delay for delay in delays]),
        units=None if first.unit is None else np.array([row.unit for row in rows], dtype=object),
        cases=np.array([row.case for row in rows], dtype=object)
        if any(row.case for row in rows)
        else None,
    )
