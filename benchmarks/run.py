"""`python -m benchmarks.run [words] [--rounds N]`: find the benchmarks, time them, print ratios."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

ROUND_S = 0.2  # a case repeats within a round until this has passed


@dataclass(frozen=True)
class Case:
    """A timed case: `items` is the number processed by one call."""

    name: str
    call: Callable[[], object]
    items: int = 1


@dataclass(frozen=True)
class Benchmark:
    """Cases to compare; `prepare` creates their data."""

    title: str
    prepare: Callable[[], Sequence[Case]]
    baseline: str | None = None


@dataclass(frozen=True)
class Timing:
    """Seconds per item, one for each round."""

    name: str
    seconds: np.ndarray

    def relative_to(self, baseline: Timing) -> np.ndarray:
        """Return the quartiles of the ratio over rounds."""
        return np.asarray(np.quantile(self.seconds / baseline.seconds, [0.25, 0.5, 0.75]))


def found(words: Sequence[str]) -> Iterator[Benchmark]:
    """Yield the benchmarks of this folder's modules whose names contain a word."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name == "run" or (words and not any(word in module.name for word in words)):
            continue
        benchmark = getattr(importlib.import_module(f"benchmarks.{module.name}"), "BENCHMARK", None)
        if benchmark is not None:  # modules that print tables of numbers are run by name
            yield benchmark


def timings(cases: Sequence[Case], rounds: int, title: str) -> list[Timing]:
    """Time the cases in turns, so that other load affects all of them."""
    for case in cases:
        case.call()  # warm up imports, caches and memory
    seconds = np.empty((rounds, len(cases)))
    for turn in track(range(rounds), description=title):
        for column, case in enumerate(cases):
            seconds[turn, column] = _seconds_per_item(case)
    return [Timing(case.name, seconds[:, i]) for i, case in enumerate(cases)]


def _seconds_per_item(case: Case) -> float:
    calls = 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < ROUND_S or calls == 0:
        case.call()
        calls += 1
    return passed / (calls * case.items)


def table(benchmark: Benchmark, measured: Sequence[Timing]) -> Table:
    """Return the table of ratios; the baseline is 1."""
    baseline = next(
        (timing for timing in measured if timing.name == benchmark.baseline), measured[0]
    )
    shown = Table("case", "time / baseline", "middle half", "per item", title=benchmark.title)
    for timing in measured:
        low, median, high = timing.relative_to(baseline)
        name = f"{timing.name} (baseline)" if timing is baseline else timing.name
        per_item = _readable(float(np.median(timing.seconds)))
        shown.add_row(name, f"{median:.3g}", f"{low:.3g} to {high:.3g}", per_item)
    return shown


def _readable(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-details", description=__doc__)
    parser.add_argument("words", nargs="*", help="only modules whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(f"Python {platform.python_version()}, numpy {np.__version__}")
    count = 0
    for benchmark in found(options.words):
        measured = timings(benchmark.prepare(), max(3, options.rounds), benchmark.title)
        console.print(table(benchmark, measured))
        count += 1
    if not count:
        console.print(f"no benchmark matches {' '.join(options.words)}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
