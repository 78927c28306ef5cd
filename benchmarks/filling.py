"""Cost of filling a pane relative to one pass over the rows."""

from __future__ import annotations

import numpy as np

from benchmarks.run import Benchmark, Case
from calibrant import Batch, Pane, PaneSpec

N_PREDICTIONS = 1000
N_CLASSES = 10


def prepare() -> list[Case]:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(N_CLASSES, 0.2), N_PREDICTIONS)
    columns = {
        "probabilities": probabilities,
        "label_counts": rng.multinomial(4, probabilities),
        "ids": [f"prediction-{row}" for row in range(N_PREDICTIONS)],
    }
    batch = Batch.from_columns(columns, task="multiclass", n_classes=N_CLASSES).batch
    spec = PaneSpec(task="multiclass", n_classes=N_CLASSES)
    filled, other = Pane(spec), Pane(spec)
    filled.fill_batch(batch)
    packed = filled.pack()
    return [
        Case("sort each row", lambda: np.sort(probabilities, axis=1), N_PREDICTIONS),
        Case("check columns", lambda: Batch.from_columns(columns), N_PREDICTIONS),
        Case("fill a pane", lambda: other.fill_batch(batch), N_PREDICTIONS),
        Case("merge a pane", lambda: Pane(spec).merge(filled), N_PREDICTIONS),
        Case("pack a pane", filled.pack, N_PREDICTIONS),
        Case("unpack a pane", lambda: Pane.unpack(packed), N_PREDICTIONS),
    ]


BENCHMARK = Benchmark(f"{N_PREDICTIONS} predictions of {N_CLASSES} classes", prepare)
