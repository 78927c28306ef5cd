"""Cost of queries of a case of 1e8 pixels sent as one histogram per class, and of many cases."""

from __future__ import annotations

import numpy as np

from benchmarks.run import Benchmark, Case
from calibrant import Batch, Histogram, Pane, PaneSpec
from calibrant.core.batch_sums import BatchSums
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.segmentation.case_report import cases_of
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from calibrant.segmentation.histogram_measures import calibration_errors
from calibrant.segmentation.training_loss import l1_ace_loss

N_PIXELS = 100_000_000
N_ROWS = 100_000
N_CLASSES = 4
SPEC = PaneSpec("segmentation", N_CLASSES)


def a_case(name: str, rng: np.random.Generator) -> list[Histogram]:
    """Return one histogram per class, to which an edge client reduces a large image."""
    bins = SPEC.class_grid.cells
    middle = (np.arange(bins) + 0.5) / bins
    made = []
    for class_index in range(N_CLASSES):
        count = np.round(rng.dirichlet(np.full(bins, 0.3)) * N_PIXELS)
        fields = {"kind": "class", "class": class_index, "bins": bins, "case": name, "count": count}
        fields |= {"sum_confidence": count * middle, "sum_correct": np.round(count * middle**1.3)}
        made.append(Histogram.from_fields(fields, SPEC))
    return made


def filled(n_cases: int) -> Pane:
    rng = np.random.default_rng(0)
    pane = Pane(SPEC)
    for i in range(n_cases):
        for histogram in a_case(f"case-{i}", rng):
            pane.fill_histogram(histogram)
    return pane


def response(pane: Pane, membership: str) -> object:
    """Compute from the pane to the result without caches."""
    return cases_of(View(pane, PaneQuery(bins=20, options={"membership": membership})))


def prepare() -> list[Case]:
    rng = np.random.default_rng(1)
    one, many = filled(1), filled(50)
    histograms = a_case("case", rng)
    rows = rng.dirichlet(np.full(N_CLASSES, 0.3), N_ROWS)
    labels = (rows.cumsum(axis=1) > rng.random(N_ROWS)[:, None]).argmax(axis=1)
    columns = {"probabilities": rows, "labels": labels, "cases": ["case"] * N_ROWS}
    batch = Batch.from_columns(columns, task="segmentation", n_classes=N_CLASSES).batch
    batch_sums = BatchSums(batch)
    fine = ConfidenceHistogram.of_batch(batch)
    one_hot = np.eye(N_CLASSES)[labels]

    def send() -> Pane:
        pane = Pane(SPEC)
        for histogram in histograms:
            pane.fill_histogram(histogram)
        return pane

    return [
        Case("sort one class's rows", lambda: np.sort(rows[:, 0])),
        Case("a case of 1e8 pixels: add it", send),
        Case("the same: answer, hard bins", lambda: response(one, "hard")),
        Case("the same: answer, soft bins", lambda: response(one, "soft")),
        Case("fifty such cases: answer", lambda: response(many, "hard")),
        Case(f"{N_ROWS} rows: fill a case", lambda: Pane(SPEC)["cases"].fill(batch_sums)),
        Case(f"{N_ROWS} rows: confidence histogram", lambda: ConfidenceHistogram.of_batch(batch)),
        Case("errors of a confidence histogram", lambda: calibration_errors(fine)),
        Case(f"{N_ROWS} rows: soft loss and gradient", lambda: l1_ace_loss(rows, one_hot)),
    ]


BENCHMARK = Benchmark(f"Cases of {N_CLASSES} classes; {N_ROWS} rows as the measure", prepare)
