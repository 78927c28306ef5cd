"""Rows of the scenarios, made of integers and divisions only: equal on every machine."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from tests.recorded.clock import NOW

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

Columns = dict[str, Any]


def at(days_ago: float, seconds: float = 0) -> str:
    """Return a time before the fixed one, RFC 3339."""
    return (
        (NOW - timedelta(days=days_ago) + timedelta(seconds=seconds))
        .isoformat()
        .replace("+00:00", "Z")
    )


def probabilities(seed: int, n: int, k: int = 3) -> list[list[float]]:
    """Return rows of K probabilities: random integers, the cubes of which are divided by their sum."""
    random = Random(seed)
    rows = []
    for _ in range(n):
        weights = [(1 + random.randrange(40)) ** 3 for _ in range(k)]
        rows.append([each / sum(weights) for each in weights])
    return rows


def confidences(seed: int, n: int) -> list[float]:
    """Return probabilities of class 1, multiples of 1/500."""
    random = Random(seed)
    return [random.randrange(1, 500) / 500 for _ in range(n)]


def drawn(seed: int, rows: list[list[float]], sharpness: int = 1) -> list[int]:
    """Return one class per row, drawn with the row's probabilities to the power of `sharpness`."""
    random = Random(seed + 1000)
    weights = [[each**sharpness for each in row] for row in rows]
    return [random.choices(range(len(row)), row)[0] for row in weights]


def drawn_binary(seed: int, values: list[float], shift: float = 0.0) -> list[int]:
    """Return one label per confidence, drawn with that probability, shifted."""
    random = Random(seed + 2000)
    return [int(random.random() < each + shift) for each in values]


def ratings(seed: int, rows: list[list[float]], most: int = 4) -> list[list[int]]:
    """Return one to `most` ratings per row."""
    random = Random(seed + 3000)
    columns = [drawn(seed + i, rows) for i in range(most)]
    return [
        [column[i] for column in columns[: 1 + random.randrange(most)]] for i in range(len(rows))
    ]


def names(prefix: str, n: int, of: int | None = None) -> list[str]:
    """Return `prefix0`, `prefix1`, ..., of `of` different ones."""
    return [f"{prefix}{i % (of or n)}" for i in range(n)]


def times(n: int, days_ago: float, step_s: float = 60) -> list[str]:
    """Return times that are `step_s` apart."""
    return [at(days_ago, i * step_s) for i in range(n)]


def lines(records: Iterable[Any]) -> bytes:
    """Return NDJSON."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def arrow(columns: Columns, compression: str | None = None) -> bytes:
    """Return an Arrow stream of columns."""
    table = pa.table(columns)
    sink = io.BytesIO()
    with ipc.new_stream(
        sink, table.schema, options=ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(table)
    return sink.getvalue()


def batch(seed: int, n: int, k: int = 3, days_ago: float = 3, **more: Any) -> Columns:
    """Return columns of a batch with one label per row."""
    rows = probabilities(seed, n, k)
    columns = {"batch_id": f"batch-{seed}", "probabilities": rows, "labels": drawn(seed, rows)}
    return columns | {"event_times": times(n, days_ago)} | more


def clinic(seed: int, n: int, prefix: str = "scan-", days_ago: float = 3, **more: Any) -> Columns:
    """Return columns with everything: ids, units, cases, slices, weights and several ratings."""
    rows = probabilities(seed, n)
    return {
        "batch_id": f"clinic-{seed}",
        "probabilities": rows,
        "labels": ratings(seed, rows),
        "ids": names(prefix, n),
        "units": names("patient-", n, max(1, n // 3)),
        "cases": names("case-", n, max(1, n // 5)),
        "event_times": times(n, days_ago),
        "slices": {"site": names("S", n, 2), "device": names("d", n, 3)},
        "weights": [1 + i % 3 / 2 for i in range(n)],
        **more,
    }
