"""Evaluation of a detector after each cohort: the change that is shown, whether the rule is armed, and the smallest change to be found.

Power is computed from a typical cohort without simulation. A change shifts G of each direction by its mean and leaves the noise; the
statistic is then normal around the shifted value, and a direction shows the change if it exceeds the quantile of its level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio
from calibrant.drift.calibration import Judgement, judge, phi_of
from calibrant.drift.change import (
    CLIP,
    MARGIN,
    MIN_BEFORE,
    SHARES,
    WINDOWS,
    Change,
    Effects,
    compare_windows,
    find_change,
)
from calibrant.drift.unit_tables import UnitTable, merged

_LEAST_P = 1e-300
LEANING = float(np.log10(20.0))  # of labels that tend in a direction, at the level .05


@dataclass(frozen=True)
class Evaluation:
    """What the cohorts so far show."""

    p: float  # of the best test for the worse; 1 without a test. Compare it with the level
    leaning: Floats  # float64 (7,), −log10 of each direction's p-value over all windows, with the sign of its change
    change: Change | None  # shown at the level, or None


def effects_of(tables: Sequence[UnitTable], rated: bool = False) -> Effects:
    """Return the effects of cohorts from their tables, in order; `rated` as in `Effects.of`."""
    columns = np.stack([each.columns[:3] for each in tables], axis=1)
    return Effects.of(*columns, rated=rated)


def evaluate(effects: Effects, level: float, block: Effects | None = None) -> Evaluation:
    """Return what cohorts show; `level` is 1 / (run length in cohorts · number of detectors).

    >>> steady = Effects(np.zeros((20, 7)), np.full((20, 7), 25.0), np.zeros((20, 7)))
    >>> evaluate(steady, 1 / 3650).p, evaluate(steady, 1 / 3650).change
    (1.0, None)
    """
    found = compare_windows(effects, block=block)
    worse = np.where(found.is_worse[0], found.p[0], 1.0)
    tail = np.where(found.t[0] > 0, np.minimum(found.tail[0] * len(WINDOWS), 1.0), 1.0)
    best = tail.argmin(axis=-1)[:, None]
    sign = np.sign(np.take_along_axis((found.after - found.before)[0], best, axis=-1))[:, 0]
    least = np.take_along_axis(tail, best, axis=-1)[:, 0]
    leaning = sign * -np.log10(np.maximum(least, _LEAST_P))
    return Evaluation(
        max(float(worse.min()), _LEAST_P),
        leaning,
        find_change(effects, level, block) if (found.p[0] < level).any() else None,
    )


def judge_cohorts(tables: Sequence[UnitTable], tolerance: float, n_slices: int = 1) -> Judgement:
    """Return the word of calibration of some cohorts, with the variance between them."""
    if not tables:
        return judge(UnitTable.empty(), tolerance=tolerance)
    level = effects_of(tables).along(0)
    phi = phi_of(level.errors[..., 0], level.variance[..., 0])
    return judge(merged(tables), float(phi), tolerance, n_slices)


POWER = 0.8
WITHIN = 7  # cohorts
SLOPE, POINTS = 0.625, 0.05
MAX_WAIT = 60  # cohorts
_LARGEST = 0.5


@dataclass(frozen=True)
class Monitor:
    """What the power of a detector depends on."""

    typical: UnitTable  # table of one typical cohort; its labels are not used
    level: float  # of a day's tests
    n_before: int  # cohorts before
    variance_before: Floats  # float64 (7,), variance of the sums before, a reference included
    phi: Floats  # float64 (7,), variance between days
    has_block: bool = False  # whether a reference without days belongs to Before

    @property
    def variance(self) -> Floats:
        """Variance of a typical cohort, float64 (7,)."""
        table = self.typical
        columns = (table.weight, table.confidence, table.confidence)
        return np.asarray(Effects.of(*(each[None] for each in columns)).variance[0])

    def power(self, shift: Floats, waited: int = 0) -> float:
        """Return the probability that some window of the first 7 cohorts shows a shift.

        waited : cohorts that pass before the change and belong to Before
        """
        m, usable = self.n_before + waited, self.variance > 0
        if (m < MIN_BEFORE and not self.has_block) or not usable.any():
            return 0.0
        v, before = self.variance[usable], self.variance_before[usable] + waited * self.variance[usable]  # fmt: skip
        best = 0.0
        for w in (each for each in WINDOWS if each <= WITHIN):
            spread = np.sqrt(self.phi[usable] * (1.0 / (w * v) + 1.0 / np.maximum(before, 1e-12)))
            t = np.maximum(np.abs(shift[usable]) - MARGIN, 0.0) / spread
            tail = self.level * SHARES[usable] / len(WINDOWS) / 2.0
            df = max(m + w - 2.0, 1.0)
            best = max(best, float(scipy.special.ndtr(t + scipy.special.stdtrit(df, tail)).max()))
        return best

    @property
    def armed_in(self) -> int | None:
        """Cohorts until a slope of .625, or 5 points of accuracy, would show: 0 if it would now; None if not within 60."""
        return next((k for k in range(MAX_WAIT + 1) if self._shows(k)), None)

    @property
    def smallest_points(self) -> float | None:
        """Smallest change of the rate of outcomes, in [0, 1], that would show within 7 cohorts; None above .5."""
        low, high = 0.0, _LARGEST
        if self.power(points_shift(self.typical, high)) < POWER:
            return None
        for _ in range(30):
            middle = (low + high) / 2.0
            shows = self.power(points_shift(self.typical, middle)) >= POWER
            low, high = (low, middle) if shows else (middle, high)
        return high

    def _shows(self, waited: int) -> bool:
        shifts = (slope_shift(self.typical, SLOPE), points_shift(self.typical, POINTS))
        return any(self.power(each, waited) >= POWER for each in shifts)


def slope_shift(table: UnitTable, slope: float) -> Floats:
    """Return the mean effect of logit E[label] = slope · logit(score) on each direction, in log-odds.

    >>> one = UnitTable(*np.full((5, 15), 10.0))
    >>> one = UnitTable(one.weight, 10 * (np.arange(15) + 0.5) / 15, one.correct, one.squared, one.occupancy)
    >>> slope_shift(one, 0.5)[:2].round(2).tolist()
    [0.0, -0.75]
    """
    score = np.clip(table.mean_confidence, CLIP, 1.0 - CLIP)
    return _shift(table, scipy.special.expit(slope * scipy.special.logit(score)) - score)


def points_shift(table: UnitTable, points: float) -> Floats:
    """Return the mean effect of outcomes that are less frequent by some points, on average over the scores."""
    score = np.clip(table.mean_confidence, CLIP, 1.0 - CLIP)
    share = table.weight / max(table.n_units, 1e-300)
    variance = score * (1.0 - score)
    return _shift(table, -points * variance / max(float(share @ variance), 1e-300))


def _shift(table: UnitTable, gap: Floats) -> Floats:
    columns = (table.weight, table.confidence, table.confidence + gap * table.weight)
    effects = Effects.of(*(each[None] for each in columns))
    return ratio(effects.errors[0], effects.variance[0])
