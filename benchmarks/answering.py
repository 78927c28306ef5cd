"""Cost of a query over a day of hourly panes relative to summing the cells of one: reading, merging, computing."""

from __future__ import annotations

import numpy as np

from benchmarks.run import Benchmark, Case
from calibrant import Batch, Pane, PaneSpec
from calibrant.metrics import DEFAULT_METRICS, PaneQuery, View, compute_metrics
from calibrant.results.metrics import MetricsQuery, metrics

N_CLASSES, N_RATERS, ROWS, PANES, GROUP = 10, 5, 2000, 24, 4
SPEC = PaneSpec("multiclass", N_CLASSES)


def packed(seed: int) -> dict[str, bytes]:
    """Return an hourly pane in its stored form."""
    rng, pane = np.random.default_rng(seed), Pane(SPEC)
    columns = {
        "probabilities": rng.dirichlet(np.full(N_CLASSES, 0.3), ROWS),
        "labels": rng.integers(0, N_CLASSES, (ROWS, N_RATERS)).tolist(),
    }
    pane.fill_batch(Batch.from_columns(columns).batch)
    return pane.parts()


def merged(panes: list[Pane]) -> Pane:
    merged_pane = Pane.for_window(SPEC)
    for pane in panes:
        merged_pane.merge(pane)
    return merged_pane


def prepare() -> list[Case]:
    wanted = tuple(sorted(set(metrics.accumulators(MetricsQuery()))))
    kept = [packed(seed) for seed in range(PANES)]
    panes = [Pane.from_parts(SPEC, parts, only=wanted) for parts in kept]
    groups = [merged(panes[i : i + GROUP]) for i in range(0, PANES, GROUP)]
    merged_pane = merged(groups)
    table = np.random.default_rng(0).random((15, SPEC.class_grid.n_positions * N_CLASSES))
    cheap = [slug for slug in DEFAULT_METRICS if not slug.startswith("corp")]
    return [
        Case("add up one table of cells", lambda: table.sum(axis=1)),
        Case("decode a pane", lambda: Pane.from_parts(SPEC, kept[0], only=wanted)),
        Case(f"merge {PANES} decoded panes", lambda: merged(panes)),
        Case(f"merge a group of {GROUP}", lambda: merged(panes[:GROUP])),
        Case(f"merge {len(groups)} merges of {GROUP}", lambda: merged(groups)),
        Case(
            "default metrics",
            lambda: compute_metrics(View(merged_pane, PaneQuery()), DEFAULT_METRICS, 1),
        ),
        Case(
            "the same without corp",
            lambda: compute_metrics(View(merged_pane, PaneQuery()), cheap, 1),
        ),
    ]


BENCHMARK = Benchmark(
    f"An answer over {PANES} panes of {ROWS} predictions of {N_CLASSES} classes", prepare
)
