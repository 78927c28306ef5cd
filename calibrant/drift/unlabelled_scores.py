"""Scores without labels: a shift of their distribution, which is never an alarm.

A shift needs both a test and a size. The test is the one of `change`, on the shares of five bands of the score among all units,
labelled or not, with the variance between days and a level of one a year. The size is the population stability index (PSI)
above .1 plus what days without a shift would show. After 4 weeks, days are compared with the same days of the week.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from calibrant.core.arrays import Floats, Ints
from calibrant.drift.change import N_BANDS, Effects, compare_windows

WINDOWS = (1, 2, 3)
LEVEL = 1.0 / 365.0
PSI, NULL_LEVEL = 0.1, 0.003
MIN_DAYS = 7
WEEK, N_WEEKS = 7, 4
RECENT = 7  # a shift stays reported for so many cohorts
MIN_UNITS = 50
WINDOW_LEVEL = 0.01


@dataclass(frozen=True)
class Shift:
    """The distribution of the scores of recent cohorts compared with earlier ones."""

    is_shifted: bool  # whether test and size both show a shift
    psi: float  # population stability index of the last cohorts
    limit: float  # what it must exceed
    start: int | None = None  # index of the first shifted cohort, None without a shift


def shift_of(occupancy: Floats, weekday: Sequence[int] | None = None) -> Shift | None:
    """Return the shift of the scores within the last 7 cohorts, or the comparison of the last ones; None without data.

    occupancy : float64 (n_cohorts, n_bins), units by bin of the score, labelled or not; `n_bins` is a multiple of 5
    weekday : of each cohort, if a cohort is a day

    >>> days = np.tile([30.0, 40.0, 60.0, 40.0, 30.0], (20, 1))
    >>> shift_of(days).is_shifted
    False
    >>> days[18:] = [60.0, 60.0, 40.0, 20.0, 20.0]
    >>> found = shift_of(days)
    >>> found.is_shifted, found.start
    (True, 18)
    """
    filled = np.flatnonzero(occupancy.sum(axis=1) > 0)
    rows = occupancy[filled]
    days = None if weekday is None else np.asarray(weekday)[filled]
    n, best = len(rows), None
    for end in range(max(MIN_DAYS + 1, n - RECENT + 1), n + 1):
        found = _at_end(rows[:end], None if days is None else days[:end])
        best = best if best is not None and best.is_shifted else found
    if best is None or best.start is None:
        return best
    return replace(best, start=int(filled[best.start]))


def window_shift(now: Floats, before: Floats) -> Shift | None:
    """Return the shift of the scores between two windows, by a chi-squared test of equal shares and by size.

    now, before : float64 (n_bins,), units by bin of the score, labelled or not. None if a window has fewer than 50
    """
    if min(now.sum(), before.sum()) < MIN_UNITS:
        return None
    both = np.stack([now, before])[:, now + before > 0]
    expected = both.sum(axis=1, keepdims=True) * both.sum(axis=0) / both.sum()
    p = scipy.special.chdtrc(max(both.shape[1] - 1, 1), ((both - expected) ** 2 / expected).sum())
    size, limit = psi(now, before), _limit(both.shape[1], float(now.sum()), float(before.sum()))
    return Shift(bool(p < WINDOW_LEVEL and size > limit), size, limit)


def psi(now: Floats, before: Floats) -> float:
    """Population stability index of two distributions over bins, half a unit added to each bin.

    >>> round(psi(np.array([50.0, 50.0]), np.array([80.0, 20.0])), 2)
    0.41
    """
    k = len(now)
    p, q = (now + 0.5) / (now.sum() + 0.5 * k), (before + 0.5) / (before.sum() + 0.5 * k)
    return float(((p - q) * np.log(p / q)).sum())


def _at_end(rows: Floats, weekday: Ints | None) -> Shift:
    """Return the clearest comparison of the last 1, 2 or 3 cohorts with the earlier ones."""
    expected, inflation = _expected(rows, weekday)
    bands = rows.reshape(len(rows), N_BANDS, -1).sum(axis=2)
    share = expected.reshape(len(rows), N_BANDS, -1).sum(axis=2)
    total = bands.sum(axis=1, keepdims=True)
    variance = total * np.maximum(share * (1.0 - share), 1e-6)
    third = variance * (1.0 - 2.0 * share)
    effects = Effects(*(each[None] for each in (bands - total * share, variance, third)))
    found = compare_windows(effects, windows=WINDOWS, margin=0.0)
    found = replace(found, t=found.t / np.sqrt(inflation), z=found.z / np.sqrt(inflation))
    tail = found.tail[0, 0] * N_BANDS * len(WINDOWS)
    phi = np.maximum(1.0, found.variance[0, 0] / _chance(effects))
    sides = [_size(rows, expected, w, float(phi[:, i].mean())) for i, w in enumerate(WINDOWS)]
    shown = [
        size > limit and float(np.where(found.t[0, 0, :, i] > 0, tail[:, i], 1.0).min()) < LEVEL
        for i, (size, limit) in enumerate(sides)
    ]
    place = shown.index(True) if any(shown) else len(WINDOWS) - 1
    start = len(rows) - WINDOWS[place] if any(shown) else None
    return Shift(any(shown), *sides[place], start)


def _expected(rows: Floats, weekday: Ints | None) -> tuple[Floats, float]:
    """Return each cohort's expected shares of the bins, and the factor of variance due to their estimation."""
    before = rows[: -max(WINDOWS)]
    overall = before.sum(axis=0) / before.sum()
    if weekday is None or len(before) < WEEK * N_WEEKS:
        return np.tile(overall, (len(rows), 1)), 1.0
    shares = np.tile(overall, (WEEK, 1))
    counts = np.bincount(weekday[: len(before)], minlength=WEEK)
    for day in np.flatnonzero(counts >= N_WEEKS):
        same = before[weekday[: len(before)] == day]
        shares[day] = same.sum(axis=0) / same.sum()
    least = float(counts[counts >= N_WEEKS].min(initial=N_WEEKS))
    return shares[weekday], (least + 1.0) / (least - 1.0)


def _chance(effects: Effects) -> Floats:
    """Variance of the difference without effects of days, float64 (5, 3)."""
    v = effects.variance[0]
    return np.stack([1.0 / v[-w:].sum(axis=0) + 1.0 / v[:-w].sum(axis=0) for w in WINDOWS], axis=1)


def _size(rows: Floats, expected: Floats, w: int, phi: float) -> tuple[float, float]:
    """Return the PSI of the last w cohorts, and the limit."""
    now, n_before = rows[-w:].sum(axis=0), float(rows[:-w].sum())
    reference = (rows[-w:].sum(axis=1, keepdims=True) * expected[-w:]).sum(axis=0)
    reference = reference / reference.sum() * n_before
    n_bins = int((now + reference > 0).sum())
    return psi(now, reference), _limit(n_bins, float(now.sum()), n_before, phi)


def _limit(n_bins: int, n_now: float, n_before: float, phi: float = 1.0) -> float:
    """Return the PSI that a shift must exceed: .1, plus its null quantile."""
    null = float(scipy.special.chdtri(max(n_bins - 1, 1), NULL_LEVEL))
    return PSI + phi * null * (1.0 / n_now + 1.0 / n_before)


@dataclass(frozen=True)
class ExpectedAccuracy:
    """Accuracy to expect of units without a label."""

    value: float  # share of correct predictions
    interval: tuple[float, float]  # that the accuracy of these units will be in
    # n_unlabelled, n_labelled: units that it describes, and those whose labels it uses
    n_unlabelled: float
    n_labelled: float
