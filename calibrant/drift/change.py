"""The rule of change: a model compared with its own past, in log-odds per day.

A sealed cohort gives, in each of seven directions, a sum G of errors and its variance V: the level of the outcomes, the slope
(scores too extreme or too cautious) and five bands of the score as deviations from the day's level. The effect of
several cohorts is θ = ΣG / ΣV. The last w cohorts (After) are compared with all earlier ones (Before). The statistic is
t = (|θ_after − θ_before| − δ)₊ / √(φ (1/ΣV_after + 1/ΣV_before)), where φ is the variance between days and δ a margin that
slow waves of days may not exceed. An alarm is raised if Student's tail of t is below 1 / (run length · detectors), split
over directions and windows, and the effect after is larger than the one before. Otherwise the change is an improvement.

V is Σ p(1 − p) of the scores. From 24 cohorts on it is Σ r(1 − r) with the rates r of the outcomes in each bin of the score, because
p(1 − p) is four times too small if a confidence of .98 is right in .9 of cases. φ then counts as known, with the normal tail, while
at least 14 cohorts before vary no more than by chance. Fewer cohorts, and a reference of one block, do not determine r and φ.

By Bonferroni, the probability of a false alarm within T days is at most T / (run length), if φ is known. φ is estimated: with
strongly correlated effects of days the rate is higher (`docs/drift.md` states both). The state is the cohorts' tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from calibrant.core.arrays import Floats, Ints, ratio

WINDOWS = (1, 2, 3, 5, 7, 10, 14, 21, 28, 42, 60)
N_BANDS = 5
DIRECTIONS = ("level", "slope", *(f"band {k}" for k in range(N_BANDS)))
# Half of the level is on the level and the slope, half on the bands.
SHARES = np.array([0.25, 0.25] + [0.5 / N_BANDS] * N_BANDS)
MIN_BEFORE = 5
MARGIN = 0.05
DAY_SD = 0.2  # assumed standard deviation of a day's effect where only one block is known before
MIN_LIVE = 7
MIN_CORRELATED = 14
MAX_CORRELATION = 0.9
MAX_INFLATION = 9.0
CLIP = 1.0 / 60.0
MIN_RATED = 21  # cohorts that determine the rates of outcomes
LATEST = 3  # cohorts that do not count for the rates
PRIOR_UNITS = 20.0  # at the mean score, in the rate of outcomes of a bin
NEAR_BEST = 2.0  # log units
_NOTHING = 1e-9


@dataclass(frozen=True)
class Effects:
    """Sums of errors by cohort and direction, with their variances and third moments; each float64 (..., n_cohorts, 7).

    `is_rated`: whether the variance is that of the rates of outcomes.
    """

    errors: Floats
    variance: Floats
    third: Floats
    is_rated: bool = field(default=False, kw_only=True)

    @classmethod
    def of(
        cls, weight: ArrayLike, confidence: ArrayLike, correct: ArrayLike, *, rated: bool = False
    ) -> Effects:
        """Return the effects of cohorts from their tables by bin of the score.

        Parameters
        ----------
        weight, confidence, correct : float64 (..., n_cohorts, n_bins): units, Σ weight · score, Σ weight · label;
            `n_bins` is a multiple of 5
        rated : whether to take the variance from the rates of outcomes, if there are 24 cohorts

        >>> one = Effects.of([[0, 4.0, 0, 4.0, 0]], [[0, 1.2, 0, 2.8, 0]], [[0, 2.2, 0, 3.8, 0]])
        >>> one.errors[0, 0].round(3), one.variance[0, 0].round(3)
        (np.float64(2.0), np.float64(1.68))
        """
        weight, confidence, correct = (
            np.asarray(each, np.float64) for each in (weight, confidence, correct)
        )
        mean = ratio(confidence, weight, 0.5)
        mean = np.clip(mean, CLIP, 1.0 - CLIP)
        rated = rated and weight.shape[-2] >= MIN_RATED + LATEST
        rate = outcome_rates(weight, mean, correct) if rated else mean
        g, v = correct - confidence, weight * rate * (1.0 - rate)
        bins = g, v, v * (1.0 - 2.0 * rate)
        level = tuple(each.sum(-1) for each in bins)
        columns = [level, _slope(*bins, scipy.special.logit(mean)), *_bands(*bins)]
        found = [np.stack(each, axis=-1) for each in zip(*columns, strict=True)]
        empty = found[1] <= _NOTHING * np.maximum(1.0, found[1][..., :1])
        return cls(*(np.where(empty, 0.0, each) for each in found), is_rated=rated)

    @property
    def n(self) -> int:
        """Number of cohorts."""
        return int(self.errors.shape[-2])

    @property
    def total(self) -> Effects:
        """All cohorts as one block."""
        return self._of_each(lambda each: each.sum(-2, keepdims=True))

    def along(self, direction: int) -> Effects:
        """One direction."""
        return self._of_each(lambda each: each[..., direction : direction + 1])

    def __getitem__(self, cohorts: slice) -> Effects:
        return self._of_each(lambda each: each[..., cohorts, :])

    def _of_each(self, change: Callable[[Floats], Floats]) -> Effects:
        sums = (change(each) for each in (self.errors, self.variance, self.third))
        return Effects(*sums, is_rated=self.is_rated)


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of After against Before; each float64 (..., n_ends, 7, n_windows). Without a test, t is 0."""

    t: Floats  # t, df: statistic and degrees of freedom
    z: Floats  # normal statistic with the same tail as skewed counts have at t
    df: Floats
    before: Floats  # before, after: effects θ in log-odds
    after: Floats
    variance: Floats  # of the difference of the two effects, φ included

    @property
    def tail(self) -> Floats:
        """Two-sided probability: the larger of Student's tail, for an estimated φ, and that of skewed counts."""
        student = scipy.special.stdtr(np.maximum(self.df, 1.0), -self.t)
        return np.asarray(2.0 * np.maximum(student, scipy.special.ndtr(-self.z)))

    @property
    def p(self) -> Floats:
        """Tail divided by the direction's and the window's share: compare it with the level of a day."""
        share = SHARES[:, None] / self.t.shape[-1]
        return np.asarray(np.where(self.t > 0, np.minimum(self.tail / share, 1.0), 1.0))

    @property
    def is_worse(self) -> NDArray[np.bool_]:
        """Whether the effect after is larger than the one before: an alarm rather than an improvement."""
        return np.asarray(np.abs(self.after) > np.abs(self.before))


