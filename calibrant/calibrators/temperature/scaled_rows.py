"""Temperatures of rows beyond the stored range: the temperature of logits is S times that of the logits divided by S."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.temperature.beyond_grid import SHOWN, slope_at
from calibrant.calibrators.temperature.row_curve import RowCurve
from calibrant.calibrators.temperature.verdicts import NOT_FITTED, without_relation
from calibrant.core.documents import Result

# Ratio of the stored temperatures: neighbouring ranges touch.
STEP = float(BETAS[-1] / BETAS[0])
# Logits differ by at most 1e6 within a row, so that a best temperature that the labels determine is within two steps.
MAX_STEPS = 2
# Fields of a fit that are temperatures, lists of them, and those that describe the scores as sent.
_TEMPERATURES = ("temperature", "standard_error")
_LISTS = ("interval", "plateau")
_AS_SENT = ("before", "objective_before")


def fit_scaled(curve: RowCurve, found: Result, fit: Callable[[RowCurve], Result]) -> Result:
    """Return the fit to rows whose best temperature is at an end of the stored range, in as wide a range as they need.

    Parameters
    ----------
    curve : RowCurve
    found : the fit within the stored range
    fit : losses of scaled logits to their fit in that range

    Returns
    -------
    the fit; without a temperature (`unrelated`, `inverse`) if the loss falls up to an infinite one
    """
    bound, scale, last = found["bound"], 1.0, curve
    for _ in range(MAX_STEPS):
        scale *= STEP if bound == "upper" else 1.0 / STEP
        smaller = curve.scaled(scale)
        scaled = fit(smaller)
        if scaled["temperature"] is None:  # rounding hides the loss
            break
        last = smaller
        if not scaled["at_bound"]:
            result = found | _in_units(scaled, found, scale)
            is_open = scaled["interval"] and scaled["interval"][1] >= scaled["range"][1]
            return result | _without(False, found["n_units"]) if is_open else result
    if bound == "lower":
        return found
    # Whether the NLL rises with the inverse temperature at its smallest value, by more than chance.
    return found | _without(slope_at(last, float(BETAS[0])) > SHOWN, found["n_units"])


def _in_units(scaled: Result, found: Result, scale: float) -> Result:
    """Return what a fit to divided logits says in units of the logits as sent."""
    changed: dict[str, Any] = {name: found[name] for name in _AS_SENT}
    for name in _TEMPERATURES:
        changed[name] = None if scaled[name] is None else scaled[name] * scale
    for name in _LISTS:
        changed[name] = None if scaled[name] is None else [end * scale for end in scaled[name]]
    changed["inverse_temperature"] = scaled["inverse_temperature"] / scale
    ends = [*found["range"], *(end * scale for end in scaled["range"])]
    return scaled | changed | {"range": [min(ends), max(ends)]}


def _without(is_inverse: bool, n_units: int) -> Result:
    """Return the fields of a fit without a temperature."""
    why = without_relation(is_inverse, n_units)
    reasons = {"standard_error_reason": why["reason"], "interval_reason": why["reason"]}
    ends = {"plateau": None, "at_bound": True, "bound": "upper"}
    return NOT_FITTED | ends | reasons | why
