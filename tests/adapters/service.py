"""A service of its own for tests that run in the environment of an adapter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.ports import reserved_port

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300


@contextmanager
def running_service(folder: Path) -> Iterator[str]:
    """Start a service with the embedded store in a folder; yield its address."""
    port = reserved_port()
    environment = os.environ | {
        "PORT": str(port), "DATA_DIR": str(folder / "data"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "service"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + PATIENCE_S
        while not _is_ready(address):
            is_waiting = process.poll() is None and time.monotonic() < deadline
            assert is_waiting, (folder / "log").read_text()
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz").status_code == 200
    except httpx.HTTPError:
        return False
