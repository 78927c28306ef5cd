"""Memory of a process: freed memory is reused for the next batch, and permanent objects are not scanned for garbage.

A batch's arrays are allocated and freed many times per second. Returning them to the system costs a page fault per 4096
bytes. Reading a body creates so many lists that Python would scan all objects of the process for circular garbage again
and again.

The memory limit of the process is the smallest one of its control groups and their ancestors, or the machine's memory.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Of mallopt(3). Blocks up to the first size come from memory freed before. At the end of an arena, free memory up to the
# second size is retained.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MAX_REUSED_BLOCK_BYTES = 8 << 20
_RETAINED_FREE_BYTES = 16 << 20
_GROWTH_BYTES = 1 << 20
# New objects between two collections; a batch of thousands of labels has fewer, and Python's default of 700 is reached by a hundred rows.
_GARBAGE_THRESHOLDS = (100_000, 10, 10)
# How long a computing thread delays another thread; Python's default is 5 ms.
_SWITCH_S = 0.001
# Of cgroup v2: a process above `memory.high` is throttled, not killed.
_V2_LIMITS = ("memory.max", "memory.high")
_V1_LIMIT = "memory.limit_in_bytes"


def memory_limit_bytes(
    cgroups: Path = Path("/sys/fs/cgroup"),
    own: Path = Path("/proc/self/cgroup"),
    meminfo: Path = Path("/proc/meminfo"),
) -> int:
    """Return the bytes of memory that this process may use: the smallest limit of its cgroups (v1, v2) or the machine's memory.

    Parameters
    ----------
    cgroups : where cgroups are mounted
    own : which cgroups the process is in; `/` in a container with a cgroup namespace
    meminfo : memory of the machine
    """
    limits = [_machine_bytes(meminfo)]
    for file in _limit_files(cgroups, _text(own)):
        text = _text(file).strip()
        if text.isdecimal() and int(text) > 0:  # "max", a missing file: no limit
            limits.append(int(text))
    return min(limits)


def _limit_files(cgroups: Path, own: str) -> Iterator[Path]:
    """Limits of the process's cgroups up to the root; a container may see its own as the root, under a host's path."""
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inside = Path(path.strip().lstrip("/"))
        for folder in (inside, *inside.parents):
            if number == "0" and not controllers:
                for mount in (cgroups, cgroups / "unified"):
                    yield from (mount / folder / name for name in _V2_LIMITS)
            elif "memory" in controllers.split(","):
                yield cgroups / "memory" / folder / _V1_LIMIT


def _machine_bytes(meminfo: Path) -> int:
    for line in _text(meminfo).splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _text(file: Path) -> str:
    """Return the contents of a small system file; empty if it is missing or unreadable."""
    try:
        return file.read_text()
    except OSError:
        return ""


def keep_freed() -> bool:
    """Retain freed memory up to a bound; return whether the system's allocator supports it (glibc does)."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {
        _M_MMAP_THRESHOLD: _MAX_REUSED_BLOCK_BYTES,
        _M_TRIM_THRESHOLD: _RETAINED_FREE_BYTES,
        _M_TOP_PAD: _GROWTH_BYTES,
    }
    return all([mallopt(name, value) == 1 for name, value in settings.items()])


def prepare_process() -> None:
    """Prepare for work: exclude existing objects from later garbage collections and switch threads more often."""
    keep_freed()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_S)
