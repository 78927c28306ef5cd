"""Intervals of the difference of two windows, which account for the data that both share.

Both sides are in the same sixty-four replicates by the hash of the unit, and in their stored samples by the hash of the prediction. A
unit that is on both sides is therefore found on both, and its common contribution cancels in the difference. Units on one side only are
independent.

Source: Zou and Donner (Statistics in Medicine 2008) for combined intervals (MOVER).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.documents import Result
from calibrant.core.errors import NoResultError
from calibrant.core.hashing import U64
from calibrant.core.pane import Pane
from calibrant.core.sampled_rows import below
from calibrant.inference.intervals import jackknife_interval

RESAMPLED = "jackknife of 64 paired unit replicates"
BY_REPLICATES = "both intervals combined by the correlation of 64 paired unit replicates (MOVER)"
INDEPENDENT = "both intervals combined as for independent data (MOVER)"
Bounds = Sequence[float]
Ratio = tuple[Floats, Floats]


def paired(batch: Batch) -> Batch:
    """Return the batch for a comparison with other predictions of the same rows: without other names, a row's number is its id."""
    if batch.units is not None or batch.cases is not None or batch.ids is not None:
        return batch
    return replace(batch, ids=np.array([f"row-{row}" for row in range(batch.n)], object))


def difference_of(
    mine: float | None,
    theirs: float | None,
    interval: Callable[[], tuple[list[float], str]],
    reason: str | None = None,
) -> Result:
    """Return the difference of two numbers, with its interval and method, or with the reason why there is none.

    Parameters
    ----------
    mine, theirs : the numbers, None where unknown
    interval : of the difference, with its method; raises `NoResultError` where there is none
    reason : why a number is unknown

    Returns
    -------
    dict of `difference`, `difference_interval`, and `difference_method` or `difference_reason`
    """
    result: Result = {"difference": None, "difference_interval": None}
    if mine is None or theirs is None:
        return result | {"difference_reason": reason}
    result["difference"] = mine - theirs
    try:
        bounds, method = interval()
    except NoResultError as rejection:
        return result | {"difference_reason": rejection.reason}
    return result | {"difference_interval": bounds, "difference_method": method}


def ratio_difference(mine: Ratio, theirs: Ratio, ci: float) -> tuple[list[float], str]:
    """Return the interval of the difference of two ratios of sums, and its method. Each replicate is left out of both sides at once.

    Parameters
    ----------
    mine, theirs : numerator and denominator, float64 (64,) each, by replicate
    ci : nominal coverage
    """
    without, once = 1.0 - np.eye(N_REPLICATES), np.ones((1, N_REPLICATES))
    centre = float((_ratio(mine, once) - _ratio(theirs, once))[0])
    left_out = _ratio(mine, without) - _ratio(theirs, without)
    return list(jackknife_interval(centre, left_out, ci)), RESAMPLED


def _ratio(sums: Ratio, drawn: Floats) -> Floats:
    top, bottom = drawn @ sums[0], drawn @ sums[1]
    return ratio(top, bottom)


def difference_interval_of_two(
    centres: tuple[float, float],
    intervals: tuple[Bounds, Bounds],
    correlation: float,
    floor: float | None = None,
) -> list[float]:
    """Return the interval of the difference of two estimates from the interval of each.

    An interval that ends at the lowest possible value was cut off there, and does not tell the error of its estimate: the bounds of both
    are then reached at once.

    Parameters
    ----------
    centres : the estimate of each interval
    intervals : lower and upper bound of each
    correlation : of the two estimates' errors
    floor : lowest possible value; None where there is none

    Examples
    --------
    >>> difference_interval_of_two((3.0, 1.0), ((0.0, 6.0), (-3.0, 5.0)), 0.0)
    [-3.0, 7.0]
    >>> difference_interval_of_two((3.0, 1.0), ((1.0, 5.0), (-1.0, 3.0)), 1.0)
    [2.0, 2.0]
    >>> difference_interval_of_two((3.0, 1.0), ((0.0, 6.0), (0.0, 5.0)), 0.0, floor=0.0)
    [-5.0, 6.0]
    """
    (mine, theirs), (one, two) = centres, intervals
    below_, above = abs(mine - one[0]), abs(one[1] - mine)
    other_below, other_above = abs(theirs - two[0]), abs(two[1] - theirs)
    cut_one, cut_two = (floor is not None and each[0] <= floor for each in intervals)
    return [
        mine - theirs - together(other_above, below_, -1.0 if cut_one else correlation),
        mine - theirs + together(above, other_below, -1.0 if cut_two else correlation),
    ]


def together(one: float, two: float, correlation: float) -> float:
    """Return the standard error of a difference, or the distance of one of its bounds."""
    return float(np.sqrt(max(one**2 + two**2 - 2.0 * correlation * one * two, 0.0)))


def unit_correlation(mine: tuple[U64, Floats], theirs: tuple[U64, Floats]) -> float:
    """Return the correlation of two estimates from each unit's contribution to either; 0 where one of them has no variance.

    Parameters
    ----------
    mine, theirs : hashes of units, any number of rows per unit, and each row's contribution, of mean 0
    """
    units, sums = _by_unit(*mine)
    other_units, other_sums = _by_unit(*theirs)
    _, here, there = np.intersect1d(units, other_units, assume_unique=True, return_indices=True)
    spread = float(np.sqrt((sums**2).sum() * (other_sums**2).sum()))
    return float(sums[here] @ other_sums[there]) / spread if spread > 0 else 0.0


def _by_unit(hashes: U64, values: Floats) -> tuple[U64, Floats]:
    units, place = np.unique(hashes, return_inverse=True)
    return units, np.bincount(place, values, len(units)).astype(np.float64)


def replicate_correlation(mine: Floats, theirs: Floats) -> Floats:
    """Return the correlation of estimates from each replicate's contribution to either, along the first axis; 0 without variance.

    Parameters
    ----------
    mine, theirs : float64 (64, ...), contributions of mean 0
    """
    spread = np.sqrt((mine**2).sum(axis=0) * (theirs**2).sum(axis=0))
    together = (mine * theirs).sum(axis=0)
    return ratio(together, spread)


def shared(pane: Pane, other: Pane) -> Result:
    """Return how many labelled predictions are on both sides, according to the stored samples.

    Returns
    -------
    dict with `n`, predictions of either sample below the smaller threshold, and `share`, the part of this side's that the other side
    has too; None where no sample is stored or either is empty. Predictions are identified by their ids, or by their content where they have
    none.
    """
    if not (pane.keeps("sample") and other.keeps("sample")):
        return {"n": 0, "share": None}
    halvings = max(pane.sample.halvings, other.sample.halvings)
    ids, others = (
        np.unique(hashes[below(hashes, halvings)])
        for hashes in (each.sample.arrays()["ids"] for each in (pane, other))
    )
    if not len(ids) or not len(others):
        return {"n": 0, "share": None}
    n = len(np.intersect1d(ids, others, assume_unique=True))
    return {"n": n, "share": n / len(ids)}
