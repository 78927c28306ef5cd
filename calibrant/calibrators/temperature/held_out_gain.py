"""Gain of the fitted temperature over the probabilities as sent, on labels held out from the fit: from the profile.

Each unit is left out in turn, to first order: without unit u the fit moves by s_u / H in beta (s_u the slope of its loss
there, H the curvature of all), which costs that unit s_u^2 / H. The profile stores the sums of both over every prediction
of the window; the stored sample has only some of them.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.accumulators.temperature import BETAS, TemperatureProfile
from calibrant.calibrators.temperature.curve import Curve
from calibrant.core.documents import Result
from calibrant.core.pane import Pane

MIN_UNITS = 20
_PLACES, _SHARES = np.polynomial.legendre.leggauss(8)


def left_out_gain(pane: Pane, policy: int, ci: float) -> Result | None:
    """Return NLL before and after a temperature, held out, over all labelled predictions of a pane.

    Parameters
    ----------
    pane : Pane
    policy : int, place in `POLICIES`
    ci : nominal coverage of the interval

    Returns
    -------
    dict with `before`, `after`, `gain` (`nll`: value and interval), `n`, `n_units`, `ci` and `interval_method`. The standard
    error of the gain g_u of the units is at most the integral over beta of sqrt(sum s_u^2), since a norm of an integral is at
    most the integral of the norms. The interval uses that bound with Student's t, and the cost of fitting (sum s_u^2 / H),
    without which it would be too narrow if the best temperature is near 1. None if the profile is
    not stored, a rating has probability 0, fewer than 20 units have labels, or no temperature above 1/32 minimises the loss.

    Source
    ------
    Leave-one-out to first order: Takeuchi's criterion (1976), Stone (JRSS B 1977).
    """
    curve = _curve(pane, policy)
    at = None if curve is None else curve.minimum("nll")
    if curve is None or at is None or at.bound == "lower":
        return None
    curvature = curve.curvature(at.beta) * curve.weight
    moved = (
        curve.squared_slope(at.beta) / curvature if at.bound is None and curvature > 0.0 else 0.0
    )
    cost = moved / curve.weight
    before, after = curve.nll(1.0), curve.nll(at.beta) + cost
    return {
        "before": {"nll": before},
        "after": {"nll": after},
        **_gain(pane, curve, before - after, (1.0, at.beta), ci, cost),
        "interval_method": "every unit left out in turn, to first order; bound on the standard error",
    }


def gain_between(pane: Pane, policy: int, betas: tuple[float, float], ci: float) -> Result | None:
    """Return the gain of one inverse temperature over another in NLL, by the profile, on labels to which neither was fitted.

    Parameters
    ----------
    pane, policy, ci : as in `left_out_gain`
    betas : the inverse temperatures of the current and of the candidate

    Returns
    -------
    dict with `current` and `candidate` (`nll` of each), `gain`, `n`, `n_units`, `ci` and
    `interval_method`; None if the profile is insufficient, or one is outside [1/32, 32].
    """
    curve = _curve(pane, policy)
    if curve is None or min(betas) < BETAS[0] or max(betas) > BETAS[-1]:
        return None
    first, then = (curve.nll(beta) for beta in betas)
    return {
        "current": {"nll": first},
        "candidate": {"nll": then},
        **_gain(pane, curve, first - then, betas, ci),
        "interval_method": "bound on the standard error over units",
    }


def _curve(pane: Pane, policy: int) -> Curve | None:
    """Return the profile's losses if they include all ratings and there are enough units."""
    if "temperature" not in pane.names or pane.counts["n_units"] < MIN_UNITS:
        return None
    profile = pane["temperature"]
    assert isinstance(profile, TemperatureProfile)
    curve = Curve(profile, policy, 1)
    return curve if curve.weight > 0.0 and not curve.n_zero_probability else None


def _gain(
    pane: Pane, curve: Curve, value: float, betas: tuple[float, float], ci: float, cost: float = 0.0
) -> Result:
    counts, (low, high) = pane.counts, sorted(betas)
    middle, half = 0.5 * (high + low), 0.5 * (high - low)
    norms = [float(np.sqrt(curve.squared_slope(middle + half * place))) for place in _PLACES]
    error = half * float(_SHARES @ norms) / curve.weight
    reach = float(scipy.special.stdtrit(counts["n_units"] - 1, 0.5 + ci / 2.0)) * error + cost
    return {
        "gain": {"nll": {"value": value, "interval": [value - reach, value + reach]}},
        "n": counts["n_labelled"],
        "n_units": counts["n_units"],
        "ci": ci,
    }