def compare_windows(
    effects: Effects,
    ends: ArrayLike | None = None,
    block: Effects | None = None,
    *,
    windows: tuple[int, ...] = WINDOWS,
    margin: float = MARGIN,
) -> Comparisons:
    """Return the tests of each window at each end.

    Parameters
    ----------
    effects : Effects of the cohorts, in order; those of a reference with days first
    ends : numbers of cohorts after which to test; default: after the last
    block : Effects of one cohort, a reference without days; it belongs to Before
    windows : lengths of After in cohorts

    >>> steady = Effects(np.zeros((20, 7)), np.full((20, 7), 25.0), np.zeros((20, 7)))
    >>> float(compare_windows(steady).p.min())
    1.0
    >>> steady.errors[18:, 0] = 25.0
    >>> found = compare_windows(steady)
    >>> float(found.after[0, 0, 1]), bool(found.p[0, 0, 1] < 1 / 3650)
    (1.0, True)
    """
    ends = np.array([effects.n] if ends is None else ends, np.int64)
    sums = _Sums.of(effects, block)
    columns = [_compare(sums, ends, w, margin) for w in windows]
    return Comparisons(*(np.stack(each, axis=-1) for each in zip(*columns, strict=True)))


@dataclass(frozen=True)
class Change:
    """The most significant change at the end of the cohorts."""

    p: float  # of the best test, compared with the level of a day
    direction: int  # index into `DIRECTIONS`
    is_worse: bool  # an alarm if True, else an improvement
    sign: int  # of the change of the effect
    start: int  # start, earliest, latest: indices of cohorts: the most likely first one, and the range within 2 log units
    earliest: int
    latest: int


def find_change(effects: Effects, level: float, block: Effects | None = None) -> Change | None:
    """Return the change that the cohorts up to the last show at a level, or None; one for the worse before an improvement.

    level : 1 / (run length in cohorts · number of detectors)
    """
    found = compare_windows(effects, block=block)
    p, worse = found.p[0], found.is_worse[0]
    for chosen, is_worse in ((worse, True), (~worse, False)):
        least = np.where(chosen, p, 1.0)
        if least.min() < level:
            best = np.unravel_index(np.argmin(least), least.shape)
            direction, sign = int(best[0]), int(np.sign((found.after - found.before)[0][best]))
            start = start_of_change(effects, direction, block)
            return Change(float(least.min()), direction, is_worse, sign, *start)
    return None


