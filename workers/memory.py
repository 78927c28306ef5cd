"""How a process of ours holds memory: what it frees it keeps for the next batch, and what lives for ever is not searched.

A batch's arrays are made and freed many times a second; handing each back to the system and taking it again costs a
page fault for every 4096 bytes. And reading a body makes so many lists that Python would look for circular garbage among
all objects of the process over and over.
"""

from __future__ import annotations

import ctypes
import gc
import sys

# Of mallopt(3). A block of up to the first many bytes is taken from memory that was freed before, and of what is free at
# the end of an arena up to the second many bytes are kept.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST_KEPT_BYTES = 8 << 20
_KEPT_BYTES = 16 << 20
_GROWTH_BYTES = 1 << 20
# New objects between two looks for circular garbage; Python's own 700 are made by a hundred rows.
_GARBAGE_THRESHOLDS = (20_000, 10, 10)
# How long a thread that computes keeps another one waiting that has something to say; Python's own is 5 ms.
_SWITCH_S = 0.001


def keep_freed() -> bool:
    """Keep freed memory up to a bound; tells whether this system's allocator takes such settings (glibc's does)."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {
        _M_MMAP_THRESHOLD: _LARGEST_KEPT_BYTES,
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
