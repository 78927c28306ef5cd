"""`python -m benchmarks.targets`: every target in one run, as one table.

CPU time is that of service, workers and store; the client is another process. Keys, limits, the access log, folds and commits
are included. CPU seconds depend on the machine and on what else it runs: compare lines of one run.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rich.console import Console

from benchmarks.targets import filling, ingest, lines, reads, state
from calibrant.kernel import status

Measure = Callable[[], Iterator[tuple[str, float]]]


def sections(quick: bool, n_models: int) -> dict[str, Measure]:
    """Return what is measured, in order; `quick` repeats less, for a test of the benchmark itself."""
    rounds, repeats, small, sliced = (1, 5, 64, 5) if quick else (3, 100, 600, 200)
    return {
        "filling": filling.measure_filling,
        "temperature": filling.measure_temperature,
        "rest": state.measure_rest,
        "labels": state.measure_labels,
        "ingest": lambda: ingest.measure(rounds, small, sliced),
        "reads": lambda: reads.measure_warm(repeats),
        "cold": lambda: reads.measure_cold(1 if quick else 3),
        "models": state.measure_many_models,
        "idle": lambda: state.measure_idle(n_models),
    }


def main(chosen: list[str], quick: bool, n_models: int) -> None:
    """Measure and print the table, for a terminal and for the documentation."""
    console, measured, started = Console(), dict[str, float](), time.perf_counter()
    for name, measure in sections(quick, n_models).items():
        if chosen and name not in chosen:
            continue
        for line, value in measure():
            measured[line] = value
            passed = time.perf_counter() - started
            console.print(f"{passed:5.0f} s  {lines.LINES[line].what}: {lines.number(value)}")
    about = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores {platform.machine()}, load {os.getloadavg()[2]:.1f}, {status()}"
    console.print(lines.table(measured, f"Targets ({about})"))
    console.print(f"\n{about}\n\n{lines.markdown(measured)}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "sections", nargs="*", help=f"of {', '.join(sections(False, 1))}; all without"
    )
    parser.add_argument("--quick", action="store_true", help="few repeats, to try it")
    parser.add_argument("--models", type=int, default=10_000, help="idle models")
    options = parser.parse_args()
    main(options.sections, options.quick, options.models)
