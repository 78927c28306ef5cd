"""Rows one by one, as tuples of plain values: what two versions of the same rows must agree in."""

from __future__ import annotations

from typing import Any, NamedTuple

from calibrant.core.edge_rules import FLOAT32
from calibrant_server.workers.segments.row_columns import SOURCES, RowColumns


class PlainRow(NamedTuple):
    """One row; `scores` are the bytes of the values that were filled."""

    scores: bytes
    ratings: tuple[tuple[int, int], ...]
    is_logits: bool
    count: int
    part: int
    weight: float
    source: str
    delay: int
    hash: int
    unit_hash: int
    case: str | None = None
    slices: tuple[tuple[str, str], ...] = ()
    start_s: int = 0
    edge_rule: int = FLOAT32


def plain(rows: RowColumns) -> list[PlainRow]:
    """Return rows one by one."""
    ratings: list[list[Any]] = [[] for _ in range(len(rows))]
    counted = rows.counted_ratings
    for row, *rating in zip(counted.row, counted.class_index, counted.count, strict=True):
        ratings[row].append(tuple(map(int, rating)))
    names = [*rows.names, None]
    return [
        PlainRow(
            rows.scores.values[i].tobytes(),
            tuple(ratings[i]),
            bool(fixed["is_logits"]),
            int(fixed["count"]),
            int(fixed["part"]),
            float(fixed["weight"]),
            SOURCES[fixed["source"]],
            int(fixed["delay"]),
            int(fixed["hash"]),
            int(fixed["unit_hash"]),
            names[fixed["case"]],
            tuple(
                (key, value)
                for key, code in zip(rows.keys, rows.slices[i].tolist(), strict=True)
                if (value := names[code]) is not None
            ),
            int(fixed["start_s"]),
            int(fixed["edge_rule"]),
        )
        for i, fixed in enumerate(rows.fixed)
    ]
