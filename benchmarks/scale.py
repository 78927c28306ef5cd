"""`make bench-scale`: throughput with 1, 2 and 4 workers, of 16 models and of one model in 1 and 4 partitions, and how even the work is.

Batches are sent while the workers run; the first half lets the workers share the partitions by bytes merged and is not measured.
No row is sent twice: equal rows would stay in the stored sample, whatever its threshold. The store is a server of its own. One worker
serves a model in one partition, whatever the number of workers. `python -m benchmarks.hot_model` has the CPU of each partition.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import redis

from benchmarks.fleet import N_CLASSES, N_CLIENTS, Meter, working
from benchmarks.requests import ARROW, Service, arrow_body, per_request_s, request, served
from calibrant_server.workers.store.embedded import EmbeddedServer

WORKERS = (1, 2, 4)
# Models, and the partitions that fill each.
MODELS = ((16, 1), (1, 1), (1, 4))


def measured(
    n_workers: int, n_models: int, n_partitions: int, n_rows: int, n_batches: int
) -> list[str]:
    """Send batches, and as many again; return the cells of the second half."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        url = stack.enter_context(EmbeddedServer(Path(folder, "store")))
        service = stack.enter_context(served(str(Path(folder, "data")), CALIBRANT_REDIS_URL=url))
        workers = [stack.enter_context(working(service, url)) for _ in range(n_workers)]
        declare(service, n_models, n_partitions)
        meter = Meter(service, workers[0], redis.Redis.from_url(url))
        per_request_s(service, batches(n_models, n_batches, n_rows, 0), N_CLIENTS)
        meter.wait_merged()
        sent = batches(n_models, n_batches, n_rows, n_batches)
        before, began = [each.processor_s() for each in workers], time.perf_counter()
        per_request_s(service, sent, N_CLIENTS)
        meter.wait_merged()
        seconds = time.perf_counter() - began
        used = [each.processor_s() - cpu for each, cpu in zip(workers, before, strict=True)]
    n_predictions = len(sent) * n_rows
    even = sum(used) / n_workers
    return [
        str(n_models), str(n_partitions), str(n_workers), f"{n_predictions / seconds:,.0f}",
        f"{1e6 * sum(used) / n_predictions:.2f}", f"{1e6 * max(used) / n_predictions:.2f}",
        f"{100 * max(abs(cpu - even) for cpu in used) / even:.0f} %",
    ]  # fmt: skip


def batches(n_models: int, n_batches: int, n_rows: int, first_seed: int) -> list[bytes]:
    """Return requests with rows of their own, to all models in turn."""
    return [
        request(
            "POST",
            f"/v1/models/m{number % n_models:05d}/predictions",
            arrow_body(n_rows, first_seed + number),
            kind=ARROW,
        )
        for number in range(n_batches)
    ]


def declare(service: Service, n_models: int, n_partitions: int) -> None:
    """Create models that so many partitions fill."""
    settings = {"task": "multiclass", "classes": N_CLASSES, "fill_partitions": n_partitions}
    for model in range(n_models):
        service.client.put(f"/v1/models/m{model:05d}", json=settings).raise_for_status()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=4800)
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    given = parser.parse_args()
    print(
        "| models | partitions of each | workers | predictions/s | µs of worker CPU per prediction | of the busiest worker | from even, at most |"
    )
    print("|---|---|---|---|---|---|---|")
    for n_models, n_partitions in MODELS:
        for n_workers in given.workers:
            cells = measured(n_workers, n_models, n_partitions, given.rows, given.batches)
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
