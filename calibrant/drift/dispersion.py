"""Over-dispersion between cohorts: days that differ by more than chance, from a scanner, a shift or a season.

Evidence assumes that units are independent. If all outcomes of a day move together, gaps of a day are larger than binomial ones by a
factor φ, and fixed bets grow without a change. The evidence of a cohort is therefore tempered: its logarithm is divided by
φ ≥ 1, estimated from earlier cohorts only. (Bets λ / φ would not help: their evidence is not a supermartingale.)

φ is the mean squared difference of standardised gaps, halved: of neighbouring cohorts, and of neighbouring sums of 7 cohorts. A lasting
change moves both sides and cancels. Under correlated days the sums differ more, and tempering is not enough. An alarm therefore also
needs more evidence by `caution`: the long-run variance of the gaps before the start of its change.

All functions take any leading shape, so that many detectors can be simulated together.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.drift.unit_tables import DRIFT_BINS

Floats = NDArray[np.float64]
SPANS = (1, 7)
# Before so many cohorts each counts as one unit: then its evidence is valid under any dependence.
RUN_IN = 10
MIN_CORRELATED = 14
# Until so many differences the upper limit of the estimate is used, from then on the estimate if it is significant.
SETTLED = 28
MEMORY = 120.0
# Cohorts behind the long-run variance.
HISTORY = 120
UPPER = 1.0
# Lags of the long-run variance, and standard errors of its upper limit, which is used until `SETTLED` cohorts, and of the higher one
# that is used while neighbours correlate by this much and a standard error more.
LAGS, EARLY, LINKED, SOME_CORRELATION = 7, 1.0, 1.5, 0.05
# The relative standard error of few cohorts counts at most so much.
_MAX_ERROR = 3.0
MIN_DIFFERENCES, MORE_DIFFERENCES, MANY_DIFFERENCES = 4.0, 10.0, 14.0
# Standard errors above 1 from which an estimate corrects, and from which it is reported.
SIGNIFICANT, WARNED = 3.0, 4.5
# One lasting change moves many of the sums. Without a sign of over-dispersion of neighbours they need more.
MORE = 2.0
# 1 − φ of neighbours / φ of sums of 7, if neighbouring cohorts are correlated by 0.2 and others by its powers.
MAX_CORRELATION = 0.43
_LARGEST = 4.0
# What that bound leaves of the mean squared difference of normal gaps.
_LEFT = 0.9
# Variance of an estimate times the number of its overlapping differences, by span.
_ERRORS = np.array([2.0, 6.0])


@dataclass(frozen=True)
class Dispersion:
    """What is known of earlier cohorts. Each state's estimates are computed once.

    Attributes
    ----------
    history : float64 (..., 2, 120), standardised gaps of the last cohorts, newest last; nan before the first
    squares : float64 (..., 2, 2), sums of half the squared differences, by direction (level, slope) and span
    n : float64 (..., 2), number of differences by span; old ones count less
    variance : float64 (...), mean binomial variance of a cohort
    n_cohorts : float64 (...), cohorts with units
    labels : float64 (..., 2, n_bins), units and their labels by bin: a stable model that is not calibrated has another variance
    """

    history: Floats
    squares: Floats
    n: Floats
    variance: Floats
    n_cohorts: Floats
    labels: Floats

    @classmethod
    def none(cls, shape: tuple[int, ...] = (), bins: int = DRIFT_BINS) -> Dispersion:
        """Return the state before the first cohort."""
        return cls(
            np.full((*shape, 2, HISTORY), np.nan),
            np.zeros((*shape, 2, len(SPANS))),
            np.zeros((*shape, len(SPANS))),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros((*shape, 2, bins)),
        )

    @cached_property
    def by_span(self) -> Floats:
        """Estimates of φ, float64 (..., 2, 2); nan without differences."""
        n = self.n[..., None, :]
        nothing = np.full(self.squares.shape, np.nan)
        return np.asarray(np.divide(self.squares, n * _LEFT, out=nothing, where=n > 0))

    @cached_property
    def error(self) -> Floats:
        """Relative standard error of an estimate, float64 (..., 2), by span: measured for normal gaps; inf without differences."""
        return np.asarray(np.sqrt(_ERRORS / np.where(self.n > 0, self.n, 1e-300)))

    @cached_property
    def estimate(self) -> Floats:
        """The largest estimate of φ, float64 (...); 1 without differences."""
        return np.asarray(np.nan_to_num(self.by_span, nan=1.0).max(axis=(-1, -2)))

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Whether over-dispersion is reported: some estimate is far above 1."""
        return self._exceeds(WARNED) & (self.n[..., 0] >= SETTLED)

    @cached_property
    def correlation(self) -> Floats:
        """How much larger φ of sums is, float64 (...): 1 − φ of neighbours / φ of sums, of the direction with the larger φ."""
        near, far = np.moveaxis(np.nan_to_num(self.by_span, nan=1.0), -1, 0)
        place = np.argmax(far, axis=-1)[..., None]
        near, far = (np.take_along_axis(each, place, axis=-1)[..., 0] for each in (near, far))
        return np.asarray(1.0 - near / np.maximum(far, 1e-300))

    @cached_property
    def is_correlated(self) -> NDArray[np.bool_]:
        """Whether cohorts are over-dispersed and correlated: then the evidence raises no alarm."""
        is_over = self._exceeds(SIGNIFICANT) & (self.n[..., 0] >= MIN_CORRELATED)
        # A lasting change makes sums differ, but not neighbours.
        is_over &= self._is_wide.any(axis=-1)
        return np.asarray(is_over & (self.correlation > MAX_CORRELATION))

    @cached_property
    def caution(self) -> Floats:
        """Factor by which the log evidence of a change that begins now must be larger, float64 (...), at least 1.

        It is the long-run variance of the gaps so far about their mean, relative to that of independent cohorts, with Bartlett's weights
        over 7 lags. Its upper limit is used for fewer than 28 cohorts, and a higher one while neighbouring gaps correlate. Cohorts of the
        change itself are not part of it.
        """
        known = np.isfinite(self.history)
        n = known[..., 0, :].sum(axis=-1)
        gaps = np.nan_to_num(self.history)
        mean = gaps.sum(axis=-1) / np.maximum(n, 1)[..., None]
        gaps, used = np.where(known, gaps - mean[..., None], 0.0), np.maximum(n - 2 * LAGS, n / 2.0)
        products = np.stack([(gaps**2).sum(axis=-1), *(_lagged(gaps, k) for k in range(1, LAGS))])
        weights = 2.0 * (1.0 - np.arange(LAGS) / LAGS)
        weights[0] = 1.0
        total = np.tensordot(weights, products, 1)
        ratio = np.maximum(total.max(axis=-1) / np.maximum(used, 1.0), 1.0)
        worst = total.argmax(axis=-1)[..., None]
        square, product = (
            np.take_along_axis(each, worst, axis=-1)[..., 0] for each in products[:2]
        )
        least = (SOME_CORRELATION + 1.0 / np.sqrt(np.maximum(n, 1))) * square
        errors = np.where(product > least, LINKED, np.where(n < SETTLED, EARLY, 0.0))
        error = np.sqrt(4.0 * LAGS / (3.0 * np.where(n > 0, n, 1e-300)))
        return np.asarray(ratio * (1.0 + errors * np.minimum(error, _MAX_ERROR)))

    def phi(self, n_units: Floats, variance: Floats) -> Floats:
        """Return the factor of the next cohort, float64 (...).

        Parameters
        ----------
        n_units, variance : of that cohort, float64 (...); neither depends on its labels
        """
        most = np.maximum(n_units, 1.0)
        upper = np.nan_to_num(self.by_span * (1.0 + UPPER * self.error[..., None, :]), nan=1.0)
        some = self.n[..., None, :] >= MIN_DIFFERENCES
        early = np.where(some, upper, 1.0).max(axis=(-1, -2))
        settled = np.where(self._exceeds(SIGNIFICANT), self.estimate, 1.0)
        found = np.maximum(1.0, np.where(self.n[..., 0] < SETTLED, early, settled))
        # Effects of a day add variance with the square of its size.
        larger = np.divide(
            variance, self.variance, out=np.ones_like(found), where=self.variance > 0
        )
        found = 1.0 + (found - 1.0) * np.maximum(larger, 1.0)
        return np.asarray(np.where(self.n_cohorts < RUN_IN, most, np.minimum(found, most)))

    def updated(self, weight: Floats, confidence: Floats, correct: Floats) -> Dispersion:
        """Return the state after one more cohort; one without variance changes nothing.

        Parameters
        ----------
        weight, confidence, correct : float64 (..., n_bins), as in `log_bets`
        """
        labels = self.labels + np.stack([weight, correct], axis=-2)
        rate = (labels[..., 1, :] + 0.5) / (labels[..., 0, :] + 1.0)
        gap, variance = standardised(weight, confidence, correct, rate)
        is_new = variance > 0
        moved = np.concatenate([self.history[..., 1:], gap[..., None]], axis=-1)
        steps = [_difference(moved, span) for span in SPANS]
        half = np.minimum(np.stack(steps, axis=-1), self._largest[..., None, None])
        known = np.isfinite(half) & is_new[..., None, None]
        keep = np.where(is_new, 1.0 - 1.0 / MEMORY, 1.0)
        squares = keep[..., None, None] * self.squares + np.where(known, half, 0.0)
        n = keep[..., None] * self.n + known[..., 0, :]
        n_cohorts = self.n_cohorts + is_new
        step = np.divide(
            1.0, np.minimum(n_cohorts, MEMORY), out=np.zeros_like(variance), where=n_cohorts > 0
        )
        return Dispersion(
            np.where(is_new[..., None, None], moved, self.history),
            squares,
            n,
            np.where(is_new, self.variance + step * (variance - self.variance), self.variance),
            n_cohorts,
            keep[..., None, None] * labels,
        )

    def where(self, chosen: NDArray[np.bool_], other: Dispersion) -> Dispersion:
        """Return this state where `chosen`, bool (...), and the other elsewhere."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Dispersion(
            *(
                np.where(chosen.reshape(chosen.shape + (1,) * (a.ndim - chosen.ndim)), a, b)
                for a, b in pairs
            )
        )

    @property
    def _largest(self) -> Floats:
        """A single difference counts at most so much: a lasting change is one jump, not over-dispersion."""
        return np.asarray(_LARGEST * np.maximum(self.estimate, 1.0))

    @cached_property
    def _is_wide(self) -> NDArray[np.bool_]:
        """Whether neighbours differ by a standard error more than chance, bool (..., 2) by direction."""
        near = np.nan_to_num(self.by_span[..., 0], nan=0.0)
        return np.asarray(near > 1.0 + self.error[..., None, 0])

    @cached_property
    def _counts(self) -> NDArray[np.bool_]:
        """Whether an estimate has differences enough, bool (..., 2, 2)."""
        n = np.broadcast_to(self.n[..., None, :], self.squares.shape)
        least = np.full(self.squares.shape, MIN_DIFFERENCES)
        least[..., 1] = np.where(self._is_wide, MORE_DIFFERENCES, MANY_DIFFERENCES)
        return np.asarray(n >= least)

    def _exceeds(self, errors: float) -> NDArray[np.bool_]:
        many = np.full(self.squares.shape, errors)
        many[..., 1] += np.where(self._is_wide, 0.0, MORE)
        over = np.nan_to_num(self.by_span, nan=0.0) > 1.0 + many * self.error[..., None, :]
        return np.asarray((over & self._counts).any(axis=(-1, -2)))


def standardised(
    weight: Floats, confidence: Floats, correct: Floats, rate: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the gaps of a cohort in standard errors, float64 (..., 2), and the binomial variance of its labels, (...).

    `rate` is the share of labels by bin in all cohorts so far; the standard error is that of the larger variance.
    The directions are the sum of the gaps, and their sum by log-odds of the bin, orthogonal to the first. Each unit counts as
    fully dependent, as in the evidence.

    Examples
    --------
    >>> z, variance = standardised(np.array([100.0]), np.array([50.0]), np.array([60.0]))
    >>> z.tolist(), float(variance)
    ([2.0, 0.0], 25.0)
    """
    bins = weight.shape[-1]
    x = scipy.special.logit((np.arange(bins) + 0.5) / bins)
    mean = np.divide(confidence, weight, out=np.zeros_like(weight), where=weight > 0)
    each = weight * mean * (1.0 - mean)
    gap, variance = correct - confidence, each.sum(axis=-1)
    middle = np.divide(
        (each * x).sum(axis=-1), variance, out=np.zeros_like(variance), where=variance > 0
    )
    centred = x - middle[..., None]
    larger = each if rate is None else np.maximum(each, weight * rate * (1.0 - rate))
    spread = (larger * centred**2).sum(axis=-1)
    level = _over(gap.sum(axis=-1), larger.sum(axis=-1))
    return np.stack([level, _over((gap * centred).sum(axis=-1), spread)], axis=-1), variance


def _difference(recent: Floats, span: int) -> Floats:
    """Return half the squared difference of the last two sums of `span` cohorts, each in standard errors."""
    last = recent[..., -span:].sum(axis=-1)
    before = recent[..., -2 * span : -span].sum(axis=-1)
    return np.asarray((last - before) ** 2 / (2.0 * span))


def _lagged(gaps: Floats, lag: int) -> Floats:
    """Return the sum of products of gaps that are `lag` cohorts apart, float64 (..., 2)."""
    return np.asarray(np.einsum("...t,...t->...", gaps[..., lag:], gaps[..., :-lag]))


def _over(total: Floats, variance: Floats) -> Floats:
    return np.divide(total, np.sqrt(variance), out=np.zeros_like(total), where=variance > 0)
