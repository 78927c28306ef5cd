"""Rows of a batch as retained predictions, one by one: the second version of `workers/join/sent_predictions`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.hashing import digests_of
from tests.workers.oracle.retained_prediction import (
    Prediction,
    PredictionColumns,
    Slices,
)
from tests.workers.oracle.retained_record import COUNT_STRUCT


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
