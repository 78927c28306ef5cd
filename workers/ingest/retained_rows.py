"""Rows of a batch as retained records, and retained records as batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from calibrant.core.float32 import Narrow, sent_as_float32
from calibrant_server.workers.ingest.retained_record import COUNT_STRUCT, Prediction, RetainedRecord


def rows_of(
    batch: Batch, received_us: int, sent: Batch | None = None
) -> Iterable[tuple[str, Prediction, dict[int, int]]]:
    """Yield id, prediction and unnamed ratings of each row of a batch with ids; repeats are recognised by `sent`."""
    assert batch.ids is not None
    digests = row_digests(batch if sent is None else sent)
    narrow: list[Narrow | None] = (
        [None] * batch.n if batch.is_logits else sent_as_float32(batch.scores)
    )
    times = None if batch.event_times is None else batch.event_times.tolist()
    weights = None if batch.weights is None else batch.weights.tolist()
    ratings: list[dict[int, int]] = [{} for _ in range(batch.n)]
    for row, class_index, n in zip(
        batch.ratings.row.tolist(),
        batch.ratings.class_index.tolist(),
        batch.ratings.count.tolist(),
        strict=True,
    ):
        ratings[row][class_index] = n
    keys = sorted(batch.slices or {})
    for i in range(batch.n):
        yield (
            str(batch.ids[i]),
            Prediction(
                batch.scores[i],
                batch.is_logits,
                received_us if times is None else times[i],
                digests[i],
                None if weights is None else weights[i],
                None if batch.units is None else str(batch.units[i]),
                None if batch.cases is None else str(batch.cases[i]),
                tuple((key, str((batch.slices or {})[key][i])) for key in keys),
                narrow[i],
            ),
            ratings[i],
        )


def row_digests(batch: Batch) -> list[bytes]:
    """Return eight bytes per row that identify its content, excluding the default event time."""
    slices = sorted((batch.slices or {}).items())
    counts = [b""] * batch.n
    for row, class_index, n in zip(
        batch.ratings.row, batch.ratings.class_index, batch.ratings.count, strict=True
    ):
        counts[row] += COUNT_STRUCT.pack(class_index, n)
    digests = []
    for i in range(batch.n):
        state = blake2b(batch.scores[i].tobytes(), digest_size=8)
        state.update(b"l" if batch.is_logits else b"p")
        state.update(counts[i])
        for column in (batch.weights, batch.event_times, batch.units, batch.cases):
            state.update(b"\0" if column is None else f"\1{column[i]}".encode())
        for key, values in slices:
            state.update(f"\2{key}\3{values[i]}".encode())
        digests.append(state.digest())
    return digests


def batches_of(facts: Iterable[tuple[str, RetainedRecord]], task: str) -> list[Batch]:
    """Return predictions that count, as batches of one shape each, in the given order.

    A unit's rows share its weight and therefore are in one batch. If some of them were sent as logits and some as probabilities,
    the batch has probabilities.
    """
    rows = [
        (name, each, each.prediction)
        for name, each in facts
        if each.prediction is not None and each.counts
    ]
    forms: dict[str, set[bool]] = {}
    for _, _, prediction in rows:
        if prediction.group is not None:
            forms.setdefault(prediction.group, set()).add(prediction.is_logits)
    shapes: dict[Any, list[tuple[str, RetainedRecord, Prediction]]] = {}
    for name, each, sent in rows:
        is_mixed = sent.group is not None and len(forms[sent.group]) > 1
        prediction = _as_probabilities(sent) if is_mixed and sent.is_logits else sent
        named = "unit" if sent.unit is not None else "case" if sent.case is not None else None
        shapes.setdefault((prediction.is_logits, named), []).append((name, each, prediction))
    return [_batch(some, task) for some in shapes.values()]


def _as_probabilities(prediction: Prediction) -> Prediction:
    none = np.zeros(0, np.int64)
    row = Batch("multiclass", prediction.scores[None, :], True, Ratings(none, none, none))
    return replace(prediction, scores=row.probabilities[0], is_logits=False)


def _batch(rows: list[tuple[str, RetainedRecord, Prediction]], task: str) -> Batch:
    predictions = [prediction for _, _, prediction in rows]
    entries = [
        (i, class_index, n)
        for i, (_, each, _) in enumerate(rows)
        for class_index, n in sorted(each.totals.items())
        if n
    ]
    columns = np.array(entries, np.int64).reshape(-1, 3).T
    first = predictions[0]
    weighted = any(p.weight is not None for p in predictions)
    return Batch(
        task=task,
        scores=np.stack([p.scores for p in predictions]),
        is_logits=first.is_logits,
        ratings=Ratings(*(np.ascontiguousarray(column) for column in columns)),
        weights=np.array([1.0 if p.weight is None else p.weight for p in predictions])
        if weighted
        else None,
        ids=np.array([name for name, _, _ in rows], dtype=object),
        delays=np.array([UNKNOWN if each.delay is None else each.delay for _, each, _ in rows]),
        units=None if first.unit is None else np.array([p.unit for p in predictions], dtype=object),
        cases=np.array([p.case for p in predictions], dtype=object)
        if any(p.case for p in predictions)
        else None,
    )
