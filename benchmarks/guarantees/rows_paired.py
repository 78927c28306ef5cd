"""Rows of differences of two models on the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from benchmarks.guarantees.block import Block
from benchmarks.validation.checks import Check, Counts
from calibrant import compare, evaluate
from calibrant.core.arrays import Floats

METRICS = ("ece", "brier", "nll", "accuracy", "auc")
N_POPULATION, N_RATINGS = 100_000, 1000
RUNS = 3000
_TINY = 1e-12


@dataclass(frozen=True)
class TwoModels:
    """Two models of the same rows, whose logits are the true ones times a slope, with noise of their own.

    Attributes
    ----------
    n, n_classes, raters : rows, classes, ratings of each row
    slopes : of the two models; 1 is calibrated
    noise : standard deviation that is added to the logits of either
    """

    n: int
    slopes: tuple[float, float]
    n_classes: int = 2
    raters: int = 1
    noise: float = 0.0

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        one, two = (f"{slope:g}" for slope in self.slopes)
        parts = [
            f"two models on n = {self.n:,}",
            f"K = {self.n_classes}",
            f"slopes {one} and {two}",
        ]
        if self.noise:
            parts.append(f"noise {self.noise:g}")
        return ", ".join(parts + [f"{self.raters} raters"] * (self.raters > 1))

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats, Floats]:
        """Return probabilities of both models and the true ones, (n, n_classes) each."""
        logits = rng.normal(0.0, 1.6, (n, self.n_classes))
        logits[:, 0] *= self.n_classes > 2
        own = (slope * logits + self.noise * rng.normal(size=logits.shape) for slope in self.slopes)
        one, two = (scipy.special.softmax(each, axis=1) for each in own)
        return one, two, scipy.special.softmax(logits, axis=1)

    def scores(self, p: Floats) -> Floats:
        """Return probabilities as they are scored: of two classes, those of class 1."""
        return p if self.n_classes > 2 else p[:, 1]


@lru_cache(maxsize=8)
def true_differences(models: TwoModels) -> dict[str, float]:
    """Return the differences over very many rows whose ratings are the rates."""
    one, two, rate = models.draw(np.random.default_rng(2718), N_POPULATION)
    counts = np.rint(rate * N_RATINGS).astype(np.int64)
    ids = np.arange(N_POPULATION)
    values = [
        evaluate(models.scores(each), metrics=list(METRICS), label_counts=counts, ids=ids)
        for each in (one, two)
    ]
    return {slug: float(values[0][slug]) - float(values[1][slug]) for slug in METRICS}


def paired(models: TwoModels, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count runs whose interval of the difference contains the true difference, of those with one."""
    counts: Counts = defaultdict(float)
    for run in runs:
        rng = np.random.default_rng([seed, 0, run])
        one, two, rate = models.draw(rng, models.n)
        labels = rng.multinomial(models.raters, rate)
        ids = [f"{run}-{row}" for row in range(models.n)]
        found = compare(
            models.scores(one),
            models.scores(two),
            metrics=list(slugs),
            label_counts=labels,
            ids=ids,
        )
        for slug in slugs:
            counts[f"{slug}/runs"] += 1
            interval = found[slug].interval
            if interval is None:
                continue
            true = true_differences(models)[slug]
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/held"] += interval[0] - _TINY <= true <= interval[1] + _TINY
            counts[f"{slug}/width"] += interval[1] - interval[0]
    return counts


CHECKS: dict[str, Check] = {"paired": paired}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this section."""
    return tuple(_blocks())


def _blocks() -> Iterator[Block]:
    settings = (
        TwoModels(100, (1.0, 2.0)),
        TwoModels(300, (1.0, 2.0)),
        TwoModels(300, (1.8, 2.0)),
        TwoModels(300, (1.0, 1.0), noise=0.3),
        TwoModels(300, (1.0, 2.0), raters=5),
        TwoModels(1000, (1.0, 2.0)),
        TwoModels(300, (1.0, 2.0), n_classes=10),
    )
    for i, models in enumerate(settings):
        yield Block("1 Paired differences", "paired", models, METRICS, 0.93, 860 + i, runs=RUNS)
