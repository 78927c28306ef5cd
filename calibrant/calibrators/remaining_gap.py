"""Whether miscalibration remains after a map: a test of the gaps in bins of the score, on labels that the map was not fitted to.

The bins have equal variance of labels drawn from the scores: of equal mass, those of confident scores would hold hardly any error, and
the sum of their gaps would be far from normal.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.core.arrays import Floats, Ints
from calibrant.core.documents import Result

BINS = 10
# Below that many units, or that variance of labels, for each bin the distribution of the statistic is not known.
UNITS_A_BIN, VARIANCE_A_BIN = 10, 5.0
LEVEL = 1e-3


def remaining_gap(rows: LabelledRows, probabilities: Floats, is_binary: bool) -> Result | None:
    """Return the test that no bin has a gap, scaled by unit; None with too few units or too little variance.

    Parameters
    ----------
    rows : LabelledRows with weight
    probabilities : float64 (n, n_classes), by fits to other rows
    is_binary : whether the score is that of class 1; else of the top class

    Returns
    -------
    dict with `bins`, `statistic`, `p` and `remains` (p below .001)

    Source
    ------
    Hosmer, Lemeshow (1980), with the variance of the scores and as many degrees of freedom as bins, since no parameter was fitted to these
    labels; scaled as by Rao, Scott (1981).
    """
    if rows.n_units < UNITS_A_BIN * BINS:
        return None
    place = np.arange(len(rows))
    top = np.ones(len(rows), np.int64) if is_binary else np.argmax(probabilities, axis=1)
    score = np.clip(probabilities[place, top], 0.0, 1.0)
    variance = score * (1.0 - score)
    if variance.sum() < VARIANCE_A_BIN * BINS:
        return None
    bins = _of_equal_mass(score, variance)
    gap = rows.share[place, top] - rows.weight * score
    sums = np.bincount(bins, gap, BINS)
    drawn = np.bincount(bins, rows.weight**2 * variance, BINS).astype(np.float64)
    filled = drawn > 0.0
    statistic = float((sums[filled] ** 2 / drawn[filled]).sum()) / _design_effect(
        rows, bins, gap, drawn
    )
    p = float(scipy.special.chdtrc(int(filled.sum()), statistic))
    return {"bins": int(filled.sum()), "statistic": statistic, "p": p, "remains": p < LEVEL}


def _design_effect(rows: LabelledRows, bins: Ints, gap: Floats, drawn: Floats) -> float:
    """Return how many times the variance over units is that of independent labels drawn from the scores; at least 1."""
    by_unit = np.bincount(rows.unit * BINS + bins, gap)
    return max(1.0, float((by_unit**2).sum() / drawn.sum()))


def _of_equal_mass(score: Floats, weight: Floats) -> Ints:
    """Return the bin of each row, each with the same sum of `weight`; equal scores share one."""
    distinct, place = np.unique(score, return_inverse=True)
    mass = np.bincount(place, weight, len(distinct))
    middle = np.cumsum(mass) - 0.5 * mass
    bins = np.minimum((BINS * middle / mass.sum()).astype(np.int64), BINS - 1)
    return np.asarray(bins[place])
