"""Memory that a thread has freed is retained for it, until it is returned to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import threading
from pathlib import Path
from calibrant_server.workers.memory import keep_freed, return_freed

def resident_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(each.split()[1]) / 1024 for each in lines if each.startswith("VmRSS"))

def fill(kept):
    blocks = [bytearray(b"x" * 50_000) for _ in range(1_000)]
    kept.append(blocks[-1])

assert keep_freed()
kept = []
thread = threading.Thread(target=fill, args=(kept,))
thread.start()
thread.join()
before = resident_mb()
return_freed()
print(before - resident_mb())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator of glibc")
def test_freed_memory_of_a_thread_is_returned() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)  # fmt: skip
    assert float(found.stdout) > 30.0
