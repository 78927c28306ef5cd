"""State: bytes at rest, memory of many models, idle models, and labels that come later."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson

from benchmarks.end_to_end import children, columns
from benchmarks.requests import Service, per_request_s, request, served
from benchmarks.retained import MODEL, Play
from calibrant.core.batch import Batch
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.memory import prepare_process
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.embedded import EmbeddedServer

N_CLASSES, N_RATERS, AT_REST = 10, 5, 100
N_JOINED, N_ONE_ROW = 20_000, 1000
N_CLIENTS, N_VALUES, SETTLE_S, IDLE_S = 64, 20, 30.0, 60.0


def _played(folder: Path, url: str) -> Play:
    settings = EngineSettings(data_dir=folder, partitions=1, retained_bytes=4 << 30)
    return Play(settings.with_url(url))


def measure_rest() -> Iterator[tuple[str, float]]:
    """Measure the memory of the store's keys that hold the rows or sums of a hundred predictions."""
    for name, precision in (("rest_float32", np.float32), ("rest_float64", np.float64)):
        rng = np.random.default_rng(0)
        scores = rng.dirichlet(np.full(N_CLASSES, 0.3), AT_REST).astype(precision)
        labels = rng.integers(0, N_CLASSES, (AT_REST, N_RATERS))
        made = {"probabilities": scores, "labels": labels}
        batch = Batch.from_columns(made, task="multiclass").batch
        entry = IngestBatch.of(MODEL, "b", PREDICTIONS, batch.pack(), batch.digest(), AT_REST)
        with tempfile.TemporaryDirectory() as directory, EmbeddedServer(Path(directory)) as url:
            play = _played(Path(directory), url)
            asyncio.run(_fed(play, entry))
            client = play.store.client
            held = [key for key in client.scan_iter() if _is_state(key)]
            yield name, sum(client.memory_usage(key, samples=0) for key in held) / 1e3


async def _fed(play: Play, entry: IngestBatch) -> None:
    await play.feed(AT_REST, lambda first, n: entry)
    await play.inbox.close()


def _is_state(key: bytes) -> bool:
    return any(part in (b"t", b"s", b"y") for part in key.split(b"|")[0].split(b":"))


def measure_labels() -> Iterator[tuple[str, float]]:
    """Measure CPU time of worker and store: rows with labels, and labels that come later by id."""
    prepare_process()
    with tempfile.TemporaryDirectory() as directory, EmbeddedServer(Path(directory)) as url:
        plain_s, labels_s = asyncio.run(_joined_s(_played(Path(directory), url)))
    yield "labels_by_id", plain_s / labels_s


async def _joined_s(play: Play) -> tuple[float, float]:
    await play.feed(2000, play.predictions("warm", False))
    spent = []
    for make in (
        play.predictions("plain", False),
        play.predictions("img", True),
        play.labels("img"),
    ):
        before = _own_s()
        await play.feed(N_JOINED, make)
        spent.append(_own_s() - before)
    await play.inbox.close()
    return spent[0], spent[2]


def _own_s() -> float:
    """CPU seconds of this process and of the store, its child."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = [Path(f"/proc/{pid}/stat").read_text() for pid in children(os.getpid())]
    words = [text.rpartition(")")[2].split() for text in stats]
    return time.process_time() + sum((int(w[11]) + int(w[12])) / ticks for w in words)


def measure_many_models() -> Iterator[tuple[str, float]]:
    """Measure how much memory a thousand models of one row take in service, workers and store together."""
    with served() as service:
        data = orjson.dumps(columns(1, 0))
        per_request_s(service, [_post("first", data) for _ in range(20)], 4)
        before = service.memory_bytes()
        sent = [_post(f"m{number}", data) for number in range(N_ONE_ROW)]
        per_request_s(service, sent, N_CLIENTS)
        _wait_until_merged(service, [f"m{number}" for number in range(N_ONE_ROW)])
        yield "many_models", (service.memory_bytes() - before) / 1e6


def measure_idle(n_models: int) -> Iterator[tuple[str, float]]:
    """Measure a minute in which no request comes, with many models that have twenty slices each."""
    values = [f"v{number}" for number in range(N_VALUES)]
    data = orjson.dumps(columns(N_VALUES, 0) | {"slices": {"site": values}})
    with served() as service:
        names = [f"m{number}" for number in range(n_models)]
        per_request_s(service, [_post(name, data) for name in names], N_CLIENTS)
        _wait_until_merged(service, names[-N_CLIENTS:])
        time.sleep(SETTLE_S)
        before = service.processor_s()
        time.sleep(IDLE_S)
        yield "idle", (service.processor_s() - before) * 60.0 / IDLE_S


def _post(model: str, data: bytes) -> bytes:
    return request("POST", f"/v1/models/{model}/predictions", data)


def _wait_until_merged(service: Service, names: list[str]) -> None:
    """Post one more batch to each of the last models, and wait for it."""
    data = orjson.dumps(columns(1, 1))
    for name in names[-N_CLIENTS:]:
        path = f"/v1/models/{name}/predictions"
        response = service.client.post(
            path,
            content=data,
            headers={"Prefer": "wait=60", "Content-Type": "application/json"},
        )
        response.raise_for_status()
        assert response.json()["status"] == "merged", response.text
