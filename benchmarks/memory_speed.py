"""Results from rows against the speed of memory: `python -m benchmarks.memory_speed`, one table with the goals.

`mm` is numpy's `p.max(1)` and `p.argmax(1)` of the same array in the same run. Times are CPU, one thread, the least of several rounds in which
the cases take turns; that of two threads is clock time. A figure of "mm + 3 ms" is the time less 3 ms, divided by mm.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

import calibrant as cal
from benchmarks.rows import METRICS, rows
from calibrant.kernel.threads import VARIABLE

Call = Callable[[], object]
# Rows, classes, goals of metrics and of the temperature with its interval in mm; None: none is set.
SIZES = (
    (1_000_000, 2, 1.0, None),
    (1_000_000, 10, 1.0, 5.0),
    (100_000, 100, 3.0, None),
    (20_000, 1_000, 3.0, 10.0),
)
MANY, FIXED_S, N_RATERS = 1_000_000, 3e-3, 5
FIRST = "import calibrant as cal, numpy as np; cal.ece(np.full((10, 2), 0.5), np.zeros(10, int))"


@dataclass(frozen=True)
class Line:
    """A measured number with its goal, which is its maximum; None where none is set."""

    what: str
    value: float
    unit: str
    goal: float | None = None

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"{self.goal:g}"
        met = "" if self.goal is None else "reached" if self.value <= self.goal else "missed"
        return f"| {self.what} | {self.value:.3g} | {self.unit} | {goal} | {met} |"


def seconds(call: Call, clock: Callable[[], float] = time.process_time) -> float:
    """Return the time of a call."""
    start = clock()
    call()
    return clock() - start


def least(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the least CPU time of each call over rounds in which they take turns, after a first one."""
    for call in calls.values():
        call()
    taken = [{name: seconds(call) for name, call in calls.items()} for _ in range(rounds)]
    return {name: min(each[name] for each in taken) for name in calls}


def of_memory(p: np.ndarray) -> Call:
    """Return the call whose time is mm."""
    return lambda: (p.max(1), p.argmax(1))


def ratios(rounds: int) -> Iterator[Line]:
    """Yield metrics and temperature of each size and type of number, and 12 metrics of ten classes."""
    for n, n_classes, goal, goal_of_fit in SIZES:
        for dtype in (np.float64, np.float32):
            p, y = rows(n, n_classes, dtype)
            calls = {slug: partial(getattr(cal, slug), p, y) for slug in METRICS}
            calls["fit_temperature"] = partial(cal.fit_temperature, p, y)
            if n_classes == 10:
                calls["evaluate"] = partial(cal.evaluate, p, y)
            found = least({"mm": of_memory(p), **calls}, rounds)
            name, memory = f"{n:,} x {n_classes} {np.dtype(dtype).name}", found.pop("mm")
            yield Line(f"p.max(1) and p.argmax(1), {name}", 1e3 * memory, "ms")
            for slug in METRICS:
                value = (found.pop(slug) - FIXED_S) / memory
                yield Line(f"{slug}, {name}", value, "mm + 3 ms", goal)
            for what, goal_of in (("fit_temperature", goal_of_fit), ("evaluate", 25.0)):
                if what in found:
                    yield Line(f"{what}, {name}", found[what] / memory, "mm", goal_of)


def raters(rounds: int) -> Iterator[Line]:
    """Yield what five raters take of one."""
    p, y = rows(MANY // 4, 10, np.float64)
    several = np.stack([y] * N_RATERS, axis=1)
    several[::3, 0] = 0
    for name in ("ece", "evaluate"):
        what = getattr(cal, name)
        found = least({"one": partial(what, p, y), "several": partial(what, p, several)}, rounds)
        value = found["several"] / found["one"]
        yield Line(f"{name} of 5 raters over one, {MANY // 4:,} x 10", value, "", 2.0)


def threads(rounds: int) -> Iterator[Line]:
    """Yield the clock time of two threads over that of one."""
    p, y = rows(MANY, 10, np.float64)
    taken: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(rounds):
        for number, each in taken.items():
            os.environ[VARIABLE] = number
            each.append(seconds(partial(cal.ece, p, y), time.perf_counter))
    os.environ[VARIABLE] = "1"
    yield Line("ece, two threads over one, clock", min(taken["2"]) / min(taken["1"]), "", 0.7)


def memory() -> Iterator[Line]:
    """Yield the peak of memory above the input, in copies of it."""
    for dtype in (np.float64, np.float32):
        p, y = rows(MANY, 10, dtype)
        for what, goal in (("ece", 0.5), ("brier", 0.5), ("fit_temperature", None)):
            tracemalloc.start()
            getattr(cal, what)(p, y)
            peak = tracemalloc.get_traced_memory()[1] / p.nbytes
            tracemalloc.stop()
            name = f"{what}, {MANY:,} x 10 {np.dtype(dtype).name}"
            yield Line(f"peak memory of {name}", peak, "copies", goal)


def small(rounds: int) -> Iterator[Line]:
    """Yield the time of small calls, and of the first one of a process above that of importing numpy."""
    for n, goal in ((10, 0.5), (1_000, 2.0)):
        p, y = rows(n, 10, np.float64)
        found = least({"ece": partial(cal.ece, p, y)}, 40 * rounds)
        yield Line(f"ece of {n:,} rows", 1e3 * found["ece"], "ms", goal)
    above = _process_s(FIRST, rounds) - _process_s("import numpy", rounds)
    yield Line("first ece of a process, above importing numpy", above, "s", 0.15)


def _process_s(program: str, rounds: int) -> float:
    """Return the least CPU time of a process."""

    # Compiled modules are stored, as after an installation.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}

    def run() -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)
        after = os.times()
        ran = (after.children_user, after.children_system)
        return sum(ran) - before.children_user - before.children_system

    return min(run() for _ in range(rounds + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ[VARIABLE] = "1"
    print("| what | measured | unit | goal | |\n|---|---|---|---|---|")
    for lines in (small(rounds), threads(rounds), memory(), raters(rounds), ratios(rounds)):
        for line in lines:
            print(line, flush=True)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
