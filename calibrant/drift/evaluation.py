"""Evaluation of a detector after each cohort: the evidence of a change, and a change that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.drift.calibration import Judgement, judge, phi_of
from calibrant.drift.change import WINDOWS, Change, Effects, compare_windows, find_change
from calibrant.drift.unit_tables import UnitTable, merged

Floats = NDArray[np.float64]
_LEAST_P = 1e-300
LEANING = float(np.log10(20.0))


@dataclass(frozen=True)
class Evaluation:
    """What the cohorts so far show.

    Attributes
    ----------
    p : of the best test for the worse; 1 without a test. Compare it with the level
    leaning : float64 (7,), −log10 of each direction's p-value over all windows, with the sign of its change
    change : shown at the level, or None
    """

    p: float
    leaning: Floats
    change: Change | None


def effects_of(tables: Sequence[UnitTable], rated: bool = False) -> Effects:
    """Return the effects of cohorts from their tables, in order; `rated` as in `Effects.of`."""
    columns = np.stack([each.columns[:3] for each in tables], axis=1)
    return Effects.of(*columns, rated=rated)


def evaluate(effects: Effects, level: float, block: Effects | None = None) -> Evaluation:
    """Return what cohorts show; `level` is 1 / (run length in cohorts · number of detectors).

    Parameters
    ----------
    effects, block : as in `change.compare_windows`
    level : of this cohort's tests

    Examples
    --------
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


def leans_towards(leaning: Floats, direction: int, sign: int) -> bool:
    """Return whether a detector's labels tend in the direction of another's change, at the level .05."""
    return bool(sign * leaning[direction] >= LEANING)


def judge_cohorts(tables: Sequence[UnitTable], tolerance: float, n_slices: int = 1) -> Judgement:
    """Return the word of calibration of some cohorts, with the variance between them."""
    if not tables:
        return judge(UnitTable.empty(), tolerance=tolerance)
    level = effects_of(tables).along(0)
    phi = phi_of(level.errors[..., 0], level.variance[..., 0])
    return judge(merged(tables), float(phi), tolerance, n_slices)
