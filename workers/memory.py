"""How a process of ours holds memory: what it frees it keeps for the next batch, and what lives for ever is not searched.

A batch's arrays are made and freed many times a second; handing each back to the system and taking it again costs a
page fault for every 4096 bytes. And reading a body makes so many lists that Python would look for circular garbage among
all objects of the process over and over.

The memory limit of the process is the smallest one of its control groups and their ancestors, or the machine's memory.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Of mallopt(3). A block of up to the first many bytes is taken from memory that was freed before, and of what is free at
# the end of an arena up to the second many bytes are kept.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MAX_KEPT_BYTES = 8 << 20
_KEPT_BYTES = 16 << 20
_GROWTH_BYTES = 1 << 20
# New objects between two looks for circular garbage; Python's own 700 are made by a hundred rows.
_GARBAGE_THRESHOLDS = (20_000, 10, 10)
# How long a thread that computes keeps another one waiting that has something to say; Python's own is 5 ms.
_SWITCH_S = 0.001
# Of cgroup v2: a process above `memory.high` is not ended, but it is throttled until it is below.
_V2_LIMITS = ("memory.max", "memory.high")
_V1_LIMIT = "memory.limit_in_bytes"


def memory_limit_bytes(
    cgroups: Path = Path("/sys/fs/cgroup"),
    own: Path = Path("/proc/self/cgroup"),
    meminfo: Path = Path("/proc/meminfo"),
) -> int:
    """Bytes of memory that this process may use: the smallest limit of its cgroups, v1 or v2, or the machine's memory.

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
    """Contents of a small file of the system, empty where there is none that we may read."""
    try:
        return file.read_text()
    except OSError:
        return ""


def keep_freed() -> bool:
    """Keep freed memory up to a bound; tells whether this system's allocator takes such settings (glibc's does)."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {
        _M_MMAP_THRESHOLD: _MAX_KEPT_BYTES,
        _M_TRIM_THRESHOLD: _KEPT_BYTES,
        _M_TOP_PAD: _GROWTH_BYTES,
    }
    return all([mallopt(name, value) == 1 for name, value in settings.items()])


def settle() -> None:
    """Before work begins: what was made so far stays out of every later search for garbage, and threads change more often."""
    keep_freed()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_S)
