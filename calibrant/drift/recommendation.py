"""Recommended update: the simplest that is no worse than a richer one and holds on later data.

From simple to rich: shift all predictions (intercept), widen or narrow them (temperature), both (slope), a free
curve (flexible map). A richer one is recommended only if the data contradict the simpler one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.actions import recommendation
from calibrant.drift.effect import Recalibration, recalibration, saturated_log_likelihood
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable, merged

Floats = NDArray[np.float64]
MIN_UNITS = 50
MISFIT_P = 0.01
ACTIONS = {
    "none": "No action is needed: the labels show no disagreement of predictions and outcomes.",
    "collect_more": "Collect labels for recent predictions before changing anything: there are too few to estimate "
    "what changed.",
    "intercept": "Shift all predictions by the same amount in log-odds: outcomes became more or less frequent than "
    "predicted, equally at all scores. First check whether the mix of cases changed, which may be legitimate.",
    "temperature": "Divide the log-odds of all predictions by one number, the temperature.",
    "slope_intercept": "Fit an intercept and a slope (Platt scaling on the log-odds): predictions are shifted, and too extreme "
    "or not extreme enough.",
    "flexible": "Fit a flexible calibration map (isotonic, or histogram binning): the error differs between "
    "scores, so no shift or scale corrects it. Check the worst bins first; an error in the data may cause one of them.",
}


def recommended_action(
    since_change: UnitTable, later: UnitTable | None = None, tolerance: Tolerance | None = None
) -> dict[str, Any]:
    """Return the simplest update that corrects the cohorts since the change.

    Parameters
    ----------
    since_change : UnitTable that updates are fitted to
    later : UnitTable of later cohorts, on which an update must hold too; None or fewer than 50 units if there are too few
        yet
    tolerance : allowed gaps on the later cohorts; None allows none

    Returns
    -------
    dict: `action`, `reason` and `evidence`: `parameters` of the update (None for those without), fitted to all cohorts once
    it has held, `holds_later` (None without `later`), `tried`: each candidate with the p-value of what it leaves unexplained.

    Source
    ------
    Vergouwe et al. (Stat Med 2017), a closed test of updates from simple to rich; Davis et al. (JAMIA 2019).
    """
    if since_change.n_units < MIN_UNITS:
        return reported("collect_more")
    if later is not None and later.n_units < MIN_UNITS:
        later = None
    tried: list[dict[str, Any]] = []
    for action, fit, left in _candidates(since_change):
        holds = None if later is None else misfit(later, fit, tolerance) >= MISFIT_P
        tried.append({"action": action, "p_value": left, "holds_later": holds})
        if left >= MISFIT_P and holds is not False:
            whole = fit if later is None else _fit(action, merged([since_change, later])) or fit
            return reported(action, _parameters(whole), holds, tried)
    return reported("flexible", tried=tried)


def reported(
    action: str,
    parameters: dict[str, float] | None = None,
    holds_later: bool | None = None,
    tried: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return an action with its reason and evidence."""
    reason = " ".join([ACTIONS[action], *_which_way(parameters or {})])
    evidence = {"parameters": parameters, "holds_later": holds_later, "tried": tried or []}
    return recommendation(action, reason, evidence)


def of_raters(advice: dict[str, Any], raters: Sequence[str]) -> dict[str, Any]:
    """Return the recommendation if only some raters' labels changed: ask them before changing the model.

    Examples
    --------
    >>> of_raters({"action": "intercept", "reason": "Shift."}, ["ann"])["reason"].partition(":")[0]
    'Ask ann first'
    """
    why = "other raters' labels agree with the model as before, and no update of the model corrects a rater"
    first = f"Ask {', '.join(raters)} first: {why}."
    return {**advice, "reason": f"{first} {advice['reason']}"}


def _which_way(parameters: dict[str, float]) -> list[str]:
    """Describe the parameters of an update in words."""
    found = []
    slope, intercept = parameters.get("slope", 1.0), parameters.get("intercept", 0.0)
    if slope <= 0:
        found.append(
            "Outcomes are not more frequent at high scores than at low ones: check the data first."
        )
    elif slope != 1:
        way = (
            "too extreme: high scores are too high and low ones too low"
            if slope < 1
            else "not extreme enough"
        )
        found.append(
            f"They are {way}; dividing the score's log-odds by {1 / slope:.2f} corrects this."
        )
    if intercept != 0:
        found.append(f"Multiply their odds by {exp(min(intercept, 700.0)):.2f}.")
    return found


def misfit(table: UnitTable, fit: Recalibration, tolerance: Tolerance | None = None) -> float:
    """Return the p-value of the gaps that a recalibration leaves on other data, ignoring those within tolerance.

    Parameters
    ----------
    table : UnitTable that `fit` was not fitted to; 1 if it is empty
    fit : Recalibration
    tolerance : over the bins of the table

    Source
    ------
    Hosmer–Lemeshow statistic with one degree of freedom per bin, since nothing was fitted here.
    """
    filled = table.weight > 0
    band = tolerance or Tolerance.within(0.0, table.n_bins)
    weight, rate = table.weight[filled], fit(table.mean_confidence[filled])
    gap = table.correct[filled] / weight - rate
    beyond = np.maximum(gap - np.maximum(band.upper[filled], 0.0), 0.0)
    beyond += np.minimum(gap - np.minimum(band.lower[filled], 0.0), 0.0)
    statistic = float((weight * beyond**2 / (rate * (1.0 - rate))).sum())
    return float(scipy.stats.chi2.sf(statistic, filled.sum())) if filled.any() else 1.0


def _candidates(table: UnitTable) -> list[tuple[str, Recalibration, float]]:
    """Return updates from simple to rich, each with the p-value against the richer ones."""
    whole = _fit("slope_intercept", table)
    if whole is None:
        return []
    best, n_bins = saturated_log_likelihood(table), int((table.weight > 0).sum())
    single = {action: _fit(action, table) for action in ("intercept", "temperature")}
    fits = sorted(
        ((a, f) for a, f in single.items() if f), key=lambda each: -each[1].log_likelihood
    )
    rows = [
        (
            a,
            f,
            min(
                _p(whole.log_likelihood - f.log_likelihood, 1),
                _p(best - f.log_likelihood, n_bins - 1),
            ),
        )
        for a, f in fits
    ]
    return [*rows, ("slope_intercept", whole, _p(best - whole.log_likelihood, n_bins - 2))]


def _fit(action: str, table: UnitTable) -> Recalibration | None:
    """Fit an update: intercept, temperature, or both."""
    return recalibration(table, intercept=action != "temperature", slope=action != "intercept")


def _p(gain: float, freedom: int) -> float:
    """Return the p-value of a gain in log-likelihood for a number of additional parameters."""
    return float(scipy.stats.chi2.sf(2.0 * max(gain, 0.0), freedom)) if freedom > 0 else 1.0


def _parameters(fit: Recalibration) -> dict[str, float]:
    return {"intercept": fit.intercept, "slope": fit.slope}
