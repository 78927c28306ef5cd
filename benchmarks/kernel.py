"""Cost of kernel calibration errors from a pane relative to their definition over all pairs of predictions."""

from __future__ import annotations

import numpy as np
from scipy.special import betaln

from benchmarks.run import Benchmark, Case
from calibrant import Batch, Pane, PaneSpec
from calibrant.metrics import PaneQuery, View, compute_metrics

N_ROWS = 100_000
N_DOUBLINGS = 7
BANDWIDTH = 0.02
# Number of timed rows of the definition's matrix of pairs; an item is one prediction.
N_SLICE = 50


def predictions() -> tuple[np.ndarray, np.ndarray]:
    """Return scores near 1 and labels that are correct less often than the scores."""
    rng = np.random.default_rng(0)
    score = 1.0 - 0.5 * rng.random(N_ROWS) ** 3
    return score, (rng.random(N_ROWS) < score**1.3).astype(int)


def definition(score: np.ndarray, hits: np.ndarray, rows: slice) -> float:
    """Sum the distance of score and leave-one-out kernel accuracy over some predictions."""
    z = np.clip(score, 1e-6, 1.0 - 1e-6)
    alpha, beta = z / BANDWIDTH, (1.0 - z) / BANDWIDTH
    density = np.exp(
        np.log(z[rows, None]) * alpha
        + np.log1p(-z[rows, None]) * beta
        - betaln(alpha + 1.0, beta + 1.0)
    )
    density[np.arange(len(density)), np.arange(len(z))[rows]] = 0.0
    return float(np.abs(density @ hits / density.sum(axis=1) - z[rows]).sum())


def prepare() -> list[Case]:
    score, hits = predictions()
    batch = Batch.from_columns({"confidences": score, "labels": hits}).batch
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(batch)
    many = Pane.unpack(pane.pack())
    for _ in range(N_DOUBLINGS):
        many.merge(Pane.unpack(many.pack()))

    def answered(held: Pane, slug: str) -> Case:
        n = held.counts["n_predictions"]
        return Case(f"{slug} of {n:,}", lambda: compute_metrics(View(held, PaneQuery()), [slug]), n)

    return [
        Case(
            "the definition, all pairs", lambda: definition(score, hits, slice(0, N_SLICE)), N_SLICE
        ),
        answered(pane, "kde_ece"),
        answered(many, "kde_ece"),
        answered(many, "smooth_ece"),
        answered(many, "zhang_kde_ece"),
        answered(many, "corp_miscalibration"),
    ]


BENCHMARK = Benchmark(
    f"Kernel errors; an item is a prediction, the definition is over {N_ROWS:,}", prepare
)
