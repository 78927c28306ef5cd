"""Cost of filling a pane with the compiled kernel by rows and classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.run import Benchmark, Case
from calibrant import Batch, Pane, PaneSpec
from calibrant.kernel import status

N_RATERS = 5
SHAPES = ((10_000, 10), (100, 10), (1, 10), (1000, 1000))


def batch_of(rows: int, classes: int) -> Batch:
    rng = np.random.default_rng(0)
    columns = {
        "probabilities": rng.dirichlet(np.full(classes, 0.3), rows),
        "labels": rng.integers(0, classes, (rows, N_RATERS)).tolist(),
    }
    return Batch.from_columns(columns, task="multiclass", n_classes=classes).batch


def fills(rows: int, classes: int) -> Callable[[], None]:
    """Return a call that fills a pane that exists, as an engine's pane or a library's window does."""
    columns = batch_of(rows, classes)
    pane = Pane(PaneSpec("multiclass", classes))

    def with_kernel() -> None:
        # Hashes and other values are computed once per batch: every call gets a batch of its own.
        pane.fill_batch(
            Batch(columns.task, columns.scores, columns.is_logits, columns.ratings, columns.weights)
        )

    return with_kernel


def prepare() -> list[Case]:
    cases = []
    for rows, classes in SHAPES:
        shape = f"{rows:,} rows, {classes:,} classes"
        cases.append(Case(f"{shape}, {status()}", fills(rows, classes), rows))
    return cases


BENCHMARK = Benchmark(f"Filling alone, {N_RATERS} raters, an item is a prediction", prepare)
