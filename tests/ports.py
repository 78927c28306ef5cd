"""Ports for servers that tests start and start again: each is one suite's alone until that has ended."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the ports that systems give to outgoing connections: none of those may take it while a server is down.
_PORTS = range(15_000, 32_000)


def reserved_port() -> int:
    """A free port of 127.0.0.1 that no other process which asks here gets while this one lives."""
    directory = Path(tempfile.gettempdir()) / f"calibrant-test-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        # Never closed: the lock ends with the process.
        lock = os.open(directory / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_free(port):
                return port
        except BlockingIOError:
            pass
        os.close(lock)
    raise RuntimeError("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
