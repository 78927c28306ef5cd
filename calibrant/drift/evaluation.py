"""Evaluation of a detector after each cohort: the change that is shown, whether the rule is armed, and the smallest change to be found.

Power is computed without simulation, by the rule itself: cohorts like the last ones, with other outcomes, follow the known ones. A
change shifts the effect of each direction and leaves its noise; the statistic is then normal around the shifted value, and a
direction shows the change if it exceeds the quantile of its level.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio
from calibrant.drift.calibration import N_RECENT, Judgement, judge, phi_of
from calibrant.drift.change import (
    CLIP,
    MARGIN,
    MIN_BEFORE,
    SHARES,
    WINDOWS,
    Change,
    Comparisons,
    Effects,
    compare_windows,
    find_change,
    outcome_rates,
)
from calibrant.drift.unit_tables import UnitTable, merged

_LEAST_P = 1e-300


@dataclass(frozen=True)
class Evaluation:
    """What the cohorts so far show."""

    p: float  # of the best test for the worse; 1 without a test. Compare it with the level
    change: Change | None  # shown at the level, or None


def columns_of(tables: Sequence[UnitTable]) -> Floats:
    """Return `weight`, `confidence` and `correct` of tables, float64 (3, n_cohorts, n_bins)."""
    return np.stack([each.columns[:3] for each in tables], axis=1)


def effects_of(tables: Sequence[UnitTable], rated: bool = False) -> Effects:
    """Return the effects of cohorts from their tables, in order; `rated` as in `Effects.of`."""
    return Effects.of(*columns_of(tables), rated=rated)


def evaluate(effects: Effects, level: float, block: Effects | None = None) -> Evaluation:
    """Return what cohorts show; `level` is 1 / (run length in cohorts · number of detectors).

    >>> steady = Effects(np.zeros((20, 7)), np.full((20, 7), 25.0), np.zeros((20, 7)))
    >>> evaluate(steady, 1 / 3650).p, evaluate(steady, 1 / 3650).change
    (1.0, None)
    """
    found = compare_windows(effects, block=block)
    worse = np.where(found.is_worse[0], found.p[0], 1.0)
    return Evaluation(
        max(float(worse.min()), _LEAST_P),
        find_change(effects, level, block) if (found.p[0] < level).any() else None,
    )


def change_since(
    tables: Sequence[UnitTable], n_after: int, direction: int, block: Effects | None = None
) -> tuple[float, float]:
    """Return by how much the effect of a direction changed in the last cohorts, and the standard error; infinite without a test."""
    if n_after < 1 or (len(tables) < n_after + MIN_BEFORE and block is None):
        return 0.0, np.inf
    effects = effects_of(tables, rated=block is None)
    found = compare_windows(effects, block=block, windows=(n_after,), margin=0.0)
    size, variance = (float(each[0, direction, 0]) for each in (found.after - found.before, found.variance))  # fmt: skip
    return (size, variance**0.5) if variance > 0.0 else (0.0, np.inf)


def judge_cohorts(tables: Sequence[UnitTable], tolerance: float, n_slices: int = 1) -> Judgement:
    """Return the word of calibration of some cohorts, with the variance between them."""
    if not tables:
        return judge(UnitTable.empty(), tolerance=tolerance)
    return judge(merged(tables), float(phi_of(columns_of(tables))), tolerance, n_slices)


POWER = 0.8
WITHIN = 7  # cohorts
SPANS = np.array([each for each in WINDOWS if each <= WITHIN])
SLOPE, POINTS = 0.625, 0.05
MAX_WAIT = 60  # cohorts
_LARGEST = 500  # thousandths


@dataclass(frozen=True)
class Monitor:
    """What the rule would show of cohorts to come: as many units, with errors that vary as those of the last 7."""

    columns: Floats  # float64 (3, n_cohorts, n_bins): `weight`, `confidence`, `correct` of the cohorts compared so far
    level: float  # of a day's tests
    block: Effects | None = None  # a reference without days

    def power(self, gap: Floats, waited: int = 0) -> float:
        """Return the probability that some window of the first 7 cohorts shows a change for the worse.

        gap : change of the rate of outcomes by bin of the score, float64 (n_bins,)
        waited : cohorts that pass before the change and belong to Before
        """
        if self.columns.shape[1] + waited < MIN_BEFORE and self.block is None:
            return 0.0
        found = self._ahead(np.stack([np.zeros_like(gap), gap]), waited)
        before, after, variance = (each[1] for each in (found.before, found.after, found.variance))
        shift = after - found.after[0]
        # φ is estimated and at least 1: a normal variable of this size, cut at 0, has the mean .4 and the standard deviation .58.
        by_chance = np.sqrt(2.0 / np.maximum(self.columns.shape[1] + waited + SPANS - 2.0, 1.0))
        variance = variance * (1.0 + 0.4 * by_chance)
        t = np.maximum(np.abs(shift) - MARGIN, 0.0) * np.sqrt(ratio(1.0, variance))
        tail = self.level * SHARES[:, None] / len(WINDOWS) / 2.0
        normal = -scipy.special.ndtri(tail) * ratio(found.t[1], found.z[1], 1.0)
        least = np.maximum(normal, -scipy.special.stdtrit(np.maximum(found.df[1], 1.0), tail))
        is_worse = np.abs(before + shift) > np.abs(before)
        size = np.hypot(1.0, 0.29 * by_chance * least)
        return float(
            np.where(is_worse & (t > 0), scipy.special.ndtr((t - least) / size), 0.0).max()
        )

    def _ahead(self, gaps: Floats, waited: int) -> Comparisons:
        """Return the comparisons of cohorts with some gaps, (n_gaps, n_bins), each window at its own end: (n_gaps, 7, n_windows)."""
        n = self.columns.shape[1]
        typical = self.columns[:, -N_RECENT:].mean(axis=1, keepdims=True)
        then = self.columns[:, np.arange(n - WITHIN, n) % n]
        known = np.concatenate([self.columns, np.repeat(typical, waited, axis=1), then], axis=1)
        weight, confidence, correct = np.repeat(known[:, None], len(gaps), axis=1)
        correct[:, n + waited :] += gaps[:, None] * then[0]
        effects = Effects.of(weight, confidence, correct, rated=self.block is None)
        found = compare_windows(effects, n + waited + SPANS, self.block, windows=tuple(SPANS))
        return Comparisons(
            *(np.einsum("riki->rki", getattr(found, each.name)) for each in fields(found))
        )

    @property
    def armed_in(self) -> int | None:
        """Cohorts until a slope of .625, or 5 points of accuracy, would show: 0 if it would now; None if not within 60."""
        wait = 0 if self._shows(0) else bisect_left(range(MAX_WAIT + 1), True, key=self._shows)
        return wait if wait <= MAX_WAIT else None

    @property
    def smallest_points(self) -> float | None:
        """Smallest fall of the rate of outcomes, in [0, 1], that would show within 7 cohorts; None above .5."""

        def shows(thousandths: int) -> bool:
            return self.power(self.points_gap(thousandths / 1000)) >= POWER

        found = bisect_left(range(_LARGEST + 1), True, 1, key=shows)
        return found / 1000 if found <= _LARGEST else None

    def _shows(self, waited: int) -> bool:
        gaps = (self.slope_gap(SLOPE), self.points_gap(POINTS))
        return any(self.power(each, waited) >= POWER for each in gaps)

    @cached_property
    def rate(self) -> Floats:
        """Rate of outcomes by bin of the score, float64 (n_bins,)."""
        weight, confidence, correct = self.columns
        mean = np.clip(ratio(confidence, weight, 0.5), CLIP, 1.0 - CLIP)
        return np.asarray(np.clip(outcome_rates(weight, mean, correct)[0], CLIP, 1.0 - CLIP))

    def slope_gap(self, slope: float) -> Floats:
        """Return the change of the rates if their log-odds are multiplied by a slope."""
        return np.asarray(scipy.special.expit(slope * scipy.special.logit(self.rate)) - self.rate)

    def points_gap(self, points: float) -> Floats:
        """Return the change of the rates of outcomes that are less frequent by some points, on average over the scores."""
        weight, variance = self.columns[0].sum(axis=0), self.rate * (1.0 - self.rate)
        mean = float(weight @ variance) / max(float(weight.sum()), 1e-300)
        return -points * variance / max(mean, 1e-300)
