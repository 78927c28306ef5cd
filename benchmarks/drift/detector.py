"""The words of a model day by day, for many runs at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.days import Days, Floats
from calibrant.drift.calibration import (
    N_RECENT,
    OFF_AT_ONCE,
    TOLERANCE,
    BinnedError,
    is_good,
    is_off,
    phi_of,
    selection_of,
)
from calibrant.drift.change import LATEST, MIN_RATED, Effects, compare_windows, find_change
from calibrant.drift.evaluation import Monitor
from calibrant.drift.unit_tables import UnitTable

Bools = NDArray[np.bool_]
RUN_LENGTH = 3650.0
NEVER = 10**6


def first_change(
    days: Days, run_length: float = RUN_LENGTH, block: Effects | None = None
) -> NDArray[np.int64]:
    """Return the day of the first alarm of each run; `NEVER` without one. int64 (n_runs,).

    Each day is evaluated with nothing of later days; the variances of all are taken from the scores, or from the rates of outcomes.
    """
    found = np.full(len(days.weight), NEVER)
    n_days = days.weight.shape[1]
    plain = n_days if block is not None else min(MIN_RATED + LATEST - 1, n_days)
    _note(found, days.before(plain).effects, np.arange(1, plain + 1), run_length, block)
    for end in range(plain + 1, n_days + 1):
        live = np.flatnonzero(found == NEVER)
        if not len(live):
            break
        columns = days.columns[:3, live, :end]
        found[live] = _note(
            found[live], Effects.of(*columns, rated=True), np.array([end]), run_length
        )
    return found


def _note(
    found: NDArray[np.int64],
    effects: Effects,
    ends: NDArray[np.int64],
    run_length: float,
    block: Effects | None = None,
) -> NDArray[np.int64]:
    """Write the day of the first alarm of each run into those found before."""
    tests = compare_windows(effects, ends, block)
    hit = ((tests.p < 1.0 / run_length) & tests.is_worse).any(axis=(-1, -2))
    found[hit.any(axis=-1)] = ends[hit.argmax(axis=-1)][hit.any(axis=-1)] - 1
    return found


def calibration_words(days: Days, tolerance: float = TOLERANCE) -> tuple[Bools, Bools]:
    """Return whether `off` and `good` is shown after each day, bool (n_runs, n_days): a word turns after two cohorts."""
    found = BinnedError.of(_recent(days.columns), _recent_phi(days))
    off, good = is_off(found, tolerance), is_good(found, tolerance)
    at_once = is_off(found, tolerance, OFF_AT_ONCE)
    word = np.where(off, 2, np.where(good, 1, 0))
    shown = np.zeros_like(word)
    for day in range(1, word.shape[1]):
        turns = (word[:, day] == word[:, day - 1]) | at_once[:, day]
        shown[:, day] = np.where(turns, word[:, day], shown[:, day - 1])
    return shown == 2, shown == 1


def armed_after(days: Days, run: int, day: int) -> Monitor:
    """Return what a run's detector could show after a day."""
    return Monitor(days.columns[:3, run, :day], 1.0 / RUN_LENGTH)


def found_start(days: Days, run: int, day: int) -> tuple[int, int, int] | None:
    """Return DATE and its range as estimated after a day."""
    one = Effects.of(*days.columns[:3, run, : day + 1], rated=True)
    found = find_change(one, 1.0 / RUN_LENGTH)
    return None if found is None else (found.start, found.earliest, found.latest)


def has_bounds(days: Days, run: int, day: int) -> bool:
    """Whether the word of a run would be shown with bounds."""
    low = max(0, day + 1 - N_RECENT)
    sums = [each[run, low : day + 1].sum(axis=0) for each in (*days.columns[:3], days.weight, days.occupancy)]  # fmt: skip
    counts = np.stack([sums[4], sums[0]]).astype(np.int64)
    return selection_of(UnitTable(*sums).counted(counts)).is_partial


def _recent(columns: Floats) -> Floats:
    """Sums over the last 28 days, along the second last axis."""
    total = np.cumsum(columns, axis=-2)
    total = np.concatenate([np.zeros_like(total[..., :1, :]), total], axis=-2)
    ends = np.arange(1, columns.shape[-2] + 1)
    return np.asarray(total[..., ends, :] - total[..., np.maximum(ends - N_RECENT, 0), :])


def _recent_phi(days: Days) -> Floats:
    columns = days.columns[:3]
    ends = range(1, columns.shape[-2] + 1)
    return np.stack([phi_of(columns[..., max(0, end - N_RECENT) : end, :]) for end in ends], axis=1)
