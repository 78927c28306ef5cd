"""The real service as a child process, on its embedded default."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

START_S = 60.0
STOP_S = 20.0


class DemoFailed(Exception):
    """An expectation of the demo failed; the message names it."""


class Server:
    """`python -m service` on a free port, with a temporary data directory."""

    def __init__(self, log: Path, port: int = 0) -> None:
        self.port = port or _free_port()
        self.log = log
        self.data = tempfile.mkdtemp(prefix="calibrant-demo-")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it reports that it is ready."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("CALIBRANT_")
        }
        environment |= {
            "CALIBRANT_HOST": "127.0.0.1",
            "CALIBRANT_PORT": str(self.port),
            "CALIBRANT_DATA_DIR": self.data,
            "CALIBRANT_HOUSEKEEPING": "1",  # cohorts are sealed within a second of their time
        }
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only the demo, which then stops the service
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_S
        with httpx.Client(timeout=2) as client:
            while time.monotonic() < deadline:
                if self.process.poll() is not None:
                    raise DemoFailed(f"the service ended with code {self.process.returncode}")
                try:
                    if client.get(f"{self.url}/readyz").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.1)
        raise DemoFailed(f"the service was not ready after {START_S:.0f} s")

    def stop(self) -> None:
        """Stop it as an operator would, and check that it stops."""
        if self.process is None or self.process.poll() is not None:
            shutil.rmtree(self.data, ignore_errors=True)
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            self.process.wait()
            raise DemoFailed(f"the service did not stop within {STOP_S:.0f} s") from error
        finally:
            shutil.rmtree(self.data, ignore_errors=True)
        if code not in (0, -signal.SIGTERM):
            raise DemoFailed(f"the service stopped with code {code}")

    def last_words(self, lines: int = 30) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
