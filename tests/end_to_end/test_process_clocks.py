"""The clock of a service, of a worker, or of a machine is two hours wrong at the start, and jumps while they run.

Every acknowledged batch counts once, in a window of its own, and health is truthful throughout. The store's clock is moved in
`tests/workers/test_store_faults.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from calibrant_server.workers.health import read_health
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from tests.end_to_end.deployment import ROOT, Deployment
from tests.stores import SERVERS, StoreServer
from tests.waiting import PATIENCE_S, eventually
from tests.workers.test_store_faults import Clock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
# For programs with threads, whose waits it leaves alone.
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
HOST = os.uname().nodename
HOUR_S = 3600
N_ROWS = 5


class OfSubprocess:
    """A process of its own program, so that a library can be loaded before it; the interface of `ForkedProcess`."""

    def __init__(self, module: str, environment: dict[str, str], log: Path, cwd: Path) -> None:
        with log.open("ab") as out:
            command = [sys.executable, "-m", module]
            self._process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=out, cwd=cwd
            )
        self.pid, self.poll, self.kill = self._process.pid, self._process.poll, self._process.kill
        self.terminate, self.send_signal = self._process.terminate, self._process.send_signal

    def wait(self, timeout: float | None = None) -> int:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error


class WrongClocks(Deployment):
    """A deployment in which some processes have a clock that a file moves."""

    faked: tuple[str, ...] = ()
    clock: Clock

    def start(self, name: str) -> None:
        if name not in self.faked:
            super().start(name)
            return
        kept = {key: value for key, value in os.environ.items() if not key.startswith("CALIBRANT_")}
        environment = kept | self.environment | self.clock.environment
        environment |= {
            "LD_PRELOAD": str(FAKETIME),
            "PORT": str(self.port),
            "DATA_DIR": str(self.directory / "data"),
            "PYTHONPATH": str(ROOT),
            "CALIBRANT_SOCKET_TIMEOUT": "30",
        }
        if self.n_workers:
            environment |= {
                "CALIBRANT_REDIS_URL": self.store.url,
                "CALIBRANT_DURABILITY": "fsync",
            }
        module = "service" if name in self.ports else "workers"
        self.processes[name] = OfSubprocess(  # type: ignore[assignment]
            module, environment, self.directory / f"{name}.log", self.directory
        )


class Counted:
    """Batches of one model, each acknowledged under its id, and what is counted of them."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.n = deployment, 0

    def _body(self, number: int) -> dict:
        return {
            "probabilities": [[0.7, 0.3]] * N_ROWS,
            "labels": [number % 2] * N_ROWS,
            "ids": [f"{number}-{row}" for row in range(N_ROWS)],
            "batch_id": f"b{number}",
        }

    def send(self) -> None:
        """Send three batches, and an earlier one again: it is known."""
        for _ in range(3):
            self.deployment.post("/v1/models/m/predictions", self._body(self.n))
            self.n += 1
        again = self.deployment.post("/v1/models/m/predictions", self._body(self.n - 2))
        assert again["duplicate"] is True

    def _answer(self, **params: str) -> dict | None:
        """Return the metrics; on a busy machine an answer may be late."""
        answer = self.deployment.client.get("/v1/models/m/metrics", params=params)
        if answer.status_code == 503 and "retry-after" in answer.headers:
            return None
        assert answer.status_code == 200, answer.text
        found: dict = answer.json()
        return found

    def check(self) -> None:
        """Everything counts once, nothing is dead-lettered."""
        now = time.time()
        days = [time.strftime("%Y-%m-%dT00:00:00Z", time.gmtime(now + d * 86400)) for d in (-1, 2)]
        window = {"from": days[0], "to": days[1]}
        found = eventually(lambda: self._answer(metrics="accuracy,ece", **window), pause_s=0.2)
        assert (found["n_predictions"], found["n_labelled"]) == (self.n * N_ROWS, self.n * N_ROWS)
        n_correct = sum(number % 2 == 0 for number in range(self.n))
        assert found["metrics"]["accuracy"]["value"] == pytest.approx(n_correct / self.n, abs=1e-12)
        assert self.deployment.get("/v1/models/m/dead-letters")["dead_letters"] == []
        ready = self.deployment.get("/readyz")
        assert (ready["parked_entries"], ready["stalled_partitions"]) == (0, 0)


def is_green(settings: EngineSettings, n_workers: int) -> bool:
    with closing(Store(settings)) as store:
        found = read_health(store, HOST)
    return found.workers == n_workers and not found.is_red


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed here")
@pytest.mark.parametrize("hours", [2, -2])
@pytest.mark.parametrize("who", ["http", "worker0", "machine"])
def test_a_clock_is_two_hours_wrong_and_jumps(tmp_path: Path, who: str, hours: int) -> None:
    clock = Clock(tmp_path)
    clock.set(hours)
    n_workers = 0 if who == "machine" else 2
    store = StoreServer(SERVERS["embedded"] or "", tmp_path / "store", appendfsync="always")
    deployment = WrongClocks(tmp_path, n_workers, store)
    # With the embedded store one process does everything, and its store has the same clock.
    deployment.faked, deployment.clock = ("http",) if who == "machine" else (who,), clock
    with deployment:
        url = store.url if n_workers else f"unix://{tmp_path / 'data' / 'store' / 'server.sock'}"
        settings = EngineSettings(redis_url=url)
        counted = Counted(deployment)
        for now_wrong_by in (hours, -hours, 0, hours):
            clock.set(now_wrong_by)
            counted.send()
            counted.check()
            eventually(lambda: is_green(settings, n_workers or 1), pause_s=0.2)
        if who == "worker0":
            # While its clock is wrong it dies; the other takes over.
            deployment.kill("worker0")
            counted.send()
            counted.check()
            eventually(lambda: is_green(settings, 1), pause_s=0.2)
            # Without a worker, a backlog is reported, whatever the clock of the next one says.
            deployment.kill("worker1")
            body = counted._body(counted.n)
            answer = deployment.client.post("/v1/models/m/predictions", json=body)
            assert answer.status_code == 202
            counted.n += 1
            stalled = lambda: deployment.get("/readyz")["stalled_partitions"]  # noqa: E731
            eventually(stalled, PATIENCE_S, 0.2)
            assert not is_green(settings, 1)
            clock.set(-hours)
            deployment.start("worker0")
            eventually(lambda: is_green(settings, 1), pause_s=0.2)
            eventually(lambda: not stalled(), PATIENCE_S, 0.2)
            counted.send()
            counted.check()
