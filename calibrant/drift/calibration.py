"""The word `calibration`: the binned error of the recent labelled units, compared with the tolerance.

E = Σ |gap of a bin's sums| / units. Under exact calibration the sums have normal noise with the variances of their units, so
that the quantiles q of E follow from sums of half-normal variables. `off` needs E above the tolerance plus q at a small level.
`good` needs an upper 95 % limit of the true error within the tolerance. The limit is an inversion at the least favourable
gaps: for a given true error, E is smallest if all gaps are in proportion to their noise, because the mean of |N(μ, s)| is
convex in μ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.drift.unit_tables import UnitTable

Word = Literal["good", "off", "unknown"]
GOOD: Word = "good"
OFF: Word = "off"
UNKNOWN: Word = "unknown"
TOLERANCE = 0.02
N_RECENT = 28  # cohorts
MIN_COHORTS = 7  # for the variance between them
MIN_UNITS = 50.0
OFF_LEVEL, OFF_AT_ONCE = 1e-3, 1e-6
GOOD_LEVEL = 0.05
FULL_COVERAGE = 0.9
COVERAGE_LEVEL = 0.01
MAX_MORE = 100.0  # times the present units
_STEPS = 60
_MEAN, _VARIANCE = np.sqrt(2.0 / np.pi), 1.0 - 2.0 / np.pi
_THIRD = np.sqrt(2.0 / np.pi) * (4.0 / np.pi - 1.0)


@dataclass(frozen=True)
class BinnedError:
    """The binned error with its noise; each float64 of one shape (...), the noise float64 (..., n_bins)."""

    error: Floats  # E
    noise: Floats  # standard deviation of each bin's share of E
    n_units: Floats  # labelled units

    @classmethod
    def of(cls, columns: ArrayLike, phi: ArrayLike = 1.0) -> BinnedError:
        """Return the error of tables.

        columns : float64 (4, ..., n_bins): `weight`, `confidence`, `correct`, `squared` of a `UnitTable`
        phi : variance between cohorts relative to that of independent units, at least 1

        >>> one = BinnedError.of([[100.0, 0.0], [90.0, 0.0], [60.0, 0.0], [100.0, 0.0]])
        >>> float(one.error), one.noise.round(3).tolist()
        (0.3, [0.049, 0.0])
        """
        weight, confidence, correct, squared = np.asarray(columns, np.float64)
        n, chance = weight.sum(-1), _chance(weight, confidence, correct)
        noise = np.sqrt(np.asarray(phi)[..., None] * chance * squared)
        total = np.maximum(n, 1e-300)
        return cls(np.abs(correct - confidence).sum(-1) / total, noise / total[..., None], n)

    def null_quantile(self, level: ArrayLike) -> Floats:
        """Return q: under calibration, E exceeds it with this probability.

        Three moments of the sum of half-normal variables, as a shifted gamma distribution: at most 1.35 times the exact
        quantile of a single bin at level 1e-6, closer for several bins or larger levels.
        """
        mean = _MEAN * self.noise.sum(-1)
        variance = np.maximum(_VARIANCE * (self.noise**2).sum(-1), 1e-300)
        skewness = np.maximum(_THIRD * (self.noise**3).sum(-1) / variance**1.5, 1e-6)
        shape = 4.0 / skewness**2
        standard = (scipy.special.gammainccinv(shape, level) - shape) / np.sqrt(shape)
        return np.asarray(mean + np.sqrt(variance) * standard)

    @property
    def upper(self) -> Floats:
        """Upper 95 % limit of the true error; at least the mean of E by chance, so that few labels with luck are not `good`."""
        inverted = self._inverted(float(scipy.special.ndtri(1.0 - GOOD_LEVEL)))
        return np.asarray(np.maximum(inverted, _MEAN * self.noise.sum(-1)))

    @property
    def likely(self) -> Floats:
        """The true error of which the observed one is the mean: without the bias of noise, at least 0."""
        return self._inverted(0.0)

    def _inverted(self, reach: float) -> Floats:
        """Return the largest true error for which E is not below its mean minus `reach` standard deviations."""
        total, squares = self.noise.sum(-1), (self.noise**2).sum(-1)
        low = np.zeros_like(self.error)
        high = self.error + (reach + 1.0) * np.sqrt(squares) + 1e-12
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            size = ratio(middle, total)
            mean = _folded(size)
            spread = np.sqrt(np.maximum(1.0 + size**2 - mean**2, 0.0) * squares)
            is_seen = np.where(total > 0, mean * total - reach * spread, middle) <= self.error
            low, high = np.where(is_seen, middle, low), np.where(is_seen, high, middle)
        return np.asarray((low + high) / 2.0)


@dataclass(frozen=True)
class Judgement:
    """Word of one evaluation, before it has held."""

    word: Word  # `good`, `off` or `unknown`
    # the limit that decides: lower limit of the error if `off`, else upper limit; None below 50 units
    limit: float | None
    error: float | None  # error, null: E and its .95 null quantile
    null: float | None
    n_units: float  # labelled units
    # labelled units that would decide, None if none are needed or more than 100 times the present ones
    n_more: int | None = None
    then: Word | None = None  # the word that they would give, if the error is as now
    at_once: bool = False  # whether `off` turns without waiting


def judge(
    table: UnitTable, phi: float = 1.0, tolerance: float = TOLERANCE, n_slices: int = 1
) -> Judgement:
    """Return the word for a table of recent cohorts.

    phi : variance between cohorts, at least 1
    n_slices : number of slices and classes that share the level

    >>> even = np.full(15, 400.0)
    >>> right = even * (np.arange(15) + 0.5) / 15
    >>> judge(UnitTable(even, right, right, even, even)).word
    'good'
    >>> judge(UnitTable(even, right, 0.6 * right, even, even)).word
    'off'
    """
    if table.n_units < MIN_UNITS:
        return Judgement(UNKNOWN, None, None, None, table.n_units)
    found = BinnedError.of(table.columns[:4], phi)
    error, upper = float(found.error), float(found.upper)
    lower = error - float(found.null_quantile(OFF_LEVEL / n_slices))
    at_once = bool(error - float(found.null_quantile(OFF_AT_ONCE / n_slices)) > tolerance)
    null = float(found.null_quantile(0.05))
    if lower > tolerance:
        return Judgement(OFF, lower, error, null, table.n_units, at_once=at_once)
    if upper <= tolerance:
        return Judgement(GOOD, upper, error, null, table.n_units)
    more = labels_needed(found, tolerance, n_slices)
    return Judgement(UNKNOWN, upper, error, null, table.n_units, *more)


def is_off(found: BinnedError, tolerance: float, level: ArrayLike = OFF_LEVEL) -> NDArray[np.bool_]:
    """Whether the error is above the tolerance beyond chance."""
    return np.asarray(
        (found.n_units >= MIN_UNITS) & (found.error > tolerance + found.null_quantile(level))
    )


def is_good(found: BinnedError, tolerance: float) -> NDArray[np.bool_]:
    """Whether the upper limit of the error is within the tolerance."""
    return np.asarray((found.n_units >= MIN_UNITS) & (found.upper <= tolerance))


def labels_needed(
    found: BinnedError, tolerance: float, n_slices: int = 1
) -> tuple[int | None, Word | None]:
    """Return how many more units would decide, and for which word, if the true error is the likely one; None beyond 100 times the present."""
    true = float(found.likely)
    for factor in np.geomspace(1.1, MAX_MORE, 48):
        noise = found.noise / np.sqrt(factor)
        total = float(noise.sum())
        error = float(_folded(np.array(true / total))) * total if total > 0 else true
        then = BinnedError(np.array(error), noise, factor * found.n_units)
        off = bool(is_off(then, tolerance, OFF_LEVEL / n_slices))
        if off or is_good(then, tolerance):
            return int(np.ceil((factor - 1.0) * float(found.n_units))), OFF if off else GOOD
    return None, None


def held_word(shown: Word, last: Word, now: Judgement) -> Word:
    """Return the word to show: it turns after it has held on two cohorts, `off` far beyond the tolerance at once.

    >>> now = Judgement("off", 0.1, 0.2, 0.05, 500.0)
    >>> held_word("good", "good", now), held_word("good", "off", now)
    ('good', 'off')
    """
    return now.word if now.at_once or now.word == last else shown


def phi_of(columns: ArrayLike) -> Floats:
    """Return the variance of the level between cohorts relative to the chance of `BinnedError`, at least 1; 1 below 7 cohorts.

    columns : float64 (3, ..., n_cohorts, n_bins): `weight`, `confidence`, `correct` of their tables

    >>> right = 18 + np.array([6.0, -6.0, 6.0, 0.0, -6.0, 6.0, -6.0])
    >>> round(float(phi_of(np.stack([np.full(7, 36.0), np.full(7, 18.0), right])[..., None])), 2)
    4.0
    """
    weight, confidence, correct = np.asarray(columns, np.float64)
    chance = _chance(*(each.sum(-2, keepdims=True) for each in (weight, confidence, correct)))
    g, v = (correct - confidence).sum(-1), (weight * chance).sum(-1)
    theta = ratio(g.sum(-1), v.sum(-1))[..., None]
    squares = ratio((g - theta * v) ** 2, v).sum(-1)
    n = (v > 0).sum(-1)
    return np.where(n >= MIN_COHORTS, np.maximum(1.0, squares / np.maximum(n - 1.0, 1.0)), 1.0)


def _chance(weight: Floats, confidence: Floats, correct: Floats) -> Floats:
    """Variance of a unit's label by bin: the larger of that at the mean score and that at the rate of the outcomes."""
    mean, rate = ratio(confidence, weight), ratio(correct, weight)
    return np.maximum(mean * (1.0 - mean), rate * (1.0 - rate))


