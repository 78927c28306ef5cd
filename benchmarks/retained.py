"""`python -m benchmarks.retained [N]`: store cost of a prediction without its label, and the rate of joined labels.

One partition, one worker in this process, the packaged server with its defaults, ten classes with float32
scores. Only the worker's time is measured: reading the stream, joining, committing.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.core.batch import Batch
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.memory import prepare_process
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.leases import Leases
from calibrant_server.workers.store.model_config import ModelConfig

N_CLASSES = 10
A_BATCH = 2000
LABELLED_SHARE = 0.1
MODEL = ModelConfig("default", "m", "multiclass", N_CLASSES, generation="g1", revision=1)


class Play:
    """A store with one model, an inbox and a worker's loop driven step by step."""

    def __init__(self, settings: EngineSettings):
        self.store = Store(settings)
        self.inbox = Inbox(settings)
        keys = self.store.keys
        self.store.client.hset(keys.of_model(MODEL.key).models, MODEL.key, MODEL.to_json())
        leases = Leases(self.store)
        partition = keys.partition_of(MODEL.key)
        leases.take(partition)
        self.loop = PartitionLoop(self.store, partition, Numerics(), leases, threading.Event())
        self.rng = np.random.default_rng(1)

    @property
    def used_bytes(self) -> int:
        return int(self.store.client.info("memory")["used_memory"])

    async def feed(self, n: int, make: Callable[[int, int], IngestBatch]) -> float:
        """Enqueue n rows; return the worker's seconds."""
        seconds = 0.0
        for first in range(0, n, A_BATCH):
            await self.inbox.enqueue(make(first, min(A_BATCH, n - first)))
            began = time.perf_counter()
            while self.store.client.xlen(self.loop.keys.stream):
                self.loop._step_or_reload()
            seconds += time.perf_counter() - began
        return seconds

    async def waiting(self, n: int, prefix: str, column: str) -> tuple[float, tuple[float, float]]:
        """Send unlabelled predictions; return the worker's seconds, and bytes per record in the store and by its count."""
        before, counted = self.used_bytes, (await self.inbox.tallies(MODEL)).get("bytes", 0)
        seconds = await self.feed(n, self.predictions(prefix, True, column))
        grown, tallies = self.used_bytes - before, await self.inbox.tallies(MODEL)
        return seconds, (grown / n, (tallies["bytes"] - counted) / n)

    def predictions(
        self, prefix: str, with_ids: bool, column: str = "probabilities"
    ) -> Callable[[int, int], IngestBatch]:
        def make(first: int, n: int) -> IngestBatch:
            scores = self.rng.dirichlet(np.full(N_CLASSES, 0.3), n)
            if column == "logits":
                scores = np.log(np.maximum(scores, 1e-30))
            columns: dict[str, Any] = {column: scores.astype(np.float32)}
            if with_ids:
                columns["ids"] = [f"{prefix}-{i:09d}" for i in range(first, first + n)]
            else:
                columns["labels"] = self.rng.integers(0, N_CLASSES, n)
            batch = Batch.from_columns(columns, task="multiclass").batch
            return IngestBatch.of(
                MODEL,
                f"{prefix}{first}",
                PREDICTIONS,
                batch.pack(),
                batch.digest(),
                n,
                retains=with_ids,
            )

        return make

    def labels(self, prefix: str) -> Callable[[int, int], IngestBatch]:
        def make(first: int, n: int) -> IngestBatch:
            classes = self.rng.integers(0, N_CLASSES, n).tolist()
            rows = [
                LabelRow(f"{prefix}-{first + i:09d}", {class_index: 1}, [])
                for i, class_index in enumerate(classes)
            ]
            payload = pack_labels(rows)
            return IngestBatch.of(
                MODEL,
                f"l{prefix}{first}",
                LABELS,
                payload,
                f"{first:016d}".encode(),
                n,
                retains=True,
            )

        return make


async def measure(settings: EngineSettings, n: int) -> None:
    """Print bytes per record and rows per second."""
    play = Play(settings)
    plain_s = await play.feed(n // 10, play.predictions("plain", False))
    pending_s, bytes_ = await play.waiting(n, "img", "probabilities")
    n_labels = int(n * LABELLED_SHARE)
    labels_s = await play.feed(n_labels, play.labels("img"))
    joined = (await play.inbox.tallies(MODEL))["joined"]
    print(f"{n} pending predictions of {N_CLASSES} classes, sent as float32")
    print(
        f"  {bytes_[0]:.0f} bytes each in the store, {bytes_[1]:.0f} by its own count: probabilities, divided by their sum"
    )
    _, narrow = await play.waiting(n // 10, "log", "logits")
    print(
        f"  {narrow[0]:.0f} bytes each in the store, {narrow[1]:.0f} by its own count: logits, kept as float32"
    )
    plain = n // 10 / plain_s
    for name, rate in (
        ("labelled predictions without ids", plain),
        ("predictions with ids, to wait", n / pending_s),
        ("labels by id", n_labels / labels_s),
    ):
        print(f"  {name}: {rate:,.0f} rows a second, {rate / plain:.2f} of the first")
    assert joined == n_labels
    await play.inbox.close()


def main(n: int) -> None:
    prepare_process()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        settings = EngineSettings(
            data_dir=folder, partitions=1, retained_bytes=4 << 30, retained_records=10 * n
        )
        with EmbeddedServer(folder / "store") as url:
            asyncio.run(measure(settings.with_url(url), n))


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000)
