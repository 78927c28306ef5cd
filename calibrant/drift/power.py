"""What the rule of change could show: whether it is armed, and the smallest change that would be found.

Computed from a typical cohort without simulation. A change shifts G of each direction by its mean and leaves the noise; the
statistic is then normal around the shifted value, and a direction shows the change if it exceeds the quantile of its level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from calibrant.drift.change import (
    CLIP,
    MARGIN,
    MIN_BEFORE,
    MIN_CORRELATED,
    SHARES,
    WINDOWS,
    Effects,
    outcome_rates,
)
from calibrant.drift.unit_tables import UnitTable

Floats = NDArray[np.float64]
POWER = 0.8
WITHIN = 7  # cohorts
SLOPE, POINTS = 0.625, 0.05
MAX_WAIT = 60  # cohorts
_LARGEST = 0.5
_RANGE = (1e-3, 1.0 - 1e-3)  # of rates


@dataclass(frozen=True)
class Monitor:
    """What the power of a detector depends on.

    Attributes
    ----------
    typical : table of one typical cohort
    level : of a day's tests
    n_before : cohorts before
    variance_before : float64 (7,), variance of the sums before, a reference included
    phi : float64 (7,), variance between days
    margin : in log-odds
    has_block : whether a reference without days belongs to Before
    """

    typical: UnitTable
    level: float
    n_before: int
    variance_before: Floats
    phi: Floats
    margin: float = MARGIN
    has_block: bool = False

    def power(self, gap: Floats, waited: int = 0) -> float:
        """Return the probability that some window of the first 7 cohorts shows a change of the rates of outcomes.

        Parameters
        ----------
        gap : float64 (n_bins,), mean change of the rate in each bin of the score
        waited : cohorts that pass before the change and belong to Before
        """
        m = self.n_before + waited
        if m < MIN_BEFORE and not self.has_block:
            return 0.0
        return max(self._power(gap, w, m, waited) for w in WINDOWS if w <= WITHIN)

    def _power(self, gap: Floats, w: int, m: int, waited: int) -> float:
        """Return the probability that a window shows it: the change also adds to the variance of outcomes."""
        now = self._rates
        then = np.clip(now + gap, *_RANGE)
        own, after, pooled = (self._sums(each).variance[0] for each in (now, then, now + (then - now) * w / (m + w)))  # fmt: skip
        usable = own > 0
        own, after, pooled = (each[usable] for each in (own, after, pooled))
        if not usable.any():
            return 0.0
        before = (self.variance_before[usable] / own + waited) * pooled
        squares = (max(m - 1.0, 0.0) * self.phi[usable] * own + (w - 1.0) * after) / pooled
        phi = np.maximum(1.0, squares / max(m + w - 2.0, 1.0))
        spread = np.sqrt(phi * (1.0 / (w * pooled) + 1.0 / np.maximum(before, 1e-12)))
        shift = np.abs(self._sums(now, then - now).errors[0, usable]) / pooled
        t = np.maximum(shift - self.margin, 0.0) / spread
        tail = self.level * SHARES[usable] / len(WINDOWS) / 2.0
        return float(scipy.special.ndtr(t + self._quantile(m, w, usable, tail)).max())

    def _quantile(self, m: int, w: int, usable: NDArray[np.bool_], tail: Floats) -> Floats:
        is_known = (m >= MIN_CORRELATED) & (
            self.phi[usable] <= 1.0 + 2.0 * np.sqrt(2.0 / max(m, 1))
        )
        student = scipy.special.stdtrit(max(m + w - 2.0, 1.0), tail)
        return np.asarray(np.where(is_known, scipy.special.ndtri(tail), student))

    @property
    def _rates(self) -> Floats:
        return np.asarray(outcome_rates(*self.typical.columns[:3, None])[0])

    def _sums(self, rates: Floats, gap: ArrayLike = 0.0) -> Effects:
        """Sums of a typical cohort whose outcomes differ from the scores by a gap."""
        weight, confidence, _ = self.typical.columns[:3, None]
        return Effects.of(weight, confidence, confidence + gap * weight, rates[None])

    @property
    def shows_target(self) -> bool:
        """Whether a slope of .625, or 5 points of accuracy, would show now."""
        return self._shows(0)

    @property
    def armed_in(self) -> int | None:
        """Cohorts until it is armed, 0 if it is; None if not within 60."""
        return next((k for k in range(MAX_WAIT + 1) if self._shows(k)), None)

    @property
    def smallest_points(self) -> float | None:
        """Smallest change of the rate of outcomes, in [0, 1], that would show within 7 cohorts; None above .5."""
        low, high = 0.0, _LARGEST
        if self.power(points_gap(self.typical, high)) < POWER:
            return None
        for _ in range(30):
            middle = (low + high) / 2.0
            shows = self.power(points_gap(self.typical, middle)) >= POWER
            low, high = (low, middle) if shows else (middle, high)
        return high

    def _shows(self, waited: int) -> bool:
        shifts = (slope_gap(self.typical, SLOPE), points_gap(self.typical, POINTS))
        return any(self.power(each, waited) >= POWER for each in shifts)


def _quantile(df: Floats, tail: Floats) -> Floats:
    """Quantile of Student's distribution, the normal one for infinite degrees of freedom."""
    student = scipy.special.stdtrit(np.minimum(df, 1e6), tail)
    return np.asarray(np.where(np.isinf(df), scipy.special.ndtri(tail), student))


def slope_gap(table: UnitTable, slope: float) -> Floats:
    """Return the change of each bin's rate of outcomes, float64 (n_bins,), from logit(score) to slope · logit(score).

    Examples
    --------
    >>> even = UnitTable.at_scores(np.array([0.1, 0.5, 0.9]), np.ones(3), np.array([0.1, 0.5, 0.9]), 3)
    >>> slope_gap(even, 0.5).round(2).tolist()
    [0.15, 0.0, -0.15]
    """
    score = np.clip(table.mean_confidence, CLIP, 1.0 - CLIP)
    return np.asarray(scipy.special.expit(slope * scipy.special.logit(score)) - score)


def points_gap(table: UnitTable, points: float) -> Floats:
    """Return the change of each bin's rate if outcomes are less frequent by some points, on average over the scores."""
    score = np.clip(table.mean_confidence, CLIP, 1.0 - CLIP)
    share = table.weight / max(table.n_units, 1e-300)
    variance = score * (1.0 - score)
    return np.asarray(-points * variance / max(float(share @ variance), 1e-300))
