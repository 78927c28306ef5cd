"""A real deployment on this machine: store, workers and HTTP processes that a test may kill and start again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.conforming import CONFORMING
from tests.stores import SERVERS, StoreServer

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stands_in_the_document(response: httpx.Response) -> None:
    if "event-stream" not in response.headers.get("content-type", ""):
        response.read()
        CONFORMING.check(response)


class Deployment:
    """Processes by name: `store`, `http`, `worker0`, `worker1`, ... With no workers all floors share one process."""

    def __init__(self, directory: Path, n_workers: int = 0, **environment: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.n_workers = n_workers
        self.environment = environment
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.store = StoreServer(
            SERVERS["embedded"] or "", directory / "store", appendfsync="always"
        )
        hooks = {"response": [_stands_in_the_document]}
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=30, event_hooks=hooks
        )

    def __enter__(self) -> Deployment:
        if self.n_workers:
            self.store.start()
        for i in range(self.n_workers):
            self.start(f"worker{i}")
        self.start("http")
        self.wait_ready()
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.n_workers:
            self.store.close()

    def start(self, name: str) -> None:
        """Start a process, or the store again."""
        if name == "store":
            self.store.start()
            return
        module = "service" if name == "http" else "workers"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("CALIBRANT_")}
        environment = (
            kept
            | self.environment
            | {
                "PORT": str(self.port),
                "DATA_DIR": str(self.directory / "data"),
                "PYTHONPATH": str(ROOT),
            }
        )
        if self.n_workers:
            environment |= {"CALIBRANT_REDIS_URL": self.store.url, "CALIBRANT_DURABILITY": "fsync"}
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module],
                env=environment,
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """SIGKILL a process, without notice."""
        if name == "store":
            self.store.kill()
            return
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def wait_ready(self, seconds: float = 40) -> None:
        """Wait until it answers that it is ready."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if self.client.get("/readyz", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-2000:] for path in self.directory.glob("*.log"))
                raise AssertionError(f"the service is not ready:\n{logs}")
            time.sleep(0.05)

    def post(self, path: str, body: dict, wait: int = 20, **options: object) -> dict:
        """POST a batch and wait until it is merged."""
        answer = self.client.post(path, json=body, headers={"Prefer": f"wait={wait}"}, **options)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        told: dict = answer.json()
        assert told["status"] == "merged", told
        return told

    def get(self, path: str, **params: object) -> dict:
        """GET an answer."""
        answer = self.client.get(path, params=params)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        found: dict = answer.json()
        return found
