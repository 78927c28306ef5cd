"""Result of a temperature fit: the minimum on a curve, its losses, uncertainty and points."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.temperature.curve import Curve, Minimum
from calibrant.calibrators.temperature.ece_interpolation import plateau
from calibrant.calibrators.temperature.interval import METHOD, at_most, interval_of, why_none
from calibrant.calibrators.temperature.verdicts import verdict_of, without_temperature
from calibrant.core.documents import Extra, Result
from calibrant.core.spec import PaneSpec

ECE_TEMPERATURES = np.arange(100, 2001) / 200.0
# ECEs this close count as equal; of rows, and where the ECE does not depend on the temperature.
ROW_PLATEAU, FLAT_ECE = 1e-3, 1e-8
PROOF = ("gradient_norm", "iterations", "objective_before", "objective_after")


def about_fit(
    spec: PaneSpec,
    counts: dict[str, int],
    objective: str,
    raters: str,
    ci: float,
    bins: int,
    min_count: float,
    method: str,
) -> Result:
    low, high = float(1.0 / BETAS[-1]), float(1.0 / BETAS[0])
    if objective == "ece":
        low, high = float(ECE_TEMPERATURES[0]), float(ECE_TEMPERATURES[-1])
    return {
        "objective": objective,
        "raters": raters,
        "method": method,
        "scope": spec.default_scope,
        "bins": bins,
        "min_count": min_count,
        "edges": "right",
        "ci": ci,
        "range": [low, high],
        "n": counts["n_labelled"],
        "n_predictions": counts["n_predictions"],
        "n_ratings": counts["n_ratings"],
        "n_units": counts["n_units"],
        "n_zero_probability": 0,
        "n_incorrect_units": None,
    }


def nothing() -> Result:
    return {
        "temperature": None,
        "inverse_temperature": None,
        "standard_error": None,
        "interval": None,
        "at_bound": False,
        "bound": None,
        "before": None,
        "after": None,
        "curve": None,
        "plateau": None,
        "at_most": None,
        "precision": None,
        "error_estimate": None,
        **dict.fromkeys(PROOF),
    }


def result_of(about: Extra, curve: Curve) -> Result:
    about |= {
        "n_zero_probability": curve.n_zero_probability,
        "n_incorrect_units": curve.unit_counts.get("incorrect_units"),
    }
    if not curve.weight_all > 0.0:
        return about | nothing() | without_temperature("no_labels")
    if not curve.weight > 0.0:
        return about | nothing() | without_temperature("all_zero_probability")
    fitted = _fitted_by_ece(curve) if about["objective"] == "ece" else _fitted(curve, about)
    before = _losses(curve, 1.0)
    known: Result = {"before": before}
    if fitted is None:
        return about | nothing() | known | without_temperature("flat")
    if "reason" in fitted:
        return about | nothing() | known | fitted
    beta = fitted["inverse_temperature"]
    after = _losses(curve, beta)
    result = about | nothing() | known | {"after": after} | fitted
    result["objective_before"] = _losses(curve, 1.0, is_finite=True)[about["objective"]]
    result["objective_after"] = _losses(curve, beta, is_finite=True)[about["objective"]]
    result["error_estimate"] = {
        "temperature": fitted["error_estimate"],
        "ece": curve.ece_error(beta),
    }
    return result | verdict_of(result)


def _losses(curve: Curve, beta: float, is_finite: bool = False) -> dict[str, float | None]:
    """Return the losses at a temperature; NLL is None if a rating has probability 0, unless of the other ratings."""
    ece = curve.ece(beta)
    return {
        "nll": curve.nll(beta) if is_finite or not curve.n_zero_probability else None,
        "brier": curve.brier(beta),
        "ece": ece if np.isfinite(ece) else None,
    }


def curve_points(curve: Curve | None) -> dict[str, list[float | None]] | None:
    """Return the losses at the stored temperatures, smallest first; None for an ECE without bins."""
    if curve is None or not curve.weight > 0.0:
        return None
    ece = curve.ece_points[::-1]
    return {
        "temperature": (1.0 / BETAS[::-1]).tolist(),
        "nll": curve.nll_points[0, ::-1].tolist(),
        "brier": curve.brier_points[0, ::-1].tolist(),
        "ece": [value if np.isfinite(value) else None for value in ece.tolist()],
    }


def _fitted(curve: Curve, about: Extra) -> Result | None:
    """Fit by NLL or Brier."""
    objective = about["objective"]
    at = curve.minimum(objective)
    if at is None:
        return None
    if at.bound == "lower" and _is_separable(curve, about):
        limit = at_most(curve, n_units=about["n_units"], ci=about["ci"])
        return without_temperature("separable") | {
            "at_bound": True,
            "bound": at.bound,
            "at_most": limit,
            "interval_reason": "separable",
            "standard_error_reason": "separable",
        }
    second = curve.second_minimum(objective)
    fitted: Result = {
        "temperature": 1.0 / at.beta,
        "inverse_temperature": at.beta,
        "at_bound": at.bound is not None,
        "bound": at.bound,
        "gradient_norm": 0.0 if at.bound else abs(curve.slope(objective, at.beta)),
        "iterations": at.iterations,
        "error_estimate": curve.root_error(objective, at),
        "plateau": None if second is None else sorted([1.0 / at.beta, 1.0 / second.beta]),
        "precision": curve.precision if objective == "brier" else None,
    }
    return fitted | _uncertainty(curve, at, about)


def _is_separable(curve: Curve, about: Extra) -> bool:
    """Return whether no rating is of another than the most probable class; of older panes, whether NLL falls to the end."""
    incorrect = about["n_incorrect_units"]
    return bool(about["objective"] == "nll" if incorrect is None else incorrect == 0)


def _uncertainty(curve: Curve, at: Minimum, about: Extra) -> Result:
    """Return standard error and interval, or the reason why there are none."""
    objective = about["objective"]
    reason = "at_bound" if at.bound is not None else why_none(about)
    if reason is None and curve.squares(objective, at.beta) is None:
        reason = "not_kept"
    if reason is None and not curve.total_curvature(objective, at.beta) > 0.0:
        reason = "flat"
    if reason is None and not curve.squares(objective, at.beta):
        reason = "no_variation"
    if reason is not None:
        return {"standard_error_reason": reason, "interval_reason": reason}
    variance = curve.variance(objective, at.beta)
    assert variance is not None
    interval = interval_of(curve, objective, at.beta, n_units=about["n_units"], ci=about["ci"])
    return {
        "standard_error": float(np.sqrt(variance)) / at.beta**2,
        "standard_error_method": "sandwich by unit, delta method",
        "interval": interval,
        "interval_method": METHOD,
    }


def _fitted_by_ece(curve: Curve) -> Result | None:
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
    ends = {0: "lower", len(ece) - 1: "upper"}
    return {
        "temperature": temperature,
        "inverse_temperature": 1.0 / temperature,
        "standard_error_reason": "not_smooth",
        "interval_reason": "not_smooth",
        "at_bound": best in ends,
        "bound": ends.get(best),
        "iterations": len(ece),
        "plateau": plateau(ECE_TEMPERATURES, ece, best, tolerance),
        "plateau_tolerance": tolerance,
        "error_estimate": None if curve.method == "profile" else 0.0,
    }