def start_of_change(
    effects: Effects, direction: int, block: Effects | None = None
) -> tuple[int, int, int]:
    """Return the first cohort of a change: the start with the largest t, and the range of starts within 2 log units."""
    first = 0 if block is not None else 1
    lengths = tuple(range(1, effects.n - first + 1))
    sums = _Sums.of(effects.along(direction), None if block is None else block.along(direction))
    end = np.array([effects.n])
    columns = [_compare(sums, end, w, MARGIN, any_start=True)[:3:2] for w in lengths]
    t, df = np.array(columns).reshape(len(lengths), 2).T
    n = np.clip(
        df, 1.0, effects.n
    )  # also of a known φ, so that starts are compared by one likelihood
    log_likelihood = 0.5 * (n + 1.0) * np.log1p(t**2 / n)
    starts = effects.n - np.array(lengths)
    best = int(np.argmax(log_likelihood))
    near = starts[log_likelihood >= log_likelihood[best] - NEAR_BEST]
    return int(starts[best]), int(near.min()), int(near.max())


@dataclass(frozen=True)
class _Sums:
    """Running sums over cohorts, of length n + 1: errors, moments, squares, cohorts, and products of neighbours."""

    errors: Floats
    variance: Floats
    third: Floats
    squares: Floats
    n: Floats
    products: tuple[Floats, ...]
    block: Effects | None
    is_rated: bool

    @property
    def columns(self) -> tuple[Floats, ...]:
        return self.errors, self.variance, self.third, self.squares, self.n

    @classmethod
    def of(cls, effects: Effects, block: Effects | None) -> _Sums:
        g, v = effects.errors, effects.variance
        root = np.sqrt(v)
        scaled = ratio(g, root)
        pairs = (
            scaled[..., 1:, :] * scaled[..., :-1, :],
            scaled[..., 1:, :] * root[..., :-1, :] + scaled[..., :-1, :] * root[..., 1:, :],
            root[..., 1:, :] * root[..., :-1, :],
        )
        own = (g, v, effects.third, scaled**2, (v > 0).astype(np.float64))
        errors, variance, third, squares, n = (_running(each) for each in own)
        first = np.zeros((*g.shape[:-2], 1, g.shape[-1]))
        products = tuple(_running(np.concatenate([first, each], axis=-2)) for each in pairs)
        return cls(errors, variance, third, squares, n, products, block, effects.is_rated)


def _compare(
    sums: _Sums, ends: Ints, w: int, margin: float, any_start: bool = False
) -> tuple[Floats, ...]:
    """Return t, z, df, both effects and the variance of their difference for one window at each end."""
    cut, columns = np.maximum(ends - w, 0), sums.columns
    g_live, v_live, third_live, square_before, m = (each[..., cut, :] for each in columns)
    g_after, v_after, third_after, square_after, n_after = (
        each[..., ends, :] - each[..., cut, :] for each in columns
    )
    g, v, third = g_live, v_live, third_live
    if sums.block is not None:
        block = sums.block
        g, v, third = g + block.errors, v + block.variance, third + block.third
    before, after, has_block = ratio(g, v), ratio(g_after, v_after), sums.block is not None
    rest_before = np.maximum(square_before - 2.0 * before * g_live + before**2 * v_live, 0.0)
    rest_after = np.maximum(square_after - after * g_after, 0.0)
    df = np.maximum(m - 1.0, 0.0) + n_after - 1.0
    phi = np.maximum(1.0, ratio(rest_before + rest_after, df))
    products = [each[..., cut, :] for each in sums.products]
    lagged = products[0] - before * products[1] + before**2 * products[2]
    phi, is_known = _correlated(phi, ratio(rest_before, m), ratio(lagged, rest_before), m)
    df = np.where(is_known & sums.is_rated, np.inf, df)
    chance = ratio(1.0, v_after) + ratio(1.0, v)
    variance = phi * chance
    if has_block and not any_start:
        assumed = m + n_after < MIN_LIVE
        variance = variance + np.where(assumed, DAY_SD**2 / np.maximum(n_after, 1.0), 0.0)
        df = np.where(assumed, np.inf, df)
    gap = np.maximum(np.abs(after - before) - margin, 0.0)
    skew = np.sign(after - before) * (ratio(third_after, v_after**3) - ratio(third, v**3))
    usable = (
        (ends - w >= 0)[:, None]
        & (n_after > 0)
        & (df >= 1)
        & (has_block | (m >= (1 if any_start else MIN_BEFORE)))
    )
    t = np.where(usable, gap * np.sqrt(ratio(1.0, variance)), 0.0)
    z = t * _skewed(ratio(skew * gap, chance**2))
    return t, z, df, before, after, variance


