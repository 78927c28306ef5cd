"""Whether the scores of labelled rows carry information about their labels, and in which direction.

Of two classes it is the area under the receiver operating characteristic (AUC); of more, the slope of the best softmax map
near 0, in units of the scores as sent: 1 changes nothing, 0 ignores the scores, and below 0 it reverses them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from calibrant.calibrators.cell_fits import CLIP
from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.core.arrays import Floats
from calibrant.core.documents import Result

# Level of the interval: a wrong "inverse" would keep a user from a map that they need.
LEVEL = 0.99
# An interval within these limits shows that the scores carry hardly any information.
WEAK_AREA = (0.4, 0.6)
WEAK_SLOPE = (-0.2, 0.2)


class Information(NamedTuple):
    """What the labels show of the scores.

    Attributes
    ----------
    measure : "auc" or "slope"
    interval : by unit; None if the labels do not determine one
    direction : "direct", "inverse", "none" (shown to be weak) or "unknown"
    """

    measure: str
    value: float | None
    interval: list[float] | None
    direction: str

    def to_dict(self) -> Result:
        named = {name: getattr(self, name) for name in ("measure", "value", "interval")}
        return named | {"ci": LEVEL}


def information_of(rows: LabelledRows, is_binary: bool) -> Information:
    """Return what the labels of rows with weight show of their scores.

    Parameters
    ----------
    rows : LabelledRows
    is_binary : whether class 1 against class 0 is asked for

    Source
    ------
    Variance of the AUC by unit: DeLong, DeLong, Clarke-Pearson (Biometrics 1988); Obuchowski (Biometrics 1997).
    """
    if is_binary:
        return _judged("auc", _area(rows), rows, 0.5, WEAK_AREA)
    return _judged("slope", _slope(rows), rows, 0.0, WEAK_SLOPE)


def _judged(
    measure: str,
    found: tuple[float, Floats] | None,
    rows: LabelledRows,
    neutral: float,
    weak: tuple[float, float],
) -> Information:
    if found is None or rows.n_units < 2:
        return Information(measure, None, None, "unknown")
    value, influence = found
    low, high = _interval(value, influence, rows)
    direction = "unknown"
    if low > neutral:
        direction = "direct"
    elif high < neutral:
        direction = "inverse"
    elif weak[0] <= low and high <= weak[1]:
        direction = "none"
    return Information(measure, value, [low, high], direction)


def _interval(value: float, influence: Floats, rows: LabelledRows) -> tuple[float, float]:
    by_unit, m = np.bincount(rows.unit, influence), rows.n_units
    error = float(np.sqrt(m / (m - 1) * (by_unit**2).sum()))
    reach = float(scipy.special.stdtrit(m - 1, 0.5 + LEVEL / 2.0)) * error
    return value - reach, value + reach


def _area(rows: LabelledRows) -> tuple[float, Floats] | None:
    """Return the AUC of class 1 and the influence of each row on it, (n,); None if one class has no rating."""
    negative, positive = rows.share[:, 0], rows.share[:, 1]
    negatives, positives = float(negative.sum()), float(positive.sum())
    if not (negatives > 0.0 and positives > 0.0):
        return None
    place = np.unique(rows.logits[:, 1], return_inverse=True)[1]
    below = _ranked_below(place, negative) / negatives
    above = 1.0 - _ranked_below(place, positive) / positives
    value = float(positive @ below) / positives
    influence = positive * (below - value) / positives + negative * (above - value) / negatives
    return value, influence


def _ranked_below(place: np.ndarray, mass: Floats) -> Floats:
    """Return the mass at smaller scores, and half of that at equal ones; (n,)."""
    at = np.bincount(place, mass)
    return np.asarray((np.cumsum(at) - 0.5 * at)[place])


def _slope(rows: LabelledRows) -> tuple[float, Floats] | None:
    """Return one Newton step of the inverse temperature from 0, and the influence of each row on it, (n,)."""
    z = np.maximum(rows.logits, np.log(CLIP))
    z = z - z.mean(axis=1, keepdims=True)
    curvature = float(rows.weight @ np.einsum("nk,nk->n", z, z)) / rows.n_classes
    if not curvature > 0.0:
        return None
    slope = np.einsum("nk,nk->n", rows.share, z) / curvature
    value = float(slope.sum())
    curved = rows.weight * np.einsum("nk,nk->n", z, z) / (rows.n_classes * curvature)
    return value, slope - value * curved