@dataclass(frozen=True)
class Selection:
    """Which recent predictions have labels."""

    coverage: float | None  # share with labels, None without predictions
    differs: bool = False  # whether the share depends on the score
    # the error if all unlabelled units had the least and the most favourable labels; None without selection
    bounds: tuple[float, float] | None = None

    @property
    def is_partial(self) -> bool:
        """Whether a word needs its bounds."""
        return self.bounds is not None


def selection_of(table: UnitTable) -> Selection:
    """Return the selection of labels of recent cohorts.

    >>> found = selection_of(UnitTable(*np.array([[40.0], [20.0], [20.0], [40.0], [100.0], [100.0], [40.0]])))
    >>> found.coverage, found.bounds
    (0.4, (0.0, 0.3))
    """
    total, labelled = float(table.predictions.sum()), float(table.labelled.sum())
    if not total:
        return Selection(None)
    differs = _differs_by_score(table)
    if labelled / total >= FULL_COVERAGE and not differs:
        return Selection(labelled / total)
    return Selection(labelled / total, differs, _worst_case(table))


def _worst_case(table: UnitTable) -> tuple[float, float]:
    """Return the smallest and the largest error over all labels of the unlabelled units of each bin."""
    missing = np.maximum(table.occupancy - table.weight, 0.0)
    n = table.n_bins
    middle = (np.arange(n) + 0.5) / n
    mean = np.where(table.weight > 0, table.mean_confidence, middle)
    gap = table.correct - table.confidence
    low, high = gap - missing * mean, gap + missing * (1.0 - mean)
    least = np.maximum(np.maximum(low, -high), 0.0)
    total = float((table.weight + missing).sum())
    return float(least.sum()) / total, float(np.maximum(np.abs(low), np.abs(high)).sum()) / total


def _differs_by_score(table: UnitTable) -> bool:
    """Chi-squared test of equal coverage in five bands of the score."""
    bands = table.columns[5:].reshape(2, min(5, table.n_bins), -1).sum(axis=2)
    bands = bands[:, bands[0] > 0]
    share = bands[1].sum() / bands[0].sum()
    if bands.shape[1] < 2 or not 0.0 < share < 1.0:
        return False
    statistic = ((bands[1] - share * bands[0]) ** 2 / (bands[0] * share * (1.0 - share))).sum()
    return bool(scipy.special.chdtrc(bands.shape[1] - 1, statistic) < COVERAGE_LEVEL)


def _folded(size: Floats) -> Floats:
    """Mean of |N(κ, 1)|."""
    return np.asarray(
        _MEAN * np.exp(-(size**2) / 2.0) + size * (1.0 - 2.0 * scipy.special.ndtr(-size))
    )
