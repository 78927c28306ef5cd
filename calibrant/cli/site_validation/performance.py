"""Checks of performance: the library's CPU time on this machine, which other load does not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from calibrant import Pane
from calibrant.cli.site_validation.results import Result, judged

# A current machine takes a twentieth.
N_ROWS, N_CLASSES, MAX_CPU_S = 100_000, 10, 10.0


def performance_results() -> Iterator[Result]:
    """Fill and evaluate 100,000 predictions of ten classes."""
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(N_CLASSES), N_ROWS)
    labels = rng.integers(0, N_CLASSES, N_ROWS)
    pane, filling = _timed(lambda: Pane.fill(probabilities, labels))
    yield filling("fill 100,000 predictions of 10 classes")
    _, reading = _timed(lambda: pane.evaluate())
    yield reading("12 metrics with intervals and null references")
    _, fitting = _timed(pane.temperature)
    yield fitting("temperature with its interval")


def _timed(work: Callable[[], Any]) -> tuple[Any, Callable[[str], Result]]:
    began, cpu = time.monotonic(), time.process_time()
    found = work()
    took, cpu_s = time.monotonic() - began, time.process_time() - cpu

    def result(check: str) -> Result:
        return judged(
            "performance", check, f"at most {MAX_CPU_S:g} s of CPU", f"{cpu_s:.3f} s of CPU, {took:.3f} s",
            cpu_s <= MAX_CPU_S,
        )  # fmt: skip

    return found, result
