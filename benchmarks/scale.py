"""`make bench-scale`: throughput with 1, 2 and 4 workers, of 16 models and of one model, and how even the work is.

Batches are sent while the workers run; the first half lets the workers share the partitions by bytes merged and is not measured.
No row is sent twice: equal rows would stay in the stored sample, whatever its threshold. The store is a server of its own. One worker
serves a model, whatever the number of workers. `python -m benchmarks.one_model` has what it fills at most.

More processes on the same cores make the same instructions dearer. Two columns show by how much, in the same run: the CPU of the service,
which does the same for each prediction whatever the number of workers, and the `control`, which is the same work every time
(`benchmarks/control.py`). The last column is the CPU of the workers over this control, relative to the first number of workers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import redis

from benchmarks.control import Control, alone_us
from benchmarks.fleet import N_CLASSES, N_CLIENTS, Meter, working
from benchmarks.requests import ARROW, Service, arrow_body, per_request_s, request, served
from calibrant_server.workers.store.embedded import EmbeddedServer

WORKERS = (1, 2, 4)
MODELS = (16, 1)


@dataclass(frozen=True)
class Measured:
    """What the second half of a run took.

    Attributes
    ----------
    workers_s : CPU seconds of each worker
    service_s : of the service
    control_us : of the same work meanwhile, per row
    """

    n_predictions: int
    seconds: float
    workers_s: list[float]
    service_s: float
    control_us: float
    batches_per_commit: float

    def us(self, seconds: float) -> float:
        """Return µs per prediction."""
        return 1e6 * seconds / self.n_predictions

    @property
    def over_control(self) -> float:
        """CPU of the workers per prediction over that of the control."""
        return self.us(sum(self.workers_s)) / self.control_us

    @property
    def from_even(self) -> float:
        """Largest distance of a worker's CPU from an even share, over this share."""
        even = sum(self.workers_s) / len(self.workers_s)
        return max(abs(cpu - even) for cpu in self.workers_s) / even

    def cells(self, first: Measured) -> list[str]:
        """Return the cells of the table, the last one relative to another run."""
        return [
            str(len(self.workers_s)), f"{self.n_predictions / self.seconds:,.0f}", f"{self.batches_per_commit:.2f}",
            f"{self.us(sum(self.workers_s)):.2f}", f"{self.us(max(self.workers_s)):.2f}", f"{100 * self.from_even:.0f} %",
            f"{self.us(self.service_s):.2f}", f"{self.control_us:.2f}", f"{self.over_control / first.over_control:.2f}",
        ]  # fmt: skip


def measured(n_workers: int, n_models: int, n_rows: int, n_batches: int) -> Measured:
    """Send batches, and as many again; return what the second half took."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        url = stack.enter_context(EmbeddedServer(Path(folder, "store")))
        service = stack.enter_context(served(str(Path(folder, "data")), CALIBRANT_REDIS_URL=url))
        workers = [stack.enter_context(working(service, url)) for _ in range(n_workers)]
        declare(service, n_models)
        store = redis.Redis.from_url(url)
        meter = Meter(service, workers[0], store)
        per_request_s(service, batches(n_models, n_batches, n_rows, 0), N_CLIENTS)
        meter.wait_merged()
        sent = batches(n_models, n_batches, n_rows, n_batches)
        commits = n_commits(store)
        before = [each.processor_s() for each in (service, *workers)]
        began = time.perf_counter()
        with Control() as control:
            per_request_s(service, sent, N_CLIENTS)
            meter.wait_merged()
        seconds = time.perf_counter() - began
        after = [each.processor_s() for each in (service, *workers)]
        used_s = [now - cpu for now, cpu in zip(after, before, strict=True)]
        commits = n_commits(store) - commits
    return Measured(
        len(sent) * n_rows, seconds, used_s[1:], used_s[0], control.us_per_row, len(sent) / commits
    )


def n_commits(store: redis.Redis) -> int:
    """Return how many commits of entries the store has served: each trims its stream, and nothing else does."""
    found = store.info("commandstats").get("cmdstat_xtrim", {"calls": 0})
    return int(found["calls"])


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


def declare(service: Service, n_models: int) -> None:
    """Create models."""
    settings = {"task": "multiclass", "classes": N_CLASSES}
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
        f"The control takes {alone_us():.2f} µs of CPU per row before the processes of the benchmark start."
    )
    print(
        "| models | workers | predictions/s | batches per commit | µs of worker CPU per prediction"
        " | of the busiest worker | from even, at most | µs of service CPU | control, µs | worker CPU over control, relative |"
    )
    print(f"|{10 * '---|'}")
    for n_models in MODELS:
        first = None
        for n_workers in given.workers:
            found = measured(n_workers, n_models, given.rows, given.batches)
            first = first or found
            cells = [str(n_models), *found.cells(first)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
