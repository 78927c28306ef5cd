"""Error bounds of metrics from cells, against their error: the same metric of the raw rows.

    python -m benchmarks.error_bounds [cifar10h.npz]

Prints, for each metric that has a bound and each state of 4,000 rows, the bound, the error, their ratio and the estimate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import softmax

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import METRICS, compute_metrics

N = 4000
# Their results are of rows, not of cells.
OF_ROWS = {"canonical_ce", "skce", "rater_statistic"}


def states(archive: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Columns of each state by its name."""
    rng = np.random.default_rng(5)
    spread = rng.dirichlet(np.ones(3), N)
    labels = (spread.cumsum(axis=1) > rng.random((N, 1))).argmax(axis=1)
    yield "calibrated", {"probabilities": spread, "labels": labels}
    logits = rng.normal(size=(N, 3)) * 6
    truth = softmax(logits / 2, axis=1)
    labels = (truth.cumsum(axis=1) > rng.random((N, 1))).argmax(axis=1)
    yield "overconfident", {"probabilities": softmax(logits, axis=1), "labels": labels}
    if archive is not None:
        given = np.load(archive)
        rows = softmax(given["logits_vgg16"][:N].astype(np.float64), axis=1)
        yield "CIFAR-10H, VGG-16", {"probabilities": rows, "label_counts": given["counts"][:N]}


def main() -> None:
    """Print a line per metric and state."""
    for name, columns in states(sys.argv[1] if len(sys.argv) > 1 else None):
        given = {key: values.tolist() for key, values in columns.items()}
        batch = Batch.from_columns(given | {"ids": [str(i) for i in range(N)]}).batch
        pane = Pane(PaneSpec(batch.task, batch.n_classes))
        pane.fill_batch(batch)
        for slug in METRICS:
            if slug in OF_ROWS:
                continue
            found = compute_metrics(View(pane, PaneQuery()), [slug])[slug]
            bound = found.get("error_bound")
            if not bound or found["value"] is None:
                continue
            exact = compute_metrics(View(pane, PaneQuery(), batch), [slug])[slug]["value"]
            error, estimate = abs(found["value"] - exact), found.get("error_estimate")
            print(
                f"{name} {slug} {bound:.2g} {error:.2g} {bound / max(error, 1e-12):.3g} {estimate}"
            )


if __name__ == "__main__":
    main()
