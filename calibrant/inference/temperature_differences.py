"""Comparison of two fitted temperatures: the difference, with the correlation due to predictions on both sides.

A temperature is where the mean slope of the loss is 0, so a prediction moves it by its own slope there. The slopes of the stored
samples' predictions, summed by unit, give the correlation of the two estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

from calibrant.calibrators.labelled_rows import labelled_rows
from calibrant.calibrators.row_losses import row_losses
from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.hashing import U64
from calibrant.core.pane import Pane
from calibrant.core.query import policy_index
from calibrant.core.sampled_rows import below
from calibrant.inference.pairing import shared, together, unit_correlation

BY_SAMPLE = "correlation of the units of both kept samples"
INDEPENDENT = "as of independent data"
_STEP = 1e-4
_LOSS = {"nll": "nll", "brier": "brier", "ece": "nll"}


def temperature_difference(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], pane: Pane, other: Pane
) -> Result:
    """Return the difference of two temperatures that were fitted with the same method.

    Parameters
    ----------
    mine, theirs : results of `fit_temperature` with the same objective and policy
    pane, other : the panes they were fitted to

    Returns
    -------
    dict: `against` (temperature, interval, n of the other side), `difference` and `ratio` with their intervals and `difference_method`, or
    `difference_reason` where there is none; and `shared`, as of `pairing.shared`
    """
    result: Result = {
        "against": {
            name: theirs[name]
            for name in ("temperature", "standard_error", "interval", "n", "verdict")
        },
        "difference": None,
        "ratio": None,
        "difference_interval": None,
        "ratio_interval": None,
        "shared": shared(pane, other),
    }
    temperatures = (mine["temperature"], theirs["temperature"])
    if temperatures[0] is None or temperatures[1] is None:
        return result | {"difference_reason": mine["reason"] or theirs["reason"]}
    result |= {
        "difference": temperatures[0] - temperatures[1],
        "ratio": temperatures[0] / temperatures[1],
    }
    for each in (mine, theirs):
        if each["standard_error"] is None:
            return result | {"difference_reason": each["standard_error_reason"]}
    known = pane.keeps("sample") and other.keeps("sample")
    correlation = _correlation(mine, theirs, pane, other) if known else 0.0
    errors = (mine["standard_error"], theirs["standard_error"])
    relative = (errors[0] / temperatures[0], errors[1] / temperatures[1])
    z = float(scipy.special.ndtri(0.5 + mine["ci"] / 2.0))
    reach = z * together(*errors, correlation)
    factor = float(np.exp(min(z * together(*relative, correlation), 700.0)))
    return result | {
        "difference_interval": [result["difference"] - reach, result["difference"] + reach],
        "ratio_interval": [result["ratio"] / factor, result["ratio"] * factor],
        "difference_method": f"wald, {BY_SAMPLE if known else INDEPENDENT}",
        "correlation": correlation,
    }


def _correlation(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], pane: Pane, other: Pane
) -> float:
    halvings = max(pane.sample.halvings, other.sample.halvings)
    return unit_correlation(_slopes(mine, pane, halvings), _slopes(theirs, other, halvings))


def _slopes(fitted: Mapping[str, Any], pane: Pane, halvings: int) -> tuple[U64, Floats]:
    """Return units of the sampled predictions, and each one's slope of the loss in the inverse temperature, of mean 0."""
    batch = pane.sample.batch()
    batch = batch.take(below(batch.prediction_hash, halvings))
    rows = labelled_rows(batch, policy_index(fitted["raters"]))
    name, beta = _LOSS[fitted["objective"]], 1.0 / fitted["temperature"]
    sides = []
    for factor in (1.0 + _STEP, 1.0 - _STEP):
        with np.errstate(invalid="ignore"):
            scaled = rows.logits * (beta * factor)
        odds = np.exp(scaled - scaled.max(axis=1, keepdims=True, initial=-np.inf))
        sides.append(row_losses(rows, odds / odds.sum(axis=1, keepdims=True))[name])
    with np.errstate(invalid="ignore"):
        slope = (sides[0] - sides[1]) / (2.0 * _STEP * beta)
    finite = np.isfinite(slope) & (rows.weight > 0)
    weight, slope = rows.weight[finite], slope[finite]
    # The sample's slopes do not sum to 0 as those of all predictions do.
    centred = slope - weight * (slope.sum() / weight.sum()) if len(slope) else slope
    return batch.unit_hash[finite], np.asarray(centred)
