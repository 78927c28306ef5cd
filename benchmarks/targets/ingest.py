"""Ingestion over HTTP: bodies in three forms, small requests, and batches over many slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson

from benchmarks.end_to_end import N_CLASSES, body, columns, floor_s
from benchmarks.requests import ARROW, Service, arrow_body, per_request_s, posts, request, served

ROWS, N_BATCHES = 10_000, 8
N_SLICES, SLICED_ROWS = 50, 500
WAIT = "Prefer: wait=60\r\n"


def _sent(model: str, bodies: list[bytes], kind: str) -> list[bytes]:
    """Return requests that post bodies; the last one waits until all are merged."""
    path = f"/v1/models/{model}/predictions"
    heads = [""] * (len(bodies) - 1) + [WAIT]
    return [
        request("POST", path, each, head, kind) for each, head in zip(bodies, heads, strict=True)
    ]


def measure_text(service: Service, rounds: int) -> Iterator[tuple[str, float]]:
    """Measure JSON and NDJSON relative to reading the same bytes, in turns. Each batch has other rows."""
    for form, kind in (("json", "application/json"), ("ndjson", "application/x-ndjson")):
        per_request_s(service, _sent(form, [body(ROWS, form, seed) for seed in range(2)], kind), 1)
        ratios = []
        for turn in range(1, rounds + 1):
            seeds = range(turn * N_BATCHES, (turn + 1) * N_BATCHES)
            bodies = [body(ROWS, form, seed) for seed in seeds]
            floor = floor_s(bodies[0], form, 6)
            spent = per_request_s(service, _sent(form, bodies, kind), 1)
            ratios.append(spent / floor)
        yield form, float(np.median(ratios))


def _weights(rng: np.random.Generator) -> dict[str, Any]:
    import pyarrow as pa

    return {"weights": pa.array(rng.random(ROWS) + 0.5)}


def _ragged(rng: np.random.Generator) -> dict[str, Any]:
    import pyarrow as pa

    ends = np.concatenate([[0], np.cumsum(rng.integers(1, 10, ROWS))])
    labels = pa.array(rng.integers(0, N_CLASSES, int(ends[-1])).astype("i1"))
    return {"labels": pa.ListArray.from_arrays(pa.array(ends.astype("i4")), labels)}


def _ids(rng: np.random.Generator) -> dict[str, Any]:
    import pyarrow as pa

    return {"ids": pa.array([f"{number:016x}" for number in rng.integers(0, 2**62, ROWS)])}


def _nothing(rng: np.random.Generator) -> dict[str, Any]:
    return {}


ARROW_CASES: dict[str, Callable[[np.random.Generator], dict[str, Any]]] = {
    "arrow": _nothing,
    "arrow_weights": _weights,
    "arrow_ragged": _ragged,
    "arrow_ids": _ids,
}


def measure_arrow(service: Service, rounds: int) -> Iterator[tuple[str, float]]:
    """Measure Arrow streams. Each batch has other rows, as a client's batches have; ids may come once only."""
    for name, more in ARROW_CASES.items():
        found = []
        for turn in range(rounds + 1):
            rngs = [np.random.default_rng((turn, seed)) for seed in range(2 * N_BATCHES)]
            first = turn * len(rngs)
            bodies = [arrow_body(ROWS, first + i, **more(rng)) for i, rng in enumerate(rngs)]
            sent = _sent(name.replace("_", "-"), bodies[: 2 if turn == 0 else None], ARROW)
            found.append(per_request_s(service, sent, 1) / ROWS)
        spent = float(np.median(found[1:]))
        yield name, 1e6 * spent
        if name == "arrow":
            yield "arrow_rate", 2.0 / spent


def measure_small(service: Service, rounds: int, n: int) -> Iterator[tuple[str, float]]:
    """Measure one-row requests of one client and of 64."""
    per_request_s(service, posts("small", 100), 8)
    for name, n_clients in (("one_client", 1), ("many_clients", 64)):
        found = [per_request_s(service, posts("small", n), n_clients) for _ in range(rounds)]
        yield name, 1.0 / float(np.median(found))


def measure_slices(service: Service, n: int) -> Iterator[tuple[str, float]]:
    """Measure batches whose rows are in 50 slices besides all rows."""
    bodies = []
    for seed in range(n):
        values = [f"v{row % N_SLICES}" for row in range(SLICED_ROWS)]
        bodies.append(orjson.dumps(columns(SLICED_ROWS, seed) | {"slices": {"site": values}}))
    per_request_s(service, _sent("sliced", bodies[:5], "application/json"), 1)
    yield "slices", 1e3 * per_request_s(service, _sent("sliced", bodies, "application/json"), 1)


def measure(rounds: int, n_small: int, n_sliced: int) -> Iterator[tuple[str, float]]:
    """Measure all of them on one service."""
    with served() as service:
        yield from measure_text(service, rounds)
        yield from measure_arrow(service, rounds)
        yield from measure_small(service, rounds, n_small)
        yield from measure_slices(service, n_sliced)
