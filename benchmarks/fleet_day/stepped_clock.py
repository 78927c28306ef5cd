"""A time of day that steps forward for service, workers and store together; clocks that measure durations go on as usual."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from pathlib import Path

_SECOND_NS = 1_000_000_000


class SteppedClock:
    """The time of day of processes that are started with `environment`.

    Parameters
    ----------
    directory : has the offset, which outlives this process, and the library that is preloaded

    Raises
    ------
    RuntimeError
        No C compiler is installed.
    """

    def __init__(self, directory: Path):
        compiler = shutil.which("cc")
        if compiler is None:
            raise RuntimeError("the simulated clock needs a C compiler (cc)")
        directory.mkdir(parents=True, exist_ok=True)
        self._file, library = directory / "clock-offset", directory / "stepped_clock.so"
        source = Path(__file__).with_name("stepped_clock.c")
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
            check=True,
        )
        if not self._file.exists():
            self._write(0)
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._file)}

    def now_s(self) -> float:
        """Return the time of day of these processes, in seconds since the epoch."""
        return (time.time_ns() + self._offset_ns()) / _SECOND_NS

    def step_to(self, to_s: float) -> None:
        """Move the time of day forward; it does not go back."""
        ahead_s = to_s - self.now_s()
        if ahead_s > 0:
            self._write(self._offset_ns() + int(ahead_s * _SECOND_NS))

    def _offset_ns(self) -> int:
        offset_ns: int = struct.unpack("q", self._file.read_bytes())[0]
        return offset_ns

    def _write(self, offset_ns: int) -> None:
        # In place: the processes have mapped this file.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", offset_ns))
