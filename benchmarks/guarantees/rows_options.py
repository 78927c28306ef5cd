"""Rows of metrics with options, of own edges of bins, and of the reference of `auc`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from benchmarks.guarantees.block import Block
from benchmarks.validation.checks import Check, Counts
from benchmarks.validation.settings import Setting, SimulatedRows, rows_of
from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.metrics import compute_metrics

KERNEL, CLIPPED = "skce(kernel_width=0.3)", "nll(floor=1e-07)"
DECISIONS = ("net_benefit(threshold=0.1)", "net_benefit(threshold=0.3)")
EDGES = (0.0, 0.05, 0.2, 0.5, 0.8, 1.0)
N_POPULATION, N_RATINGS = 100_000, 1000
N_SAMPLES, N_OF_SAMPLE = 2000, 150
RUNS = 3000
_ZEROS, _WRONG = 0.1, 0.3
_TINY = 1e-12


@dataclass(frozen=True)
class Requested:
    """A setting of two classes whose rows are scored with own edges of bins, or in which a tenth of the scores is 0.

    Of scores of 0, three in ten are wrong.
    """

    setting: Setting
    edges: tuple[float, ...] = ()
    zeros: bool = False

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        edges = f", bins {', '.join(f'{edge:g}' for edge in self.edges)}" if self.edges else ""
        zeros = f", {_ZEROS:.0%} of the scores are 0" if self.zeros else ""
        return self.setting.text + edges + zeros

    def rows(self, rng: np.random.Generator, setting: Setting) -> SimulatedRows:
        """Draw rows."""
        rows = rows_of(setting, rng)
        if not self.zeros:
            return rows
        is_zero = rng.random(len(rows.score)) < _ZEROS
        wrong = (rng.random(len(is_zero)) < _WRONG).astype(np.int64)
        return SimulatedRows(
            np.where(is_zero, 0.0, rows.score),
            np.where(is_zero, _WRONG, rows.rate),
            np.where(is_zero, wrong, rows.label),
        )

    def view(self, rows: SimulatedRows, run: int = 0) -> View:
        """Return a view of the rows themselves, with other ids in every run, so that rows fall into other replicates."""
        labels = "label_counts" if rows.label.ndim > 1 else "labels"
        ids = [f"{run}-{row}" for row in range(len(rows.score))]
        columns = {"confidences": rows.score, labels: rows.label, "ids": ids}
        batch = Batch.from_columns(columns).batch
        pane = Pane(PaneSpec("binary", 2))
        pane.fill_batch(batch)
        return View(pane, PaneQuery(bins=self.edges or 15), batch)


@lru_cache(maxsize=16)
def true_value(requested: Requested, key: str) -> float:
    """Return the value over very many rows whose ratings are the rates; of an unbiased estimate, its mean over many samples."""
    rng = np.random.default_rng(2718)
    if key == KERNEL:
        some = replace(requested.setting, n=N_OF_SAMPLE)
        views = (requested.view(requested.rows(rng, some)) for _ in range(N_SAMPLES))
        # It is 0 or more; the mean of samples may miss 0.
        return max(
            float(np.mean([compute_metrics(each, [key])[key]["value"] for each in views])), 0.0
        )
    rows = requested.rows(
        rng, Setting(requested.setting.shape, requested.setting.curve, N_POPULATION)
    )
    positive = np.rint(rows.rate * N_RATINGS).astype(np.int64)
    counts = np.stack([N_RATINGS - positive, positive], axis=1)
    view = requested.view(SimulatedRows(rows.score, rows.rate, counts))
    return float(compute_metrics(view, [key])[key]["value"])


def with_options(requested: Requested, keys: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count runs whose interval contains the true value, of those with one."""
    counts: Counts = defaultdict(float)
    for run in runs:
        rng = np.random.default_rng([seed, 0, run])
        view = requested.view(requested.rows(rng, requested.setting), run)
        for key, found in compute_metrics(view, keys).items():
            counts[f"{key}/runs"] += 1
            if found["interval"] is None:
                continue
            low, high = found["interval"]
            counts[f"{key}/given"] += 1
            counts[f"{key}/held"] += low - _TINY <= true_value(requested, key) <= high + _TINY
            counts[f"{key}/width"] += high - low
    return counts


CHECKS: dict[str, Check] = {"with options": with_options}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this file."""
    return (*_intervals(), *_nulls())


def _intervals() -> Iterator[Block]:
    section = "1 Intervals with options"
    for i, n in enumerate((50, 150, 600)):
        for j, curve in enumerate(("slope .6", "calibrated") if n < 600 else ()):
            kernel = Requested(Setting("confident", curve, n))
            yield Block(
                section, "with options", kernel, (KERNEL,), 0.93, 800 + 2 * i + j, runs=RUNS
            )
        decisions = Requested(Setting("beta", "slope .6", n))
        yield Block(section, "with options", decisions, DECISIONS, 0.93, 810 + i, runs=RUNS)
        edges = Requested(Setting("u-shaped", "slope .6", n), edges=EDGES)
        some = ("ece", "rmsce", "mce")
        yield Block(section, "with options", edges, some, 0.93, 820 + i, runs=RUNS)
    # With fewer than 40 scores of 0 there is no interval.
    for i, n in enumerate((600, 3000)):
        zeros = Requested(Setting("u-shaped", "slope .6", n), zeros=True)
        yield Block(section, "with options", zeros, (CLIPPED,), 0.93, 832 + i, runs=RUNS)


def _nulls() -> Iterator[Block]:
    for i, n in enumerate((50, 150, 600)):
        setting = Setting("beta", n=n)
        yield Block(
            "2 Nulls with options", "above null", setting, ("auc",), 0.07, 840 + i, False, runs=RUNS
        )
