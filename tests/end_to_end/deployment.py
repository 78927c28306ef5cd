"""A real deployment on this machine: store, workers and HTTP processes that a test may kill and start again."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.clusters import StoreCluster
from tests.conforming import CONFORMING
from tests.forking import ForkedProcess, run_module
from tests.ports import reserved_port
from tests.stores import SERVERS, StoreServer
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
WITH_DETAILS = re.compile("/v1/models/[^/?]+/(metrics|temperature)")


def _stands_in_the_document(response: httpx.Response) -> None:
    if "event-stream" not in response.headers.get("content-type", ""):
        response.read()
        CONFORMING.check(response)


class Deployment:
    """Processes by name: `store`, `http`, `http1`, ..., `worker0`, `worker1`, ... Without workers one process does everything."""

    def __init__(
        self,
        directory: Path,
        n_workers: int = 0,
        store: StoreServer | StoreCluster | None = None,
        n_services: int = 1,
        **environment: str,
    ) -> None:
        self.directory = directory
        names = ["http", *(f"http{i}" for i in range(1, n_services))]
        self.ports = {name: reserved_port() for name in names}
        self.port = self.ports["http"]
        self.n_workers = n_workers
        self.environment = environment
        self.processes: dict[str, ForkedProcess] = {}
        self.target: Callable[[str], None] = run_module  # what a process does with its module
        self.store = store or StoreServer(
            SERVERS["embedded"] or "", directory / "store", appendfsync="always"
        )
        hooks = {"response": [_stands_in_the_document]}
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE_S, event_hooks=hooks
        )

    def __enter__(self) -> Deployment:
        if self.n_workers:
            self.store.start()
        for i in range(self.n_workers):
            self.start(f"worker{i}")
        for name in self.ports:
            self.start(name)
        self.wait_ready()
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=PATIENCE_S)
            except TimeoutError:
                process.kill()
                process.wait()
        if self.n_workers:
            self.store.close()

    def start(self, name: str) -> None:
        """Start a process, or the store again."""
        if name == "store":
            self.store.start()
            return
        module = "service" if name in self.ports else "workers"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("CALIBRANT_")}
        # A store that is slow because the machine is busy is not away.
        patient = {"CALIBRANT_SOCKET_TIMEOUT": "30"}
        environment = (
            kept
            | patient
            | self.environment
            | {
                "PORT": str(self.ports.get(name, self.port)),
                "DATA_DIR": str(self.directory / "data"),
                "PYTHONPATH": str(ROOT),
            }
        )
        if self.n_workers:
            environment = (
                {"CALIBRANT_DURABILITY": "fsync"}
                | environment
                | {"CALIBRANT_REDIS_URL": self.store.url}
            )
        self.processes[name] = ForkedProcess(
            self.target, module,
            environment=environment, directory=self.directory, log=self.directory / f"{name}.log",
        )  # fmt: skip

    def kill(self, name: str) -> None:
        """SIGKILL a process, without notice."""
        if name == "store":
            assert isinstance(self.store, StoreServer)
            self.store.kill()
            return
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def wait_ready(self, seconds: float = PATIENCE_S) -> None:
        """Wait until it answers that it is ready."""
        try:
            eventually(self._is_ready, seconds, 0.05)
        except AssertionError as error:
            logs = "\n".join(path.read_text()[-2000:] for path in self.directory.glob("*.log"))
            raise AssertionError(f"the service is not ready:\n{logs}") from error

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def post(self, path: str, body: dict, wait: int = 60, **options: object) -> dict:
        """POST a batch and wait until it is merged."""
        answer = self.client.post(path, json=body, headers={"Prefer": f"wait={wait}"}, **options)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        result: dict = answer.json()
        assert result["status"] == "merged", result
        return result

    def get(self, path: str, **params: object) -> dict:
        """GET an answer; metrics and temperatures with details."""
        if WITH_DETAILS.fullmatch(path):
            params["include"] = ",".join(filter(None, (str(params.get("include", "")), "details")))
        answer = self.client.get(path, params=params)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        found: dict = answer.json()
        return found
