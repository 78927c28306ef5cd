"""Store, service and workers of a simulated deployment, each a process of its own, and what they have used."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis

from benchmarks.end_to_end import ROOT
from benchmarks.fleet_day.stepped_clock import SteppedClock
from benchmarks.requests import Service, processor_s, served
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.key_names import Keys

Reading = dict[str, float]
_POLL_S, _BACKLOG_POLL_S = 0.1, 1.0


@dataclass
class Deployment:
    """Running processes on the simulated clock."""

    clock: SteppedClock
    service: Service
    workers: Service
    store: redis.Redis
    keys: Keys

    def counters(self) -> Reading:
        """Return what only grows while these processes run: CPU seconds, commands, commits, bytes of the append-only file."""
        info: dict[str, Any] = self.store.info("everything")
        return {
            "service CPU s": self.service.processor_s(),
            "worker CPU s": self.workers.processor_s(),
            "store CPU s": processor_s(int(info["process_id"])),
            "rewrite CPU s": info["used_cpu_user_children"] + info["used_cpu_sys_children"],
            "commands": info["total_commands_processed"],
            "commits": info.get("cmdstat_xtrim", {}).get("calls", 0),
            "AOF bytes": info["aof_current_size"],
        }

    def levels(self) -> Reading:
        """Return what is in use now: memory, keys, bytes of batch ids."""
        info: dict[str, Any] = self.store.info("everything")
        return {
            "store bytes": info["used_memory_dataset"],
            "store process bytes": info["used_memory_rss"],
            "keys": sum(each["keys"] for name, each in info.items() if name.startswith("db")),
            "service bytes": self.service.memory_bytes(),
            "worker bytes": self.workers.memory_bytes(),
            "id bytes": sum(map(self._id_bytes, range(self.keys.partitions))),
        }

    def _id_bytes(self, partition: int) -> int:
        """Return the bytes of batch ids as the service counts them for their bound."""
        found: Any = self.store.hvals(self.keys.partition(partition).record_bytes)
        return sum(map(int, found))

    def wait_merged(self) -> None:
        """Wait until nothing is queued."""
        while self._backlog() > 0:
            time.sleep(_BACKLOG_POLL_S)

    def _backlog(self) -> float:
        lines = self.service.client.get("/metrics").text.splitlines()
        [found] = [each for each in lines if each.startswith("calibrant_backlog_entries ")]
        return float(found.split()[1])

    def rewrite(self) -> None:
        """Rewrite the append-only file, which the store does by itself each time that it doubles."""
        self.store.bgrewriteaof()
        while True:
            info: dict[str, Any] = self.store.info("persistence")
            if not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]:
                return
            time.sleep(_POLL_S)


@contextmanager
def deployed(
    directory: Path, start_s: float, server: str | None, **settings: str
) -> Iterator[Deployment]:
    """Start the deployment on what is in a directory, not before a time of day.

    Parameters
    ----------
    server : program of the store; None: the packaged one
    """
    clock = SteppedClock(directory)
    clock.step_to(start_s)
    with _environment(clock.environment), EmbeddedServer(directory / "store", binary=server) as url:
        store = redis.Redis.from_url(url)
        if abs(store.time()[0] - clock.now_s()) > 60:
            raise RuntimeError("the store does not use the simulated clock")
        store.config_set("auto-aof-rewrite-percentage", 0)
        settings |= {"CALIBRANT_REDIS_URL": url}
        keys = Keys("calibrant", int(settings["CALIBRANT_PARTITIONS"]))
        with served(str(directory / "data"), **settings) as service, _working(settings) as process:
            while not store.zcard(keys.workers):
                time.sleep(_POLL_S)
            yield Deployment(clock, service, replace(service, process=process), store, keys)


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _working(settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"} | settings
    command = [sys.executable, "-m", "workers"]
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
