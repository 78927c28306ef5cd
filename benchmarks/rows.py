"""Cost of results from rows relative to numpy's `max` and `argmax` of the same array; an item is a prediction.

`python -m benchmarks.run rows --rounds 3`. Divide a ratio by that of `max and argmax` of the same array for its cost in these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import calibrant as cal
from benchmarks.run import Benchmark, Case

SIZES = ((1_000, 10), (1_000_000, 2), (1_000_000, 10), (50_000, 100), (10_000, 1_000))
METRICS = ("ece", "brier", "accuracy")
REFERENCE = "max and argmax, 1,000,000 x 10 float64"


def rows(n: int, n_classes: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (n, n_classes) of a softmax, and a label for each."""
    rng = np.random.default_rng(0)
    odds = np.exp(2.0 * rng.normal(size=(n, n_classes)))
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    labels = (np.cumsum(probabilities, axis=1) < rng.random((n, 1))).sum(axis=1)
    return probabilities.astype(dtype), np.minimum(labels, n_classes - 1)


def cases_of(n: int, n_classes: int, dtype: type) -> list[Case]:
    """Return the reference of one array, the metrics, a pane, the temperature with its interval and, of ten classes, the report."""
    probabilities, labels = rows(n, n_classes, dtype)
    logits = np.log(probabilities)
    name = f"{n:,} x {n_classes} {np.dtype(dtype).name}"
    calls: dict[str, Callable[[], object]] = {
        "max and argmax": lambda: (probabilities.max(1), probabilities.argmax(1)),
        **{slug: partial(getattr(cal, slug), probabilities, labels) for slug in METRICS},
        "Pane.fill": lambda: cal.Pane.fill(probabilities, labels),
        "fit_temperature": lambda: cal.fit_temperature(probabilities, labels),
        "fit_temperature of logits": lambda: cal.fit_temperature(logits=logits, labels=labels),
    }
    if n_classes == 10:
        calls["evaluate"] = lambda: cal.evaluate(probabilities, labels)
    return [Case(f"{what}, {name}", call, n) for what, call in calls.items()]


def prepare() -> list[Case]:
    wide = [case for size in SIZES for case in cases_of(*size, np.float64)]
    return wide + cases_of(1_000_000, 10, np.float32)


BENCHMARK = Benchmark("Results from rows", prepare, REFERENCE)
