"""`make bench-fleet`: a fleet of models with slices in the real service, compared with what docs/state.md predicts.

Each model gets batches for some hours of event time, with four slice keys of five values. Batches name no ids. CPU time is that
of the service with its workers, and of the store; the client is another process. The store is a server of its own with an
append-only file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import redis

from benchmarks.capacity import Load
from benchmarks.end_to_end import ROOT
from benchmarks.requests import Service, per_request_s, request, served
from calibrant_server.workers.store.embedded import EmbeddedServer

N_CLASSES, N_KEYS, N_VALUES, N_CLIENTS = 10, 4, 5, 32
# Days older than `CALIBRANT_COMPACT_AFTER` would be merged at once.
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
IDLE_S = 60.0


def body(n_rows: int, hour: int, seed: int, n_keys: int) -> bytes:
    """Return rows of one hour, as a client that has float32 scores sends them."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(N_CLASSES, 0.3), n_rows).astype(np.float32)
    at = (START + timedelta(hours=hour, minutes=seed % 60)).isoformat()
    slices = {
        f"key{key}": [f"v{value}" for value in rng.integers(0, N_VALUES, n_rows)]
        for key in range(n_keys)
    }
    columns: dict[str, Any] = {
        "probabilities": scores.tolist(),
        "labels": rng.integers(0, N_CLASSES, n_rows).tolist(),
        "event_times": [at] * n_rows,
    }
    return orjson.dumps(columns | ({"slices": slices} if n_keys else {}))


def requests(n_models: int, hour: int, load: Load, n_keys: int) -> list[bytes]:
    """Return the requests of an hour: batches of all models, in turn."""
    bodies = [body(load.rows_together, hour, seed, n_keys) for seed in range(20)]
    return [
        request("POST", f"/v1/models/m{model:05d}/predictions", bodies[(model + turn) % 20])
        for turn in range(load.batches_an_hour)
        for model in range(n_models)
    ]


class Meter:
    """What service and store have used so far."""

    def __init__(self, service: Service, workers: Service, store: redis.Redis) -> None:
        self._service, self._workers, self._store = service, workers, store
        self._store_pid = int(store.info("server")["process_id"])

    def read(self) -> dict[str, float]:
        """Return CPU seconds, commands, bytes and keys."""
        fields = Path(f"/proc/{self._store_pid}/stat").read_text().rpartition(")")[2].split()
        info: dict[str, Any] = self._store.info()
        return {
            "CPU s": self._service.processor_s() + self._workers.processor_s(),
            "store CPU s": sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"),
            "commands": info["total_commands_processed"],
            "AOF bytes": info["aof_current_size"],
            "keys": sum(each["keys"] for name, each in info.items() if name.startswith("db")),
        }

    def stored_bytes(self) -> int:
        """Return the memory of all keys but stored samples, which do not grow with each hour; without buffers of clients."""
        found = 0
        keys = [key for key in self._store.scan_iter(count=1000) if b":y:" not in key]
        for first in range(0, len(keys), 1000):
            with self._store.pipeline(transaction=False) as pipe:
                for key in keys[first : first + 1000]:
                    pipe.memory_usage(key, samples=0)
                found += sum(each or 0 for each in pipe.execute())
        return found

    def wait_merged(self) -> None:
        """Wait until nothing is queued."""
        while True:
            lines = self._service.client.get("/metrics").text.splitlines()
            [backlog] = [each for each in lines if each.startswith("calibrant_backlog_entries ")]
            if float(backlog.split()[1]) == 0:
                return
            time.sleep(0.5)


@contextmanager
def working(service: Service, url: str) -> Iterator[Service]:
    """Run the workers of a store in a process of their own."""
    environment = os.environ | {"CALIBRANT_REDIS_URL": url, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "workers"]
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield replace(service, process=process)
    finally:
        process.terminate()
        process.wait()


def difference(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Return what was used between two readings."""
    return {name: after[name] - before[name] for name in after}


def measured(n_models: int, hours: int, load: Load, n_keys: int) -> Iterator[tuple[str, float]]:
    """Play the fleet; yield what one batch, one model hour and one idle minute take."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder, "store")) as url:
        store = redis.Redis.from_url(url)
        store.config_set("auto-aof-rewrite-percentage", 0)  # its size is what was written
        limits = {"CALIBRANT_TENANT_MODELS": str(n_models + 1), "CALIBRANT_REDIS_URL": url}
        with (
            served(str(Path(folder, "data")), **limits) as service,
            working(service, url) as workers,
        ):
            meter = Meter(service, workers, store)
            # The first hour creates the models.
            per_request_s(service, requests(n_models, 0, load, n_keys), N_CLIENTS)
            meter.wait_merged()
            stored_bytes, before = meter.stored_bytes(), meter.read()
            for hour in range(1, hours + 1):
                per_request_s(service, requests(n_models, hour, load, n_keys), N_CLIENTS)
                meter.wait_merged()
            used = difference(meter.read(), before)
            n_batches, n_hours = hours * n_models * load.batches_an_hour, hours * n_models
            yield "CPU of service and workers, ms per batch", 1e3 * used["CPU s"] / n_batches
            yield "CPU of the store, ms per batch", 1e3 * used["store CPU s"] / n_batches
            yield "commands per batch", used["commands"] / n_batches
            yield "kB written per batch", used["AOF bytes"] / n_batches / 1e3
            stored_bytes = meter.stored_bytes() - stored_bytes
            yield "kB in the store per model and hour", stored_bytes / n_hours / 1e3
            yield "keys per model and hour", used["keys"] / n_hours
            time.sleep(10)
            before = meter.read()
            time.sleep(IDLE_S)
            idle = difference(meter.read(), before)
            yield "idle minute: CPU s of service and workers", idle["CPU s"] * 60 / IDLE_S
            yield "idle minute: CPU s of the store", idle["store CPU s"] * 60 / IDLE_S
            yield "idle minute: commands", idle["commands"] * 60 / IDLE_S
            yield (
                "MB of service and workers",
                (service.memory_bytes() + workers.memory_bytes()) / 1e6,
            )


def main() -> None:
    """Print measured values, and the prediction of those that have one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=2, help="of event time, after the first")
    parser.add_argument("--batches", type=int, default=2, help="per model and hour")
    parser.add_argument("--rows", type=int, default=50, help="per batch")
    parser.add_argument("--slice-keys", type=int, default=N_KEYS, help="each with five values")
    given = parser.parse_args()
    load = Load(rows_together=given.rows, batches_an_hour=given.batches)
    predicted = load.predicted(N_VALUES * given.slice_keys)
    print("| what | measured | predicted |\n|---|---|---|", flush=True)
    for name, value in measured(given.models, given.hours, load, given.slice_keys):
        expected = f"{predicted[name]:.3g}" if name in predicted else ""
        print(f"| {name} | {value:.3g} | {expected} |", flush=True)


if __name__ == "__main__":
    main()
