"""What to report if the best temperature is not among those stored: it is beyond them, or the labels do not determine one."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.temperature.curve import Curve
from calibrant.calibrators.temperature.verdicts import (
    VERDICTS,
    without_relation,
    without_temperature,
)
from calibrant.core.documents import Result

# Standard errors from 0 at which a slope, or a loss below that of equal probabilities, is not chance.
SHOWN = 3.0
# Largest variance of beta z at the smallest stored beta for which the loss is nearly a parabola down to beta 0.
PARABOLA = 0.25
# Divisor that moves the stored temperatures far beyond their range, and leaves a part of it in common.
FAR = 500.0


def beyond_grid(curve: Curve, bound: str, n_classes: int, n_units: int) -> Result:
    """Return verdict, reason and advice of a fit whose loss still falls at an end of the stored temperatures.

    Parameters
    ----------
    curve : Curve of a profile
    bound : "lower" or "upper", in T
    n_classes, n_units : of the model; with weight
    """
    if bound == "lower":
        return _advice(1.0 / FAR)
    step = _step_to_zero(curve)
    if step is None or _beats_equal_probabilities(curve, n_classes) or step < -SHOWN:
        return _advice(_divisor(curve))
    return without_relation(step > SHOWN, n_units)


def slope_at(curve: Curve, beta: float) -> float:
    """Return the derivative of the NLL in beta there, in standard errors by unit; positive if a smaller beta is better."""
    squares = curve.squared_slope(beta)
    slope = curve.slope("nll", beta) / beta * curve.weight
    return slope / float(np.sqrt(squares)) if squares > 0.0 else 0.0


def _step_to_zero(curve: Curve) -> float | None:
    """Return the derivative of the NLL at beta 0 in standard errors, by the parabola at the smallest beta; None where it is none."""
    beta = float(BETAS[0])
    curvature = curve.curvature(beta)
    if not curvature * beta**2 < PARABOLA:
        return None
    squares = curve.squared_slope(beta)
    at_zero = (curve.slope("nll", beta) / beta - beta * curvature) * curve.weight
    return at_zero / float(np.sqrt(squares)) if squares > 0.0 else 0.0


def _beats_equal_probabilities(curve: Curve, n_classes: int) -> bool:
    """Return whether some stored temperature has a Brier score below that of equal probabilities by more than chance."""
    lowest = float(curve.brier_points[0].min())
    return lowest < 1.0 - 1.0 / n_classes - SHOWN / float(np.sqrt(max(curve.n, 1)))


def _divisor(curve: Curve) -> float:
    """Return about the best temperature where the loss is nearly a parabola, rounded to one digit; else a large divisor."""
    beta = float(BETAS[0])
    curvature = curve.curvature(beta)
    best = beta - curve.slope("nll", beta) / beta / curvature if curvature > 0.0 else 0.0
    if not (best > 0.0 and curvature * beta**2 < PARABOLA and 1.0 / best < FAR):
        return FAR
    return float(f"{1.0 / best:.0e}")


def _advice(divisor: float) -> Result:
    detail = f"{VERDICTS['beyond_grid']}; divide the logits by {divisor:g}, or fit to rows"
    return without_temperature("beyond_grid") | {"detail": detail}
