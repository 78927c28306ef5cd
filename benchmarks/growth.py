"""`python -m benchmarks.growth`: cost of ten times the predictions in bytes and query time.

One pane of ten classes and five raters is filled in process with a million predictions, then with ten million. It prints
the packed size, the time of the default metrics, and the ratios.
"""

from __future__ import annotations

import time

import numpy as np

from calibrant import Batch, Pane, PaneSpec
from calibrant.metrics import DEFAULT_METRICS, PaneQuery, View, compute_metrics

N_CLASSES, N_RATERS, ROWS = 10, 5, 10_000


def pane_of(n: int) -> Pane:
    """Return a pane of n plausible predictions, most of them confident."""
    rng, pane = np.random.default_rng(1), Pane(PaneSpec("multiclass", N_CLASSES))
    for _ in range(n // ROWS):
        scores = rng.dirichlet(np.full(N_CLASSES, 0.1), ROWS) + 1e-9
        scores /= scores.sum(axis=1, keepdims=True)
        counts = rng.multinomial(N_RATERS, scores)
        pane.fill_batch(Batch.from_columns({"probabilities": scores, "label_counts": counts}).batch)
    return pane


def seconds(pane: Pane, repeats: int = 60) -> float:
    """Return the median CPU time of the default metrics, read from bytes as in the service."""
    spec, parts, times = pane.spec, pane.parts(), []
    for seed in range(repeats):
        start = time.process_time()
        compute_metrics(View(Pane.from_parts(spec, parts), PaneQuery()), DEFAULT_METRICS, seed)
        times.append(time.process_time() - start)
    return float(np.median(times))


def main() -> None:
    """Print sizes, times and their growth."""
    found = {}
    for n in (1_000_000, 10_000_000):
        pane = pane_of(n)
        found[n] = (sum(map(len, pane.parts().values())), seconds(pane))
        print(
            f"{n:>12,} predictions: {found[n][0]:>10,} bytes packed, {1e3 * found[n][1]:6.1f} ms an answer",
            flush=True,
        )
    (size, spent), (more, longer) = found.values()
    print(
        f"growth: {100 * (more / size - 1):+.1f} % in bytes, {100 * (longer / spent - 1):+.1f} % in time"
    )


if __name__ == "__main__":
    main()
