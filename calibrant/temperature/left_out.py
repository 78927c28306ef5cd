"""What the fitted temperature gains over leaving the probabilities alone, on labels that it was not fitted to: from the profile.

Each unit is left out in turn, to first order: without unit u the fit moves by s_u / H in beta (s_u the slope of its loss
there, H the curvature of all), which costs that unit s_u^2 / H. The profile keeps the sums of both over every prediction
of the window, where the kept sample holds some of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import stdtrit

from calibrant.accumulators.temperature import TemperatureProfile
from calibrant.pane import Pane
from calibrant.temperature.curve import Curve

FEWEST_UNITS = 20
_PLACES, _SHARES = np.polynomial.legendre.leggauss(8)


def left_out_gain(pane: Pane, policy: int, ci: float) -> dict[str, Any] | None:
    """NLL before and after a temperature, held out, over all labelled predictions of a pane.

    Parameters
    ----------
    pane : Pane
    policy : int, place in `POLICIES`
    ci : nominal coverage of the interval

    Returns
    -------
    dict with `before`, `after`, `gain` (`nll`: value and interval), `n`, `n_units`, `ci` and `interval_method`. The standard
    error of the gain g_u of the units is at most the integral over beta of sqrt(sum s_u^2), since a norm of an integral is at
    most the integral of the norms; that bound is what the interval is made of, with Student's t. None where the profile is
    not kept, a rating has probability 0, fewer than 20 units have labels, or the loss is least at no temperature above 1/32.

    Source
    ------
    Leave-one-out to first order: Takeuchi's criterion (1976), Stone (JRSS B 1977).
    """
    counts = pane.counts
    if not pane.keeps("temperature") or counts["n_units"] < FEWEST_UNITS:
        return None
    profile = pane["temperature"]
    assert isinstance(profile, TemperatureProfile)
    curve = Curve(profile, policy, 1)
    if not curve.weight > 0.0 or curve.n_zero_probability:
        return None
    at = curve.minimum("nll")
    if at is None or at.bound == "lower":
        return None
    bend = curve.curvature(at.beta) * curve.weight
    moved = curve.squared_slope(at.beta) / bend if at.bound is None and bend > 0.0 else 0.0
    before, after = curve.nll(1.0), curve.nll(at.beta) + moved / curve.weight
    middle, half = 0.5 * (at.beta + 1.0), 0.5 * abs(at.beta - 1.0)
    norms = [float(np.sqrt(curve.squared_slope(middle + half * place))) for place in _PLACES]
    error = half * float(_SHARES @ norms) / curve.weight
    reach = float(stdtrit(counts["n_units"] - 1, 0.5 + ci / 2.0)) * error
    return {
        "before": {"nll": before},
        "after": {"nll": after},
        "gain": {"nll": {"value": before - after, "interval": [before - after - reach, before - after + reach]}},
        "n": counts["n_labelled"],
        "n_units": counts["n_units"],
        "ci": ci,
        "interval_method": "every unit left out in turn, to first order; bound on the standard error",
    }
