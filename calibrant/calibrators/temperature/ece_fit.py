"""Temperature by ECE: the lowest value on a grid, and the temperatures that are as good within the error."""

from __future__ import annotations

import numpy as np

from calibrant.calibrators.temperature.curve import Curve
from calibrant.calibrators.temperature.verdicts import without_temperature
from calibrant.core.documents import Result

ECE_TEMPERATURES = np.arange(100, 2001) / 200.0
ROW_PLATEAU = 1e-3
FLAT_ECE = 1e-8


def fitted_by_ece(curve: Curve) -> Result | None:
    """Return the minimal ECE on the grid of temperatures, with the temperatures around it that equal it within the error."""
    ece = curve.eces(1.0 / ECE_TEMPERATURES[::-1])[::-1]
    if np.isnan(ece).all():
        return without_temperature("no_bins")
    ece = np.where(np.isnan(ece), np.inf, ece)
    if not np.ptp(ece) > FLAT_ECE:
        return None
    best = int(np.argmin(ece))
    temperature = float(ECE_TEMPERATURES[best])
    tolerance = max(curve.ece_error(1.0 / temperature), ROW_PLATEAU)
    worse = np.flatnonzero(ece > ece[best] + tolerance)
    low = worse[worse < best].max(initial=-1) + 1
    high = worse[worse > best].min(initial=len(ece)) - 1
    ends = {0: "lower", len(ece) - 1: "upper"}
    return {
        "temperature": temperature,
        "inverse_temperature": 1.0 / temperature,
        "standard_error_reason": "not_smooth",
        "interval_reason": "not_smooth",
        "at_bound": best in ends,
        "bound": ends.get(best),
        "iterations": len(ece),
        "plateau": [float(ECE_TEMPERATURES[low]), float(ECE_TEMPERATURES[high])],
        "plateau_tolerance": tolerance,
        "error_estimate": None if curve.method == "profile" else 0.0,
    }
