"""Filling alone, and the temperature from state, both in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.kernel_fill import fills
from calibrant import Pane, PaneSpec
from calibrant.calibrators.temperature.fit import fit_temperature

SHAPES = {
    "fill_10000": (10_000, 10, 30),
    "fill_100": (100, 10, 500),
    "fill_1": (1, 10, 2000),
    "fill_k1000": (1000, 1000, 10),
}
N_ROWS, N_CLASSES, A_PANE = 1_000_000, 10, 50_000


def median_s(call: Callable[[], object], repeats: int, rounds: int = 3) -> float:
    """Return the CPU seconds of a call: the median of rounds of repeated calls."""
    call()
    found = []
    for _ in range(rounds):
        start = time.thread_time()
        for _ in range(repeats):
            call()
        found.append((time.thread_time() - start) / repeats)
    return float(np.median(found))


def measure_filling() -> Iterator[tuple[str, float]]:
    """Measure filling of four shapes."""
    for name, (rows, classes, repeats) in SHAPES.items():
        yield name, 1e6 * median_s(fills(rows, classes), repeats) / rows


def measure_temperature() -> Iterator[tuple[str, float]]:
    """Measure the temperature of a million rows from state, and scikit-learn's fit to the rows.

    Raises
    ------
    AssertionError
        The temperatures differ by more than 1e-4.
    """
    # The class that `CalibratedClassifierCV(method="temperature")` fits, without the wrapper.
    from sklearn.calibration import _TemperatureScaling

    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal((N_ROWS, N_CLASSES))
    shares = np.exp(logits / 1.4)
    shares = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    labels = (rng.random((N_ROWS, 1)) > shares).sum(axis=1).clip(max=N_CLASSES - 1)
    pane = Pane(PaneSpec("multiclass", N_CLASSES))
    for first in range(0, N_ROWS, A_PANE):
        rows = slice(first, first + A_PANE)
        pane.merge(Pane.fill(logits=logits[rows], labels=labels[rows], spec=pane.spec))
    peer = _TemperatureScaling()
    start = time.process_time()
    peer.fit(logits, labels)
    peer_s = time.process_time() - start
    own_s = median_s(lambda: fit_temperature(pane), 10)
    own = fit_temperature(pane)["temperature"]
    assert abs(own - 1.0 / peer.beta_) < 1e-4, (own, 1.0 / peer.beta_)
    yield "temperature_fit", peer_s / own_s
