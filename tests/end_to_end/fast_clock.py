"""Clocks of a process that run faster than those of the machine: an hour of the process takes a minute.

libfaketime speeds up both clocks, sleeps and the time limits of sockets. It leaves the waits of Python's locks alone, which
`fast_clock.c` shortens.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

# For programs with threads.
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
COMPILER = shutil.which("cc")
# 1: an hour is an hour.
OUTAGE_SPEED = float(os.environ.get("OUTAGE_SPEED", "60"))
MISSING = "libfaketime or a C compiler is not installed here"
IS_AVAILABLE = OUTAGE_SPEED == 1 or (FAKETIME is not None and COMPILER is not None)


def fast_clock(directory: Path, speed: float) -> dict[str, str]:
    """Return the environment of a process whose clocks run `speed` times as fast; a shared object is compiled for it."""
    if speed == 1:
        return {}
    library = directory / "fast_clock.so"
    source = Path(__file__).with_name("fast_clock.c")
    options = ["-shared", "-fPIC", f"-DSPEED={speed}"]
    subprocess.run([COMPILER or "cc", *options, "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": f"{library}:{FAKETIME}", "FAKETIME": f"+0 x{speed}"}
