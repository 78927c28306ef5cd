"""Rows of means over cases: Dice and the calibration errors of images.

Many cases are simulated once, and those of a run are drawn from them with replacement. So the true value is the mean of all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy

from benchmarks.guarantees.block import Block
from benchmarks.validation.checks import Check, Counts
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.metrics.case_metric import interval_by_units
from calibrant.segmentation.case_errors import CaseErrors, case_errors

ERRORS = {"dice": "dice", "ml1_ece": "ece", "ml1_ace": "ace", "ml1_mce": "mce"}
N_POPULATION, PART, PIXELS = 6000, 250, 400
# Standard deviation of the logits of a case.
ORDINARY = 2.0
RUNS = 4000
_TINY = 1e-12


@dataclass(frozen=True)
class Images:
    """Cases of 400 pixels, each with its own mean logit and, unless calibrated, its own slope, lognormal(0.4).

    `spread` is the standard deviation of a case's logits; a large one makes the model accurate.
    Of a share `failing` of the cases the labels are reversed: the model marks what it must not mark.
    """

    n: int
    calibrated: bool = False
    n_classes: int = 2
    failing: float = 0.0
    spread: float = ORDINARY

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        kind = "calibrated" if self.calibrated else "each with its own slope"
        kind = f"{kind}, accurate" if self.spread > ORDINARY else kind
        failing = f", {self.failing:.0%} of all cases reversed" if self.failing else ""
        return f"{self.n} cases of {PIXELS} pixels, K = {self.n_classes}, {kind}{failing}"

    def rows(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        """Draw probabilities, (n · 400, n_classes), and labels of n cases."""
        k = self.n_classes - 1
        mean = rng.normal(-1.5, 1.2, (n, 1, k))
        logits = np.concatenate(
            [np.zeros((n, PIXELS, 1)), mean + rng.normal(0.0, self.spread, (n, PIXELS, k))], axis=2
        )
        slope = np.ones((n, 1, 1)) if self.calibrated else np.exp(rng.normal(0.0, 0.4, (n, 1, 1)))
        slope = np.where(rng.random((n, 1, 1)) < self.failing, -1.0, slope)
        p, rate = (
            scipy.special.softmax(each, axis=2).reshape(-1, k + 1)
            for each in (logits, slope * logits)
        )
        return p, (rate.cumsum(axis=1)[:, :-1] < rng.random((len(p), 1))).sum(axis=1)


@lru_cache(maxsize=4)
def population(images: Images) -> dict[str, Floats]:
    """Return each metric of very many cases."""
    rng = np.random.default_rng([314, images.n_classes])
    parts = [_errors(images, rng) for _ in range(N_POPULATION // PART)]
    values = {
        slug: np.concatenate([cases.by_case(name) for cases in parts])
        for slug, name in ERRORS.items()
    }
    return {slug: each[np.isfinite(each)] for slug, each in values.items()}


def _errors(images: Images, rng: np.random.Generator) -> CaseErrors:
    p, label = images.rows(rng, PART)
    columns = {"probabilities": p, "labels": label, "cases": np.arange(len(p)) // PIXELS}
    batch = Batch.from_columns(columns, task="segmentation").batch
    view = View(Pane(PaneSpec("segmentation", images.n_classes)), PaneQuery(), batch)
    return case_errors(view)


def over_cases(images: Images, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count runs whose interval of a mean over cases contains the mean of all cases, of those with one."""
    counts: Counts = defaultdict(float)
    values = population(replace(images, n=0))
    for run in runs:
        rng = np.random.default_rng([seed, 0, run])
        for slug in slugs:
            drawn = rng.choice(values[slug], images.n)
            interval, _ = interval_by_units(drawn, np.arange(images.n), 0.95)
            counts[f"{slug}/runs"] += 1
            if interval is None:
                continue
            true = float(values[slug].mean())
            counts[f"{slug}/given"] += 1
            counts[f"{slug}/held"] += interval[0] - _TINY <= true <= interval[1] + _TINY
            counts[f"{slug}/width"] += interval[1] - interval[0]
    return counts


CHECKS: dict[str, Check] = {"over cases": over_cases}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this section."""
    return tuple(_blocks())


def _blocks() -> Iterator[Block]:
    section = "1 Means over cases"
    kinds = (
        Images(0), Images(0, calibrated=True), Images(0, n_classes=4), Images(0, spread=6.0),
    )  # fmt: skip
    for i, images in enumerate(kinds):
        for j, n in enumerate((10, 50, 150, 600) if i < 2 else (10, 50)):
            setting = replace(images, n=n)
            yield Block(
                section, "over cases", setting, tuple(ERRORS), 0.93, 700 + 10 * i + j, runs=RUNS
            )
    failing = Images(150, failing=0.05)
    yield Block(section, "over cases", failing, tuple(ERRORS), 0.93, 740, runs=RUNS)
