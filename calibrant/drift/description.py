"""Descriptive statistics of sealed cohorts, which never raise an alarm.

All numbers come from the unit-weighted bins of the evidence, so they apply to mapped scores, to one rater and to a slice
alike. Proper scores use the bins' mean score as the forecast; `GET metrics?clock=sealed` has them per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.documents import Result
from calibrant.drift.unit_tables import UnitTable
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.null_reference import gap_null
from calibrant.inference.seeds import SEED

Floats = NDArray[np.float64]


def description(table: UnitTable, seed: int = SEED) -> Result | None:
    """Return the calibration error with its null reference, and decomposed proper scores.

    Parameters
    ----------
    table : UnitTable of everything since the baseline
    seed : seed of the null reference

    Returns
    -------
    dict, or None without labelled units: `ece` and `debiased_ece` (root of the mean squared gap minus its bias), each
    with `null_mean` and `null_q95`; `brier` and `nll` (nats), each `value` = reliability − resolution + uncertainty;
    `text`.

    Source
    ------
    Murphy (J Appl Meteorol 1973) and Bröcker (QJRMS 2009) for the parts; Kumar, Liang, Ma (NeurIPS 2019) for the bias.

    Examples
    --------
    >>> one = np.ones(1)
    >>> found = description(UnitTable(4 * one, 2 * one, 3 * one, 4 * one, 4 * one))
    >>> found["ece"]["value"], found["brier"]["reliability"], found["brier"]["uncertainty"]
    (0.25, 0.0625, 0.1875)
    """
    filled = table.weight > 0
    if not filled.any():
        return None
    weight, squared = table.weight[filled], table.squared[filled]
    forecast = np.clip(table.mean_confidence[filled], 0.0, 1.0)
    rate = np.clip(table.correct[filled] / weight, 0.0, 1.0)
    share = weight / weight.sum()
    errors = _errors(weight, squared, forecast, rate, seed)
    return {
        "n_bins": table.n_bins,
        "n_units": table.n_units,
        **errors,
        "brier": _parts(share, rate, (rate - forecast) ** 2, _variance),
        "nll": _parts(share, rate, _divergence(rate, forecast), _entropy),
        "text": _text(errors["ece"], table.n_units),
    }


def _errors(
    weight: Floats, squared: Floats, forecast: Floats, rate: Floats, seed: int
) -> dict[str, dict[str, float]]:
    """Return errors of the gaps; under the null, a bin's correct labels have variance p (1 − p) Σ ω², p its mean score."""
    gap, samples = (rate - forecast)[None], weight**2 / squared
    variance = _variance(forecast) * squared
    share = weight / weight.sum()
    # A bin with a single unit has no information on its variance.
    excess = np.where(samples > 1.0 + 1e-9, samples - 1.0, np.inf)
    bias = float((share * _variance(rate) / excess).sum())
    null_bias = float((share * variance / weight**2).sum())
    found = {}
    for name, of_gap, of_null in (
        ("ece", _absolute, _absolute),
        ("debiased_ece", _root(bias), _root(null_bias)),
    ):
        null = gap_null(of_null, weight[None], variance[None], seed)
        value = float(of_gap(weight[None], gap))
        found[name] = {"value": value, "null_mean": null.mean, "null_q95": null.q95}
    return found


def _absolute(weight: Any, gap: Any) -> Any:
    return (weight * np.abs(gap)).sum(axis=(-1, -2)) / weight.sum(axis=(-1, -2))


def _root(bias: float) -> GapStatistic:
    """Return the root of the mean squared gap minus the bias, at least 0."""

    def of(weight: Any, gap: Any) -> Any:
        mean = (weight * gap**2).sum(axis=(-1, -2)) / weight.sum(axis=(-1, -2))
        return np.sqrt(np.maximum(mean - bias, 0.0))

    return of


def _parts(
    share: Floats, rate: Floats, divergence: Floats, entropy: Callable[[Floats], Floats]
) -> dict[str, float | None]:
    """Decompose a proper score; no value if a bin's divergence is infinite."""
    uncertainty = float(entropy((share * rate).sum(keepdims=True))[0])
    resolution = uncertainty - float((share * entropy(rate)).sum())
    reliability = float((share * divergence).sum())
    is_finite = bool(np.isfinite(reliability))
    return {
        "value": reliability - resolution + uncertainty if is_finite else None,
        "reliability": reliability if is_finite else None,
        "resolution": resolution,
        "uncertainty": uncertainty,
    }


def _variance(rate: Floats) -> Floats:
    return rate * (1.0 - rate)


def _entropy(rate: Floats) -> Floats:
    return np.asarray(
        -scipy.special.xlogy(rate, rate) - scipy.special.xlogy(1.0 - rate, 1.0 - rate)
    )


def _divergence(rate: Floats, forecast: Floats) -> Floats:
    """Return the Kullback–Leibler divergence in nats; infinite if an outcome had probability 0."""
    return np.asarray(
        scipy.special.rel_entr(rate, forecast) + scipy.special.rel_entr(1.0 - rate, 1.0 - forecast)
    )


def _text(ece: dict[str, float], n_units: float) -> str:
    value, mean, q95 = (f"{ece[name]:.3f}" for name in ("value", "null_mean", "null_q95"))
    return (
        f"The calibration error over {n_units:,.0f} labelled units is {value}. A calibrated model with the same number of units "
        f"would show {mean} on average, and at most {q95} in 95 % of samples. This error raises no alarm: only the evidence does."
    )
