"""Temperatures of rows beyond the stored range: the temperature of logits is S times that of the logits divided by S."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.temperature.verdicts import without_relation
from calibrant.core.batch import Batch
from calibrant.core.documents import Result

# Ratio of the stored temperatures: neighbouring ranges touch.
STEP = float(BETAS[-1] / BETAS[0])
# Logits differ by at most 1e6 within a row, so that a best temperature that the labels determine is within two steps.
MAX_STEPS = 2
# Fields of a fit that are temperatures, lists of them, and those that describe the scores as sent.
_TEMPERATURES = ("temperature", "standard_error")
_LISTS = ("interval", "plateau")
_AS_SENT = ("before", "curve", "objective_before")


def fit_scaled(
    batch: Batch,
    found: Result,
    fit: Callable[[Batch], Result],
    is_inverse: Callable[[Batch], bool],
) -> Result:
    """Return the fit to rows whose best temperature is at an end of the stored range, in as wide a range as they need.

    Parameters
    ----------
    batch : Batch
    found : the fit within the stored range
    fit : a batch to its fit in that range
    is_inverse : a batch to whether its loss rises with the inverse temperature from 0 on, by more than chance

    Returns
    -------
    the fit; without a temperature (`unrelated`, `inverse`) if the loss falls up to an infinite one
    """
    bound, scale, rows = found["bound"], 1.0, batch
    for _ in range(MAX_STEPS):
        scale *= STEP if bound == "upper" else 1.0 / STEP
        smaller = divided(batch, scale)
        scaled = fit(smaller)
        if scaled["temperature"] is None:  # rounding hides the loss
            break
        rows = smaller
        if not scaled["at_bound"]:
            result = found | _in_units(scaled, found, scale)
            is_open = scaled["interval"] and scaled["interval"][1] >= scaled["range"][1]
            return result | _without(False, found["n_units"]) if is_open else result
    if bound == "lower":
        return found
    return found | _without(is_inverse(rows), found["n_units"])


def divided(batch: Batch, scale: float) -> Batch:
    """Return the batch with its logits divided by a number; units and chosen ratings stay."""
    if batch.is_logits:
        logits = batch.scores / scale
    else:
        with np.errstate(divide="ignore"):
            logits = np.log(batch.scores) / scale
    other = replace(batch, scores=logits, is_logits=True)
    for name in ("prediction_hash", "unit_hash", "unit_key", "chosen_rating"):
        other.__dict__[name] = getattr(batch, name)
    return other


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
    empty = (
        "temperature",
        "inverse_temperature",
        "standard_error",
        "interval",
        "after",
        "plateau",
        "objective_after",
    )
    reasons = {"standard_error_reason": why["reason"], "interval_reason": why["reason"]}
    return dict.fromkeys(empty) | {"at_bound": True, "bound": "upper"} | reasons | why
