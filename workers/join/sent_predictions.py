"""Rows of a batch with ids, as records store them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.edge_rules import known_rules
from calibrant.core.float32 import narrow_scores
from calibrant.core.hashing import digests_of
from calibrant_server.workers.join.predictions import Predictions
from calibrant_server.workers.join.record_format import (
    CASE,
    COUNT,
    LOGITS,
    MAX_SHORT,
    NARROW,
    NUMBER,
    PREDICTION,
    RULE_FLAG_BIT,
    SLICED,
    UNIT,
    WEIGHTED,
)
from calibrant_server.workers.segments.ragged import Ints, places, put_table, starts_of


def sent_predictions(batch: Batch, received_ms: int, sent: Batch | None = None) -> Predictions:
    """Return the rows of a batch; one without event times has the time of receipt.

    Parameters
    ----------
    sent : the batch as the client sent it, where slices were renamed: repeats are recognised by it
    """
    times = batch.event_times
    event_us = np.full(batch.n, received_ms * 1000) if times is None else times
    n, n_scores = batch.scores.shape
    fits, narrow, totals = narrow_scores(batch.scores, np.full(n, batch.is_logits))
    is_long, flags, names = _names(batch)
    lengths = np.fromiter(map(len, names), np.int64, n)
    is_divided, n_weights = fits & (totals != 1.0), int(batch.weights is not None)
    width = n_scores * np.where(fits, 4, 8)
    n_bytes = PREDICTION.itemsize + width + NUMBER.itemsize * (is_divided + n_weights) + lengths
    data = np.empty(int(n_bytes.sum()), np.uint8)
    found = Predictions(
        data,
        starts_of(n_bytes),
        n_bytes,
        _flags(batch) | flags | np.where(fits, NARROW, 0) | _rules(batch),
        is_divided,
        is_long,
        np.full(n, n_scores),
        np.full(n, len(batch.slices or {})),
        event_us,
        digests_of_rows(sent or batch).view(np.uint64)[:, 0],
    )
    _put_numbers(found, batch, narrow, totals)
    data[places(found.names_at, lengths)] = np.frombuffer(b"".join(names), np.uint8)
    return found


def _flags(batch: Batch) -> int:
    return (LOGITS if batch.is_logits else 0) | (0 if batch.weights is None else WEIGHTED)


def _rules(batch: Batch) -> Ints:
    return known_rules(batch.edge_rules, batch.n).astype(np.int64) << RULE_FLAG_BIT


def _put_numbers(
    rows: Predictions, batch: Batch, narrow: NDArray[np.float32], totals: NDArray[np.float64]
) -> None:
    """Write times, digests, scores, sums and weights."""
    data, scores_at = rows.data, rows.start + PREDICTION.itemsize
    head = np.empty(batch.n, PREDICTION)
    head["event_us"], head["sent"] = rows.event_us, rows.sent
    put_table(data, rows.start, head)
    some, wide, own = (
        np.flatnonzero(each) for each in (rows.is_narrow, ~rows.is_narrow, rows.is_divided)
    )
    put_table(data, scores_at[some], narrow[some].astype("<f4"))
    put_table(data, scores_at[wide], batch.scores[wide].astype("<f8"))
    put_table(data, rows.sum_at[own], totals[own].astype(NUMBER))
    if batch.weights is not None:
        put_table(data, rows.weight_at, batch.weights.astype(NUMBER))


def _names(batch: Batch) -> tuple[NDArray[np.bool_], int, list[bytes]]:
    """Return whose lengths have two bytes, the flags of the names that a batch has, and the bytes of each row's names."""
    slices = batch.slices or {}
    columns: list[list[str]] = []
    for column in (batch.units, batch.cases):
        if column is not None:
            columns.append(list(map(str, column.tolist())))
    for key in sorted(slices):
        columns += [[key] * batch.n, list(map(str, slices[key].tolist()))]
    flags = UNIT * (batch.units is not None) | CASE * (batch.cases is not None)
    is_long = np.zeros(batch.n, np.bool_)
    if not columns:
        return is_long, flags, [b""] * batch.n
    texts = {name: name.encode() for column in columns for name in set(column)}
    rows = list(zip(*([texts[name] for name in column] for column in columns), strict=True))
    if max(map(len, texts.values())) > MAX_SHORT:
        is_long[:] = [max(map(len, row)) > MAX_SHORT for row in rows]
    packed = {text: bytes([len(text)]) + text for text in texts.values() if len(text) <= MAX_SHORT}
    return (
        is_long,
        flags | SLICED * bool(slices),
        [
            _long(row) if long else b"".join([packed[text] for text in row])
            for row, long in zip(rows, is_long.tolist(), strict=True)
        ],
    )


def _long(names: tuple[bytes, ...]) -> bytes:
    return b"".join([len(text).to_bytes(2, "little") + text for text in names])


def digests_of_rows(batch: Batch) -> NDArray[np.uint8]:
    """Return eight bytes per row that identify its content, excluding the default event time: uint8 (n, 8)."""
    ratings = batch.ratings
    table = np.empty(len(ratings.row), COUNT)
    table["class_index"], table["n"] = ratings.class_index, ratings.count
    packed, ends = table.tobytes(), np.cumsum(np.bincount(ratings.row, minlength=batch.n))
    at = [0, *(ends * COUNT.itemsize).tolist()]
    form = b"l" if batch.is_logits else b"p"
    width = batch.scores.itemsize * batch.scores.shape[1]
    scores = batch.scores.tobytes()
    rows = [
        scores[width * i : width * (i + 1)] + form + packed[at[i] : at[i + 1]] + other
        for i, other in enumerate(_other_columns(batch))
    ]
    return digests_of(rows, 8)


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
