"""Evaluation of a detector after each cohort: the change that is shown, whether the rule is armed, and the smallest change to be found.

Power is computed without simulation, by the rule itself: cohorts like the last ones, with other outcomes, follow the known ones. A
change shifts the effect of each direction and leaves its noise; the statistic is then normal around the shifted value, and a
direction shows the change if it exceeds the quantile of its level.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio
from calibrant.core.smallest_change import POINTS, SLOPE, SmallestChange
from calibrant.drift.calibration import N_RECENT, Judgement, judge, phi_of
from calibrant.drift.change import (
    CLIP,
    LATEST,
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


POWER, STILL = (
    0.8,
    0.7,
)  # the chance to show a change that arms, and that it must fall below after that
WITHIN = 7  # cohorts
SPANS = np.array([each for each in WINDOWS if each <= WITHIN])
MAX_WAIT = 60  # cohorts
LATER, CLEARLY = (
    30,
    0.8,
)  # cohorts after which a change of at most this part of today's size is worth waiting for
_LARGEST, _FARTHEST = 0.5, 8.0  # change of the rate, in log-odds


@dataclass(frozen=True)
class Monitor:
    """What the rule would show of cohorts to come: as many units, with errors that vary as those of the last 28."""

    columns: Floats  # float64 (3, n_cohorts, n_bins): `weight`, `confidence`, `correct` of the cohorts compared so far
    level: float  # of a day's tests
    block: Effects | None = None  # a reference without days

    def power(self, gap: Floats, waited: int = 0) -> Floats:
        """Return the probability that some window of the first 7 cohorts shows a change for the worse, float64 (...).

        gap : changes of the rate of outcomes by bin of the score, float64 (..., n_bins)
        waited : cohorts that pass before the change and belong to Before
        """
        if self.first_in > waited:
            return np.zeros(gap.shape[:-1])
        flat = gap.reshape(-1, gap.shape[-1])
        found = self._ahead(np.concatenate([np.zeros_like(flat[:1]), flat]), waited)
        before, after, variance = (each[1:] for each in (found.before, found.after, found.variance))
        shift = after - found.after[0]
        # φ is estimated and at least 1: a normal variable of this size, cut at 0, has the mean .4 and the standard deviation .58.
        by_chance = np.sqrt(2.0 / np.maximum(self.columns.shape[1] + waited + SPANS - 2.0, 1.0))
        variance = variance * (1.0 + 0.4 * by_chance)
        t = np.maximum(np.abs(shift) - MARGIN, 0.0) * np.sqrt(ratio(1.0, variance))
        tail = self.level * SHARES[:, None] / len(WINDOWS) / 2.0
        normal = -scipy.special.ndtri(tail) * ratio(found.t[1:], found.z[1:], 1.0)
        least = np.maximum(normal, -scipy.special.stdtrit(np.maximum(found.df[1:], 1.0), tail))
        # An effect before that is within chance has no direction.
        sure = np.sign(before) * np.maximum(np.abs(before) - 2.0 * self._chance[:, None], 0.0)
        is_worse = np.abs(sure + shift) > np.abs(sure)
        size = np.hypot(1.0, 0.29 * by_chance * least)
        shown = np.where(is_worse & (t > 0), scipy.special.ndtr((t - least) / size), 0.0)
        return np.asarray(shown.max(axis=(-1, -2)).reshape(gap.shape[:-1]))

    def _ahead(self, gaps: Floats, waited: int) -> Comparisons:
        """Return the comparisons of cohorts with some gaps, (n_gaps, n_bins), each window at its own end: (n_gaps, 7, n_windows)."""
        n = self.columns.shape[1]
        then = self.columns[:, np.arange(n - WITHIN, n) % n]
        known = np.concatenate([self.columns, self._later(waited), then], axis=1)
        weight, confidence, correct = np.repeat(known[:, None], len(gaps), axis=1)
        correct[:, n + waited :] += gaps[:, None] * then[0]
        effects = Effects.of(weight, confidence, correct, rated=self.block is None)
        found = compare_windows(effects, n + waited + SPANS, self.block, windows=tuple(SPANS))
        return Comparisons(
            *(np.einsum("riki->rki", getattr(found, each.name)) for each in fields(found))
        )

    def _later(self, n: int) -> Floats:
        """Return cohorts to come: as the mean of the last 28, with their errors in turn, whose signs leave neighbours uncorrelated."""
        recent = self.columns[:, -N_RECENT:]
        later = np.repeat(recent.mean(axis=1, keepdims=True), n, axis=1)
        weight, confidence, correct = recent
        errors = correct - confidence
        errors = errors - weight * ratio(errors.sum(axis=0), weight.sum(axis=0))
        errors = errors * (len(errors) / max(len(errors) - 1, 1)) ** 0.5
        turn = np.arange(n)
        later[2] += np.where(turn // 2 % 2, -1.0, 1.0)[:, None] * errors[turn % len(errors)]
        return later

    @property
    def first_in(self) -> int:
        """Cohorts until the first comparison."""
        return 0 if self.block is not None else max(0, MIN_BEFORE - self.columns.shape[1])

    @property
    def armed_in(self) -> int | None:
        """Cohorts until a slope of .625, or 5 points of accuracy, would show: 0 if it would now; None if not within 60.

        Once armed, it stays so while the chance is at least .7: day by day, the estimate of the chance moves around .8.
        """
        if self._would_show(0) or self._stays_armed():
            return 0
        wait = bisect_left(range(MAX_WAIT + 1), True, key=self._would_show)
        return wait if wait <= MAX_WAIT else None

    def _stays_armed(self) -> bool:
        """Return whether one of the last 7 cohorts armed it, and the chance has been little below that since."""
        n = self.columns.shape[1]
        for k in range(n, max(n - 1 - WITHIN, 0), -1):
            chance = replace(self, columns=self.columns[:, :k])._shows(0)
            if not STILL <= chance < POWER:
                return chance >= POWER
        return False

    def _would_show(self, waited: int) -> bool:
        return self._shows(waited) >= POWER

    def _shows(self, waited: int) -> float:
        gaps = (self.slope_gap(SLOPE), self.points_gap(POINTS), self.points_gap(-POINTS))
        return float(self.power(np.stack(gaps), waited).max())

    def smallest(self, waited: int = 0) -> SmallestChange:
        """Return the smallest fall and rise that would show within 7 cohorts; None above .5. `waited` as in `power`."""
        rate = float(self.columns[2].sum() / max(self.columns[0].sum(), 1e-300))
        low, high = np.zeros(2), np.full(2, _FARTHEST)
        for _ in range(4):
            shifts = np.linspace(low, high, 9, axis=1)
            gaps = self._shifted(shifts * [[-1.0], [1.0]])
            shown = self.power(gaps, waited) >= POWER
            some = np.asarray(shown.any(axis=1))
            first = np.arange(2), np.where(some, shown.argmax(axis=1), 8)
            low, high = shifts[first[0], np.maximum(first[1] - 1, 0)], shifts[first]
        points = np.ceil(1000.0 * np.abs(self._mean(gaps[first])) - 1e-9) / 1000.0
        found = [float(each) if is_shown and each <= _LARGEST else None for each, is_shown in zip(points, some, strict=True)]  # fmt: skip
        return SmallestChange(rate, *found)

    def later(self, today: float | None) -> float | None:
        """Return the smallest change that would show after 30 more cohorts, if it is clearly smaller than today's."""
        then = self.smallest(LATER).points
        return None if then is None or (today is not None and then > CLEARLY * today) else then

    @cached_property
    def _chance(self) -> Floats:
        """Standard error of the effect so far, float64 (7,)."""
        variance = Effects.of(*self.columns).total.variance[0]
        if self.block is not None:
            variance = variance + self.block.variance[0]
        return np.sqrt(ratio(1.0, variance))

    @cached_property
    def rate(self) -> Floats:
        """Rate of outcomes by bin of the score, float64 (n_bins,)."""
        every = np.pad(self.columns, ((0, 0), (0, LATEST), (0, 0)))  # the latest count, too
        weight, confidence, correct = every
        mean = np.clip(ratio(confidence, weight, 0.5), CLIP, 1.0 - CLIP)
        return np.asarray(outcome_rates(weight, mean, correct)[0])

    def slope_gap(self, slope: float) -> Floats:
        """Return the change of the rates if their log-odds are multiplied by a slope."""
        return np.asarray(scipy.special.expit(slope * scipy.special.logit(self.rate)) - self.rate)

    def points_gap(self, points: float) -> Floats:
        """Return the change of the rates by one shift in log-odds that makes outcomes less frequent by some points, or by as many as can be."""
        low, high = np.zeros(1), np.full(1, _FARTHEST)
        sign = -1.0 if points > 0 else 1.0
        for _ in range(30):
            middle = (low + high) / 2.0
            is_less = abs(self._mean(self._shifted(sign * middle))[0]) < abs(points)
            low, high = (middle, high) if is_less else (low, middle)
        return np.asarray(self._shifted(sign * high)[0])

    def _shifted(self, shifts: Floats) -> Floats:
        """Return the change of the rates by shifts in log-odds, (...): float64 (..., n_bins)."""
        moved = scipy.special.expit(scipy.special.logit(self.rate) + shifts[..., None])
        return np.asarray(moved - self.rate)

    def _mean(self, gap: Floats) -> Floats:
        weight = self.columns[0].sum(axis=0)
        return np.asarray(gap @ weight / max(float(weight.sum()), 1e-300))
