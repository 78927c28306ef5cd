"""The service with few descriptors: half-sent requests neither stop it nor fill its log."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import reserved_port
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
DESCRIPTORS, HALF_SENT = 160, 220


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Port of a service that may open 160 descriptors; its log is `service.log`."""
    port = reserved_port()
    named = {"CALIBRANT_PORT": str(port), "CALIBRANT_DATA_DIR": str(tmp_path / "data")}
    kept = {name: each for name, each in os.environ.items() if not name.startswith("CALIBRANT_")}
    limit = (DESCRIPTORS, DESCRIPTORS)
    with (tmp_path / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "service"],
            env=kept | named,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
        )
    try:
        eventually(lambda: is_live(port), pause_s=0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def is_live(port: int) -> bool:
    try:
        return (
            httpx.get(f"http://127.0.0.1:{port}/livez", timeout=60, verify=False).status_code == 200
        )
    except httpx.TransportError:
        return False


def half_sent(port: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), timeout=60)
    opened.sendall(b"GET / HTTP/1.1\r\nX: ")
    return opened


def test_half_sent_requests_neither_stop_the_service_nor_fill_its_log(
    port: int, tmp_path: Path
) -> None:
    started = time.monotonic()
    held = [half_sent(port) for _ in range(HALF_SENT)]
    assert is_live(port)
    columns = {"probabilities": [[0.7, 0.3]], "labels": [0]}
    sent = httpx.post(
        f"http://127.0.0.1:{port}/v1/models/m/predictions",
        json=columns,
        headers={"Prefer": "wait=60"},
        timeout=90,
    )
    assert sent.json()["status"] == "merged"
    log = (tmp_path / "service.log").read_text()
    assert len(log.splitlines()) < 30, log[-3000:]
    # The last ones were never displaced: their time limit ends them.
    held[-1].settimeout(60)
    assert held[-1].recv(1) == b"" and time.monotonic() - started > 5
    for each in held:
        each.close()
