"""Entry point of the sandbox's process, apart from `sandbox.py` so that it runs before numpy is imported."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection

# Threads of a linear algebra library reserve address space, which the limit would count.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def run(connection: Connection, numerics_path: str, memory_bytes: int) -> None:
    """Serve requests until the connection ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl+C is for the parent, which ends this process.
    os.environ.update(ONE_THREAD)
    from calibrant_server.workers.ingest import sandbox

    sandbox.serve(connection, numerics_path, memory_bytes)
