"""`python -m benchmarks.one_model`: predictions per second that one worker fills into one model, its partition driven by hand in one thread.

The CPU of the partition's thread is the limit of a model where the worker has a core for it. Each commit takes the given number of
batches, of 1,000 rows by default. Nothing waits: neither for further batches, nor between commits.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.fleet import N_CLASSES
from calibrant import Batch
from calibrant_server.workers.ingest import entry_reader, partition_loop
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.leases import Leases
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import Registry

SENT_TOGETHER = 200
NEW = ModelConfig(
    tenant="default", model="m", task="multiclass", n_classes=N_CLASSES, generation="", revision=0
)


@dataclass
class Driven:
    """A partition's loop, and the seconds that it has used: of CPU, and by the clock, where it also waits for the store."""

    loop: PartitionLoop
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        self.loop._fencing.reload()
        self.loop._counted = True

    def step(self) -> bool:
        """Do a step of the loop; return whether there was something to do."""
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            return self.loop.step()
        finally:
            self.cpu_s += time.thread_time() - cpu
            self.wall_s += time.perf_counter() - wall


def payloads(n: int, n_rows: int) -> Iterator[bytes]:
    """Return batches as the service stores them; no row is like another."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        scores = rng.dirichlet(np.full(N_CLASSES, 0.3), n_rows).astype(np.float32)
        columns = {"probabilities": scores, "labels": rng.integers(0, N_CLASSES, n_rows)}
        yield Batch.from_columns(columns, task="multiclass", n_classes=N_CLASSES).batch.pack()


def measured(per_commit: int, n_batches: int, n_rows: int) -> tuple[float, float]:
    """Return the µs of CPU and by the clock per prediction of a partition; the first batches are not measured."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder, "store")) as url:
        settings = EngineSettings(redis_url=url, partitions=8)
        with (
            asyncio.Runner() as runner,
            closing(Store(settings)) as store,
            _without_pauses(per_commit),
        ):
            inbox = Inbox(settings)
            runner.run(inbox.open())
            config = runner.run(Registry(inbox.client, store.keys).put(NEW, None))
            leases, number = (
                mock.create_autospec(Leases, instance=True),
                store.keys.partition_of(config.key),
            )
            driven = Driven(PartitionLoop(store, number, Numerics(), leases, threading.Event()))
            every = [
                IngestBatch.of(config, f"b{at}", PREDICTIONS, each, blake2b(each, digest_size=16).digest(), n_rows)
                for at, each in enumerate(payloads(n_batches + SENT_TOGETHER, n_rows))
            ]  # fmt: skip
            for first in range(0, len(every), SENT_TOGETHER):
                if first == SENT_TOGETHER:
                    driven.cpu_s = driven.wall_s = 0.0
                runner.run(_send(inbox, every[first : first + SENT_TOGETHER]))
                while driven.step():
                    pass
            runner.run(inbox.close())
    n_predictions = n_batches * n_rows
    return 1e6 * driven.cpu_s / n_predictions, 1e6 * driven.wall_s / n_predictions


@contextmanager
def _without_pauses(per_commit: int) -> Iterator[None]:
    def is_full(group: object, n_entries: int) -> bool:
        return n_entries >= per_commit

    with (
        mock.patch.multiple(partition_loop, SHARED_COMMIT_S=0.0, _MAX_GAP_S=0.0, is_full=is_full),
        mock.patch.object(entry_reader, "next_count", return_value=per_commit),
        mock.patch.object(entry_reader, "FIRST_COUNT", per_commit),
    ):
        yield


async def _send(inbox: Inbox, batches: list[IngestBatch]) -> None:
    await asyncio.gather(*map(inbox.enqueue, batches))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-commit", type=int, nargs="+", default=(100, 20, 5, 1))
    parser.add_argument("--batches", type=int, default=800)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    print(
        "| batches in a commit | µs of CPU per prediction | µs by the clock | predictions/s, at most |"
    )
    print("|---|---|---|---|")
    for per_commit in given.per_commit:
        cpu_us, wall_us = measured(per_commit, given.batches, given.rows)
        print(f"| {per_commit} | {cpu_us:.2f} | {wall_us:.2f} | {1e6 / wall_us:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
