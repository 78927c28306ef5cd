"""Reads: a window with one changed pane, a cold window, and unchanged responses."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np

from benchmarks.reads import cold_s, warm_s
from benchmarks.requests import per_request_s as send
from benchmarks.requests import posts, served, unchanged_s

ROWS, PANES, COLD_PANES = 2000, 24, 720
COLD_ROWS = 500
NAMES = {"metrics": "metrics", "metrics?metrics=ece": "ece", "temperature": "temperature"}


def measure_warm(repeats: int) -> Iterator[tuple[str, float]]:
    """Measure three reads, each after one more prediction, and reads that have not changed."""
    with served() as service:
        found = warm_s(service, PANES, ROWS, repeats)
        for path, name in NAMES.items():
            yield name, 1e3 * float(np.quantile(found[path], 0.99))
        send(service, posts("one", 50), 8)
        yield "unchanged", 1e3 * float(np.quantile(unchanged_s(service, 3 * repeats), 0.99))


def measure_cold(starts: int) -> Iterator[tuple[str, float]]:
    """Measure the first read of a month of hours after a start."""
    with tempfile.TemporaryDirectory() as directory:
        found = cold_s(directory, COLD_PANES, COLD_ROWS, starts, ("metrics",))
    yield "metrics_cold", 1e3 * float(np.median(found["metrics"]))
