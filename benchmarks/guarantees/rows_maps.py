"""Rows of section 4: maps with several parameters per class from a stored sample, and promotions without benefit.

The larger windows run with FULL=1 alone: `python -m benchmarks.many_parameter_maps` has single runs of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from benchmarks.guarantees.block import Block
from benchmarks.many_parameter_maps import simulated
from benchmarks.validation.checks import Check, Counts
from calibrant.calibrators import Options, apply, fit
from calibrant.calibrators.labelled_rows import labelled_rows
from calibrant.calibrators.map_comparison import compare, procedure_gain
from calibrant.calibrators.row_losses import mean_by_unit, row_losses
from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.routing import split_batch
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View

METHODS = ("class_temperature", "vector")
N_TEST, DAY_BYTES, SMALL_BYTES = 10_000, 1 << 20, 1 << 18
NEAR, RUNS = 1.02, 250
QUERY = PaneQuery(bins=15, raters="pooled")


@dataclass(frozen=True)
class Window:
    """A window of ten classes in units of five rows, one class with 0.2 % of the labels.

    With `exact` one temperature of 2 corrects it, otherwise slopes and intercepts differ by class. `sample_bytes` of rows are stored.
    """

    n: int
    sample_bytes: int = DAY_BYTES
    exact: bool = False

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        curve = "one temperature is exact" if self.exact else "slopes differ by class"
        stored = "" if self.sample_bytes == DAY_BYTES else ", a third stored"
        return f"K = 10, units of 5, one rare class, {curve}, n = {self.n:,}{stored}"

    def columns(self, rng: np.random.Generator, n: int) -> dict[str, object]:
        """Draw rows."""
        columns = simulated(rng, n)
        if self.exact:
            logits = np.asarray(columns["logits"]) / 2.0
            p = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
            luck = rng.random((n, 1))
            columns["labels"] = (p.cumsum(axis=1)[:, :-1] < luck).sum(axis=1)
        return columns


@dataclass(frozen=True)
class Calibrated:
    """A calibrated model of three classes; `later` labels test the map itself."""

    n: int
    later: bool = False

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        by = "by later labels" if self.later else "by cross-fitting"
        return f"promotion of a calibrated model of 3 classes {by}, n = {self.n:,}"

    def batch(self, rng: np.random.Generator) -> Batch:
        """Draw rows."""
        p = rng.dirichlet(np.ones(3), self.n)
        labels = (p.cumsum(axis=1)[:, :-1] < rng.random((self.n, 1))).sum(axis=1)
        return Batch.from_columns({"probabilities": p, "labels": labels}).batch


def pane_of(batch: Batch, sample_bytes: int) -> Pane:
    """Fill a window of one day, as the service stores it."""
    day = Pane(PaneSpec(batch.task, batch.n_classes), sample_bytes=sample_bytes)
    for part in split_batch(batch):
        day.fill_batch(part)
    return Pane.for_window(day.spec).merge_all([day])


def near(window: Window, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count windows whose map from the sample has at most 1.02 times the held-out NLL of the fit to all rows."""
    counts: Counts = defaultdict(float)
    for run in runs:
        rng = np.random.default_rng([seed, 0, run])
        batch = Batch.from_columns(window.columns(rng, window.n)).batch
        test = Batch.from_columns(window.columns(rng, N_TEST)).batch
        pane = pane_of(batch, window.sample_bytes)
        rows = labelled_rows(test, View(pane, QUERY).policy)
        for slug in slugs:
            counts[f"{slug}/runs"] += 1
            fits = [fit(slug, View(pane, QUERY, each), evaluate=False) for each in (None, batch)]
            if any(each["parameters"] is None for each in fits):
                continue
            stored, full = (row_losses(rows, apply(each, test))["nll"].sum() for each in fits)
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/held"] += stored <= NEAR * full
    return counts


def worse(window: Window, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count windows whose map has a held-out NLL above that of the temperature by more than the NLL's standard error.

    As many rows are held out as the window has.
    """
    counts: Counts = defaultdict(float)
    for run in runs:
        rng = np.random.default_rng([seed, 0, run])
        pane = pane_of(Batch.from_columns(window.columns(rng, window.n)).batch, window.sample_bytes)
        test = Batch.from_columns(window.columns(rng, window.n)).batch
        view = View(pane, QUERY)
        rows = labelled_rows(test, view.policy)
        common = row_losses(rows, apply(fit("temperature", view, evaluate=False), test))["nll"]
        for slug in slugs:
            counts[f"{slug}/runs"] += 1
            fitted = fit(slug, view, evaluate=False)
            if fitted["parameters"] is None:
                continue
            loss = row_losses(rows, apply(fitted, test))["nll"]
            low, high = mean_by_unit(loss, rows.weight, rows.unit, 0.95)["interval"]
            more = (loss - common).sum() / rows.weight.sum()
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/held"] += more > (high - low) / (2.0 * 1.96)
    return counts


def promoted(model: Calibrated, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count maps of a calibrated model that would be promoted over the probabilities as sent."""
    counts: Counts = defaultdict(float)
    for run in runs:
        rng = np.random.default_rng([seed, 0, run])
        pane = pane_of(model.batch(rng), DAY_BYTES)
        view = View(pane, PaneQuery())
        for slug in slugs:
            if model.later:
                fitted = fit(slug, view, evaluate=False)
                found = compare(None, fitted, pane_of(model.batch(rng), DAY_BYTES))
            else:
                found = procedure_gain(None, slug, Options(), view)
            counts[f"{slug}/runs"] += 1
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/held"] += found["beats"]
    return counts


CHECKS: dict[str, Check] = {"near full fit": near, "worse than T": worse, "promoted": promoted}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this section."""
    return (*_maps(), *_promotions())


def _maps() -> Iterator[Block]:
    title = "4 Maps"
    for i, (window, full) in enumerate(
        ((Window(5_000, SMALL_BYTES), False), (Window(50_000), True), (Window(200_000), True))
    ):
        yield Block(title, "near full fit", window, METHODS, 0.95, 600 + i, runs=RUNS, full=full)
    for i, (window, full) in enumerate(((Window(5_000), True), (Window(5_000, exact=True), False))):
        yield Block(
            title, "worse than T", window, METHODS, 0.05, 610 + i, False, runs=RUNS, full=full
        )


def _promotions() -> Iterator[Block]:
    title = "4 Promotions"
    yield Block(title, "promoted", Calibrated(200), ("temperature",), 0.025, 620, False, runs=500)
    yield Block(title, "promoted", Calibrated(400), ("vector",), 0.025, 621, False, runs=500)
    later = Calibrated(200, later=True)
    yield Block(title, "promoted", later, ("temperature",), 0.025, 622, False, runs=500)
