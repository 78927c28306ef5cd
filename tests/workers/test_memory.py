"""What a process of ours keeps: freed memory, within a bound, and the objects that it started with."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREED = """
import numpy as np, resource
from calibrant_server.workers.memory import keep_freed
kept = keep_freed() if {on} else False
[np.ones(300_000) for _ in range(5)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    [np.ones(300_000) for _ in range(5)]
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
SETTLED = """
import gc
from calibrant_server.workers.memory import prepare_process
prepare_process()
print(gc.get_freeze_count() > 1000, gc.get_threshold()[0])
"""


def result(text: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_freed_memory_is_taken_again_without_page_faults() -> None:
    assert result(FREED.format(on=True))[0] == "True"
    assert 5 * int(result(FREED.format(on=True))[1]) < int(result(FREED.format(on=False))[1])


def test_what_a_process_starts_with_is_not_searched_for_garbage() -> None:
    assert result(SETTLED) == ["True", "100000"]