def _skewed(u: Floats) -> Floats:
    """Return the factor of t for sums with a heavier tail in the direction of the change than the normal distribution.

    The tail of a shifted Poisson variable with the same variance σ² and third moment κ at a distance x is
    exp(−(σ²/b²) h(u)), with b = κ/σ², u = b x/σ² and h(u) = (1 + u) log(1 + u) − u (Bennett). A normal variable has it at
    the distance x √(2 h(u)) / u. If outcomes come in clusters, both b and σ² grow by φ, so that u does not depend on φ.
    """
    u = np.maximum(u, 1e-4)
    return np.asarray(np.sqrt(2.0 * ((1.0 + u) * np.log1p(u) - u)) / u)


def _correlated(phi: Floats, f: Floats, r: Floats, m: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return φ for days that depend on their neighbours, from the mean square and lag-1 correlation of residuals before.

    Also whether it is known: enough days before, which vary no more than by chance.
    """
    n = np.maximum(m, 1.0)
    is_over, is_lagged = f > 1.0 + 2.0 * np.sqrt(2.0 / n), r > 2.0 / np.sqrt(n)
    above = np.where(is_over, 1.0 - 1.0 / np.maximum(f, 1.0), 1.0)
    full = np.minimum(MAX_CORRELATION, (r + 1.0 / np.sqrt(n)) / above)
    part = np.clip(r - 1.0 / np.sqrt(n), 0.0, MAX_CORRELATION)
    both = 1.0 + (phi - 1.0) * _inflation(np.where(is_over & is_lagged, full, 0.0))
    single = phi * np.minimum(MAX_INFLATION, _inflation(part))
    found = np.where(is_over & is_lagged, both, np.where(is_over | is_lagged, single, phi))
    enough = m >= MIN_CORRELATED
    return np.where(enough, found, phi), enough & ~is_over & ~is_lagged


def _inflation(rho: Floats) -> Floats:
    """Variance of a mean of days with correlation ρ between neighbours, relative to independent ones."""
    return np.asarray((1.0 + rho) / (1.0 - rho))


def outcome_rates(weight: Floats, mean: Floats, correct: Floats) -> Floats:
    """Return the rate of outcomes by bin, float64 (..., 1, n_bins), of all cohorts but the last 3."""
    n, score, hits = (each[..., :-LATEST, :].sum(-2, keepdims=True) for each in (weight, weight * mean, correct))  # fmt: skip
    prior = PRIOR_UNITS * np.clip(ratio(score, n) + 0.5 * (n <= 0), CLIP, 1.0 - CLIP)
    return np.asarray((np.clip(hits, 0.0, n) + prior) / (n + PRIOR_UNITS))


def _slope(g: Floats, v: Floats, third: Floats, log_odds: Floats) -> tuple[Floats, ...]:
    centre = ratio((v * log_odds).sum(-1), v.sum(-1))[..., None]
    along = log_odds - centre
    return (along * g).sum(-1), (along**2 * v).sum(-1), (along**3 * third).sum(-1)


def _bands(*bins: Floats) -> list[tuple[Floats, ...]]:
    """Return each band's errors as a deviation from the day's level, with its moments."""
    level, total, third = (each.sum(-1) for each in bins)
    by_band = (each.reshape(*each.shape[:-1], N_BANDS, -1).sum(-1) for each in bins)
    found: list[tuple[Floats, ...]] = []
    for own, variance, moment in zip(*(np.moveaxis(each, -1, 0) for each in by_band), strict=True):
        part = ratio(variance, total)
        rest = (1.0 - part) ** 3 * moment - part**3 * (third - moment)
        found.append((own - part * level, variance * (1.0 - part), rest))
    return found


def _running(values: Floats) -> Floats:
    """Running sums along the cohorts, from 0."""
    first = np.zeros((*values.shape[:-2], 1, values.shape[-1]))
    return np.concatenate([first, np.cumsum(values, axis=-2)], axis=-2)
