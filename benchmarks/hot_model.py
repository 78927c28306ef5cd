"""`python -m benchmarks.hot_model`: CPU per prediction of each partition of a hot model, driven by hand in one thread.

How much a partition takes limits throughput where partitions have cores of their own, which this machine may not show. Each commit takes
the given number of batches, of 1,000 rows by default. Nothing waits: neither for further batches, nor between commits.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.fleet import N_CLASSES
from calibrant import Batch
from calibrant_server.workers.ingest import outbox, partition_loop
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

N_STORE_PARTITIONS = 8
SENT_TOGETHER = 200
NEW = ModelConfig(
    tenant="default", model="m", task="multiclass", n_classes=N_CLASSES, generation="", revision=0
)


@dataclass
class Driven:
    """A partition's loop, and the CPU seconds that it has used."""

    loop: PartitionLoop
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.loop._reload()
        self.loop._counted = True

    def step(self) -> bool:
        """Do a step of the loop; return whether there was something to do."""
        started = time.thread_time()
        try:
            return self.loop.step()
        finally:
            self.seconds += time.thread_time() - started


def payloads(n: int, n_rows: int) -> Iterator[bytes]:
    """Return batches as the service stores them; no row is like another."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        scores = rng.dirichlet(np.full(N_CLASSES, 0.3), n_rows).astype(np.float32)
        columns = {"probabilities": scores, "labels": rng.integers(0, N_CLASSES, n_rows)}
        yield Batch.from_columns(columns, task="multiclass", n_classes=N_CLASSES).batch.pack()


def measured(k: int, per_commit: int, n_batches: int, n_rows: int) -> list[float]:
    """Return the µs per prediction of the own partition and of each side partition; the first batches are not measured."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder, "store")) as url:
        settings = EngineSettings(redis_url=url, partitions=N_STORE_PARTITIONS)
        with (
            asyncio.Runner() as runner,
            closing(Store(settings)) as store,
            _without_pauses(per_commit),
        ):
            inbox = Inbox(settings)
            runner.run(inbox.open())
            registry = Registry(inbox.client, store.keys)
            config = runner.run(registry.put(replace(NEW, fill_partitions=k), None))
            numbers = [store.keys.number_of(config), *config.side_partitions]
            leases = mock.create_autospec(Leases, instance=True)
            driven = [
                Driven(PartitionLoop(store, number, Numerics(), leases, threading.Event()))
                for number in numbers
            ]
            every = [
                IngestBatch.of(config, f"b{at}", PREDICTIONS, each, blake2b(each, digest_size=16).digest(), n_rows, may_spread=True)
                for at, each in enumerate(payloads(n_batches + SENT_TOGETHER, n_rows))
            ]  # fmt: skip
            for first in range(0, len(every), SENT_TOGETHER):
                if first == SENT_TOGETHER:
                    for each in driven:
                        each.seconds = 0.0
                runner.run(_send(inbox, every[first : first + SENT_TOGETHER]))
                _settle(store, driven)
            runner.run(inbox.close())
    return [1e6 * each.seconds / (n_batches * n_rows) for each in driven]


@contextmanager
def _without_pauses(per_commit: int) -> Iterator[None]:
    def is_full(group: object, n_entries: int) -> bool:
        return n_entries >= per_commit

    with (
        mock.patch.multiple(outbox, _POLL_S=0.0, _POLL_FULL_S=0.0, GATHER_S=0.0),
        mock.patch.multiple(
            partition_loop,
            SHARED_COMMIT_S=0.0,
            SHARED_HOT_COMMIT_S=0.0,
            _MAX_GAP_S=0.0,
            is_full=is_full,
        ),
        mock.patch.object(partition_loop, "next_count", return_value=per_commit),
        mock.patch.object(partition_loop, "_FIRST_COUNT", per_commit),
    ):
        yield


async def _send(inbox: Inbox, batches: list[IngestBatch]) -> None:
    await asyncio.gather(*map(inbox.enqueue, batches))


def _settle(store: Store, driven: list[Driven]) -> None:
    """Step the side partitions, then the own one, until nothing waits."""
    own, *sides = driven
    while True:
        has_worked = any([each.step() for each in (*sides, own)])
        is_waiting = any(store.client.exists(each.loop.keys.outbox_index) for each in sides)
        if not has_worked and not is_waiting:
            return


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=(1, 2, 4))
    parser.add_argument("--per-commit", type=int, nargs="+", default=(100, 20, 5))
    parser.add_argument("--batches", type=int, default=800)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    print(
        "| batches in a commit | partitions | µs of CPU per prediction | of the own partition | of a side partition, at most |"
    )
    print("|---|---|---|---|---|")
    for per_commit in given.per_commit:
        for k in given.partitions:
            own, *sides = measured(k, per_commit, given.batches, given.rows)
            cells = [f"{own + sum(sides):.2f}", f"{own:.2f}", f"{max(sides):.2f}" if sides else "-"]
            print(f"| {per_commit} | {k} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
