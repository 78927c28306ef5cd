"""Recommended update after an alarm, confirmed by cohorts that did not choose it.

From simple to rich: widen or narrow the predictions (temperature) or shift them (intercept), both (slope and intercept), a
free curve (flexible). A richer one is recommended only if the data contradict the simpler one. The start of the change was
chosen from the cohorts until the alarm, so estimates from them are selected: an action is recommended only if the cohorts
after the alarm have 20 units per parameter and are themselves evidence of a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp

import numpy as np
import scipy

from calibrant.core.actions import Advice, recommendation
from calibrant.core.documents import Extra
from calibrant.drift.bets import bets_of
from calibrant.drift.effect import Recalibration, recalibration, saturated_log_likelihood
from calibrant.drift.evidence import log_bets, log_mixture
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable, merged

MIN_UNITS = 50
UNITS_PER_PARAMETER = 20
MISFIT_P = 0.01
# Evidence of a change in the cohorts after the alarm: wrong at most once in 20 times, at any number of evaluations (Ville).
CONFIRMED = float(np.log(20.0))
ACTIONS = {
    "none": "No action is needed: the labels show no disagreement of predictions and outcomes.",
    "collect_more": "Collect labels for recent predictions before changing anything: there are too few to estimate "
    "what changed.",
    "intercept": "Shift all predictions by the same amount in log-odds: outcomes became more or less frequent than "
    "predicted, equally at all scores. First check whether the mix of cases changed, which may be legitimate.",
    "temperature": "Divide the logits of all predictions by one number, the temperature.",
    "slope_intercept": "Fit an intercept and a slope (Platt scaling on the log-odds): predictions are shifted, and too extreme "
    "or not extreme enough.",
    "flexible": "Fit a flexible calibration map (isotonic, or histogram binning): the error differs between "
    "scores, so no shift or scale corrects it. Check the worst bins first; an error in the data may cause one of them.",
}
PASSED = (
    "No action is needed: the cohorts after the alarm agree with the predictions. The change did not last, or the alarm was "
    "false."
)


@dataclass(frozen=True)
class ModelUpdate:
    """A possible update.

    Attributes
    ----------
    action : what it is
    n_parameters : number of free parameters
    parameters : estimates from all cohorts since the change, None without
    p_value : of what it leaves unexplained since the change
    p_later : of the gaps that it leaves after the alarm, 1 without such cohorts
    """

    action: str
    n_parameters: int
    parameters: dict[str, float] | None
    p_value: float
    p_later: float

    @property
    def holds(self) -> bool:
        return min(self.p_value, self.p_later) >= MISFIT_P


def recommended_action(
    since_change: UnitTable,
    later: UnitTable | None = None,
    tolerance: Tolerance | None = None,
    updates: Sequence[ModelUpdate] | None = None,
) -> Advice:
    """Return the simplest update that corrects the cohorts since the change, once later cohorts confirm it.

    Parameters
    ----------
    since_change : UnitTable of the cohorts from the start of the change until the alarm
    later : UnitTable of the cohorts after the alarm, None without
    tolerance : allowed gaps on the later cohorts; None allows none
    updates : candidates from simple to rich; those of a score of two classes if None (`cox_updates`)

    Returns
    -------
    dict: `action`, `reason` and `evidence`: `update` is the simplest candidate that holds, `parameters` its estimates from all
    cohorts since the change, `selected` because their start was chosen from the same data, `n_units_later`, `n_units_needed`,
    `evidence_log10_later` of the later cohorts (confirmed from log10 of 20), `tried`: each candidate with its p-values.

    Source
    ------
    Vergouwe et al. (Stat Med 2017), a closed test of updates from simple to rich; Davis et al. (JAMIA 2019). Confirmation: an
    e-value of the later cohorts, valid at every evaluation.
    """
    after = UnitTable.empty(since_change.n_bins) if later is None else later
    table = merged([since_change, after])
    if table.n_units < MIN_UNITS:
        return reported("collect_more")
    tried = cox_updates(since_change, after, tolerance) if updates is None else list(updates)
    chosen = next((each for each in tried if each.holds), _flexible(table))
    log_evidence = _log_evidence(after, tolerance)
    needed = UNITS_PER_PARAMETER * chosen.n_parameters
    evidence: Extra = {
        "update": chosen.action,
        "parameters": chosen.parameters,
        "selected": True,
        "n_units": table.n_units,
        "n_units_later": after.n_units,
        "n_units_needed": needed,
        "evidence_log10_later": log_evidence / float(np.log(10.0)),
        "tried": [asdict(each) for each in tried],
    }
    if after.n_units >= needed and log_evidence >= CONFIRMED:
        reason = " ".join([ACTIONS[chosen.action], *_which_way(chosen.parameters or {})])
        return recommendation(chosen.action, reason, evidence)
    if _did_not_last(since_change, after, log_evidence):
        return recommendation("none", PASSED, evidence)
    return recommendation("collect_more", _not_confirmed(chosen, after.n_units, needed), evidence)


def reported(action: str) -> Advice:
    """Return an action with its reason, without an update that was tried."""
    return recommendation(
        action, ACTIONS[action], {"update": None, "parameters": None, "tried": []}
    )


def at_alarm() -> Advice:
    """Return the recommendation at the moment of an alarm: no later cohort can confirm an update yet."""
    reason = (
        "Collect labels of the cohorts after the alarm: an update is recommended once they have "
        f"{UNITS_PER_PARAMETER} labelled units per parameter and confirm the change."
    )
    evidence: Extra = {"update": None, "parameters": None, "tried": []}
    return recommendation("collect_more", reason, evidence)


def of_raters(advice: Advice, raters: Sequence[str]) -> Advice:
    """Return the recommendation if only some raters' labels changed: ask them before changing the model.

    Examples
    --------
    >>> of_raters({"action": "intercept", "reason": "Shift.", "evidence": {}}, ["ann"])["reason"].partition(":")[0]
    'Ask ann first'
    """
    why = "other raters' labels agree with the model as before, and no update of the model corrects a rater"
    first = f"Ask {', '.join(raters)} first: {why}."
    return {**advice, "reason": f"{first} {advice['reason']}"}


def cox_updates(
    since_change: UnitTable, later: UnitTable, tolerance: Tolerance | None = None
) -> list[ModelUpdate]:
    """Return updates of the log-odds of one score, from simple to rich, fitted to all cohorts; none if none can be fitted."""
    table = merged([since_change, later])
    both = _fit("slope_intercept", table)
    if both is None:
        return []
    best, n_bins = saturated_log_likelihood(table), int((table.weight > 0).sum())
    single = {action: _fit(action, table) for action in ("intercept", "temperature")}
    fits = sorted(
        ((a, f) for a, f in single.items() if f), key=lambda each: -each[1].log_likelihood
    )
    found = [
        ModelUpdate(
            action,
            1,
            _parameters(fit),
            min(
                _p(both.log_likelihood - fit.log_likelihood, 1),
                _p(best - fit.log_likelihood, n_bins - 1),
            ),
            misfit(later, fit, tolerance),
        )
        for action, fit in fits
    ]
    p_binned = _p(best - both.log_likelihood, n_bins - 2)
    p_later = misfit(later, both, tolerance)
    return [*found, ModelUpdate("slope_intercept", 2, _parameters(both), p_binned, p_later)]


def softmax_update(
    temperature: float, table: UnitTable, later: UnitTable, tolerance: Tolerance | None = None
) -> ModelUpdate:
    """Return the softmax temperature of several classes as an update.

    Parameters
    ----------
    temperature : fitted to the rows of all cohorts since the change
    table, later : UnitTable of the scores at that temperature since the change, and after the alarm. The top label's log-odds
        have no slope of 1 / T, so that a temperature of several classes cannot be fitted to a table
    tolerance : over the bins of the tables
    """
    as_mapped = Recalibration(0.0, 1.0, (0.0, 0.0), 0.0)
    return ModelUpdate(
        "temperature",
        1,
        {"temperature": temperature},
        misfit(table, as_mapped, n_fitted=1),
        misfit(later, as_mapped, tolerance),
    )


def misfit(
    table: UnitTable, fit: Recalibration, tolerance: Tolerance | None = None, n_fitted: int = 0
) -> float:
    """Return the p-value of the gaps that a recalibration leaves, ignoring those within tolerance.

    Parameters
    ----------
    table : UnitTable; 1 if it is empty
    fit : Recalibration
    tolerance : over the bins of the table
    n_fitted : parameters that were fitted to the same table

    Source
    ------
    Hosmer–Lemeshow statistic with one degree of freedom per bin, less the fitted parameters.
    """
    filled = table.weight > 0
    band = tolerance or Tolerance.within(0.0, table.n_bins)
    weight, rate = table.weight[filled], fit(table.mean_confidence[filled])
    gap = table.correct[filled] / weight - rate
    beyond = np.maximum(gap - np.maximum(band.upper[filled], 0.0), 0.0)
    beyond += np.minimum(gap - np.minimum(band.lower[filled], 0.0), 0.0)
    statistic = float((weight * beyond**2 / (rate * (1.0 - rate))).sum())
    freedom = int(filled.sum()) - n_fitted
    return float(scipy.special.chdtrc(freedom, statistic)) if freedom > 0 else 1.0


def _did_not_last(since_change: UnitTable, later: UnitTable, log_evidence: float) -> bool:
    """Return whether the later labels are 20 times as likely under the predictions as sent as under the change."""
    changed = recalibration(since_change)
    if changed is None or not later.n_units or log_evidence >= 0.0:
        return False
    as_sent = Recalibration(0.0, 1.0, (0.0, 0.0), 0.0)
    return _log_likelihood(later, as_sent) - _log_likelihood(later, changed) >= CONFIRMED


def _log_likelihood(table: UnitTable, fit: Recalibration) -> float:
    filled = table.weight > 0
    rate = fit(table.mean_confidence[filled])
    weight, correct = table.weight[filled], table.correct[filled]
    parts = scipy.special.xlogy(correct, rate) + scipy.special.xlogy(weight - correct, 1.0 - rate)
    return float(parts.sum())


def _log_evidence(later: UnitTable, tolerance: Tolerance | None) -> float:
    """Return the log evidence of all bets on the cohorts after the alarm, 0 without any."""
    if not later.n_units:
        return 0.0
    band = tolerance or Tolerance.within(0.0, later.n_bins)
    bets = bets_of(later.n_bins)
    gain = log_bets(later.weight, later.confidence, later.correct, bets, band)
    return float(log_mixture(gain, bets))


def _not_confirmed(chosen: ModelUpdate, n_later: float, needed: int) -> str:
    counted = f"{n_later:,.0f} of at least {needed:,} labelled units"
    if n_later >= needed:
        counted = f"their {n_later:,.0f} labelled units are not enough evidence of a change"
    return (
        f"Collect labels of the cohorts after the alarm ({counted}): the cohorts since the change suggest the update "
        f"`{chosen.action}`, but their start was chosen from the same data."
    )


def _which_way(parameters: dict[str, float]) -> list[str]:
    """Describe the parameters of an update in words."""
    found = []
    if "temperature" in parameters:
        return [f"It is {parameters['temperature']:.2f}."]
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


def _flexible(table: UnitTable) -> ModelUpdate:
    """Return the free curve: one parameter per filled bin."""
    return ModelUpdate("flexible", int((table.weight > 0).sum()), None, 1.0, 1.0)


def _fit(action: str, table: UnitTable) -> Recalibration | None:
    """Fit an update: intercept, temperature, or both."""
    return recalibration(table, intercept=action != "temperature", slope=action != "intercept")


def _p(gain: float, freedom: int) -> float:
    """Return the p-value of a gain in log-likelihood for a number of additional parameters."""
    return float(scipy.special.chdtrc(freedom, 2.0 * max(gain, 0.0))) if freedom > 0 else 1.0


def _parameters(fit: Recalibration) -> dict[str, float]:
    return {"intercept": fit.intercept, "slope": fit.slope}
