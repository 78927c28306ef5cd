"""The deployment of docker-compose.yml as bare processes: same commands, same environment, real store.

What the images add (users, networks, volumes) is read from the files in `test_deployment`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.ports import reserved_port
from tests.stores import SERVERS, StoreServer
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[1]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
Start = Callable[..., subprocess.Popen[bytes]]


def environment(service: str, **changed: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CALIBRANT_")}
    stated = {name: interpolated(value) for name, value in SERVICES[service]["environment"].items()}
    return kept | stated | {"PYTHONPATH": str(ROOT)} | changed


def interpolated(value: str) -> str:
    """Return a value of the file as Compose writes it if no variable is set: `${NAME:-default}` is its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def command(words: list[str]) -> list[str]:
    """The command with the program of this environment: Python, or a script of the distribution."""
    return [str(Path(sys.executable).with_name(words[0])), *words[1:]]


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    def holds() -> bool:
        assert process.poll() is None, "the process has ended"
        return true()

    eventually(holds, 3 * PATIENCE_S, 0.3)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a service of the compose file; its output goes to `<name>.log`."""
    processes: list[subprocess.Popen[bytes]] = []

    def started(service: str, **changed: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                command(SERVICES[service]["command"]),
                env=environment(service, **changed),
                cwd=tmp_path,
                stdout=log,
                stderr=log,
            )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()


def is_healthy(service: str, **changed: str) -> bool:
    check = SERVICES[service]["healthcheck"]["test"]
    assert check[0] == "CMD"
    words = [word.replace(":8000", f":{changed.get('CALIBRANT_PORT')}") for word in check[1:]]
    checked = subprocess.run(
        command(words), env=environment(service, **changed), capture_output=True, check=False
    )
    return checked.returncode == 0


def test_store_workers_and_service_become_healthy_and_merge(
    start_store: Callable[..., StoreServer], start: Start, tmp_path: Path
) -> None:
    store_server = start_store(SERVERS["redis-server"] or SERVERS["embedded"])
    port = str(reserved_port())
    store = {"CALIBRANT_REDIS_URL": store_server.url}
    assert not is_healthy("workers", **store)
    workers = start("workers", **store)
    # Each look at the health is a process of its own, so the log is read first.
    wait_until(lambda: "engine_started" in (tmp_path / "workers.log").read_text(), workers)
    wait_until(lambda: is_healthy("workers", **store), workers)

    keys_file = tmp_path / "keys" / "keys.json"
    door = store | {"CALIBRANT_PORT": port, "CALIBRANT_KEYS_FILE": str(keys_file)}
    service = start("service", **door)
    wait_until(lambda: "startup complete" in (tmp_path / "service.log").read_text(), service)
    wait_until(lambda: is_healthy("service", **door), service)
    key = re.search(r"ck_[A-Za-z0-9_-]+", (tmp_path / "service.log").read_text())
    assert key is not None
    assert key[0] not in keys_file.read_text()

    batch = {"probabilities": [[0.7, 0.2, 0.1]], "labels": [[0, 2]], "batch_id": "first"}
    url = f"http://127.0.0.1:{port}/v1/models/triage/predictions"
    headers = {"Authorization": f"Bearer {key[0]}", "Prefer": "wait=60"}
    assert httpx.post(url, json=batch).status_code == 401
    answer = httpx.post(url, json=batch, headers=headers, timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["status"]) == (200, "merged")

    for process in (service, workers):
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert not is_healthy("workers", **store)
