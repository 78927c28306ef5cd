"""Size of an effect in a unit-weighted table, and the recommended update of a model that changed or is off.

From simple to rich: widen or narrow the predictions (temperature) or shift them (intercept), both (slope and intercept), a
free curve (flexible). A richer one is recommended only if the data contradict the simpler one. The start of a change was
chosen from the same data, so estimates of its size are selected. Cohorts after the alarm may contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import scipy

from calibrant.calibrators.cell_fits import log_odds, logistic
from calibrant.calibrators.logistic import LogisticLoss
from calibrant.calibrators.solver import minimise
from calibrant.core.action_texts import PASSED, correction_text
from calibrant.core.actions import Advice, recommendation
from calibrant.core.arrays import Floats
from calibrant.core.documents import Extra
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.inference.certain_scores import certain_scores

MIN_UNITS = 50
UNITS_PER_PARAMETER = 20
MISFIT_P = 0.01
# How much more likely later labels are under the predictions as sent than under the change, before the change counts as over.
OVER = float(np.log(20.0))
# Mean scores closer to 0 or 1 than this are moved to this distance: the log-odds of 1 is infinite.
NEAREST_TO_CERTAIN = 1e-4
_FARTHEST = 12.0


@dataclass(frozen=True)
class Recalibration:
    """logit E[label] = intercept + slope · logit(score); calibrated at 0 and 1."""

    intercept: float = 0.0
    slope: float = 1.0

    def __call__(self, score: Floats) -> Floats:
        """Recalibrated scores."""
        return logistic(self.intercept + self.slope * log_odds(score, NEAREST_TO_CERTAIN))

    def log_likelihood(self, table: UnitTable) -> float:
        """Unit-weighted, in nats."""
        return _log_likelihood(table, self(table.mean_confidence))


AS_SENT = Recalibration()


def recalibration(
    table: UnitTable, intercept: bool = True, slope: bool = True
) -> Recalibration | None:
    """Fit by maximum likelihood to the mean scores of the bins; None without units, with equal labels or scores in one bin.

    intercept, slope : whether each is fitted; otherwise fixed at 0 and 1

    Source: Cox (1958); calibration intercept and slope of Van Calster et al. (BMC Medicine 2019).
    """
    filled = table.weight > 0
    x = log_odds(table.mean_confidence[filled], NEAREST_TO_CERTAIN)
    design = np.stack([np.ones(len(x)), x], axis=1)[:, [intercept, slope]]
    if not len(x) or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    loss = LogisticLoss(design, table.correct[filled], table.weight[filled], x)
    found = minimise(loss, np.zeros(design.shape[1]))
    if not found.converged or np.abs(found.parameters).max() > _FARTHEST:
        return None
    fitted = np.zeros(2)
    fitted[[intercept, slope]] = found.parameters
    return Recalibration(float(fitted[0]), 1.0 + float(fitted[1]))


def saturated_log_likelihood(table: UnitTable) -> float:
    """Return the log-likelihood of a separate rate for each bin, in nats."""
    return _log_likelihood(table, np.clip(table.mean_confidence + table.gap, 0.0, 1.0))


def _log_likelihood(table: UnitTable, rate: Floats) -> float:
    correct = np.clip(table.correct, 0.0, table.weight)
    ratings = scipy.special.xlogy(correct, rate) + scipy.special.xlogy(table.weight - correct, 1.0 - rate)  # fmt: skip
    return float(ratings.sum())


def temperature_of(table: UnitTable) -> float | None:
    """Return the divisor of the score's log-odds that fits a table best; None if none can be fitted.

    Of a score of two classes it is the temperature. Of a top label it is an approximation: the log-odds of a top label have no
    slope of 1 / T.
    """
    fit = recalibration(table, intercept=False)
    return 1.0 / fit.slope if fit is not None and fit.slope > 0.0 else None


@dataclass(frozen=True)
class ModelUpdate:
    """A possible update."""

    action: str  # what it is
    n_parameters: int  # number of free parameters
    parameters: dict[str, float] | None  # estimates from all cohorts since the change, None without
    p_value: float  # of what it leaves unexplained since the change
    p_later: float  # of the gaps that it leaves after the alarm, 1 without such cohorts

    @property
    def holds(self) -> bool:
        return min(self.p_value, self.p_later) >= MISFIT_P


def recommended_action(
    since_change: UnitTable,
    later: UnitTable | None = None,
    tolerance: float = 0.0,
    updates: Sequence[ModelUpdate] | None = None,
    days: str = "",
) -> Advice:
    """Return the simplest update that corrects the cohorts concerned.

    Parameters
    ----------
    since_change : UnitTable of the cohorts from the start of the change until the alarm, or of recent cohorts
    later : UnitTable of the cohorts after the alarm, None without
    tolerance : allowed gap of a bin on the later cohorts
    updates : candidates from simple to rich; those of a score of two classes if None (`cox_updates`)
    days : of the cohorts, as `period_text` names them

    Returns: `action`, `reason` and `evidence`: `update` is the simplest candidate that holds, `parameters` its estimates, `tried` all.

    Source: Vergouwe et al. (Stat Med 2017), a closed test of updates from simple to rich; Davis et al. (JAMIA 2019).
    """
    after = UnitTable.empty(since_change.n_bins) if later is None else later
    table = merged([since_change, after])
    tried = list(updates if updates is not None else cox_updates(since_change, after, tolerance))
    certain = certain_scores(table.weight, table.mean_confidence)
    flexible = ModelUpdate("flexible", int((table.weight > 0).sum()), certain, 1.0, 1.0)
    chosen = flexible if certain else next((each for each in tried if each.holds), flexible)
    needed = max(MIN_UNITS, UNITS_PER_PARAMETER * chosen.n_parameters)
    evidence: Extra = {
        "update": chosen.action,
        "parameters": chosen.parameters,
        "n_units": table.n_units,
        "n_units_later": after.n_units,
        "n_units_needed": needed,
        "tried": [asdict(each) for each in tried],
    }
    if table.n_units < needed:
        few = f"Wait for labels: an update needs {needed:,} labelled units, and there are {table.n_units:,.0f}."
        return recommendation("collect_more", few, evidence)
    if _is_over(since_change, after):
        return recommendation("none", PASSED, evidence)
    reason = correction_text(chosen.action, chosen.parameters or {}, [each.action for each in tried], days)  # fmt: skip
    return recommendation(chosen.action, reason, evidence)


def cox_updates(
    since_change: UnitTable, later: UnitTable, tolerance: float = 0.0
) -> list[ModelUpdate]:
    """Return updates of the log-odds of one score, from simple to rich, fitted to all cohorts; none if none can be fitted."""
    table = merged([since_change, later])
    both = recalibration(table)
    if both is None:
        return []
    fits = {
        "intercept": recalibration(table, slope=False),
        "temperature": recalibration(table, intercept=False),
        "slope_intercept": both,
    }
    likelihood, n_bins = both.log_likelihood(table), int((table.weight > 0).sum())
    remaining, found = saturated_log_likelihood(table) - likelihood, []
    for name, fit in fits.items():
        if fit is not None:
            n, lost = (2 if fit is both else 1), likelihood - fit.log_likelihood(table)
            p = min(_p(lost, 2 - n), _p(lost + remaining, n_bins - n))
            update = ModelUpdate(name, n, asdict(fit), p, misfit(later, fit, tolerance))
            found.append((n, lost, update))
    return [update for *_, update in sorted(found, key=lambda each: each[:2])]


def softmax_update(
    temperature: float, table: UnitTable, later: UnitTable, tolerance: float = 0.0
) -> ModelUpdate:
    """Return the softmax temperature of several classes as an update.

    Parameters
    ----------
    temperature : fitted to the rows of all cohorts since the change
    table, later : UnitTable of the scores at that temperature since the change, and after the alarm. The top label's log-odds
        have no slope of 1 / T, so that a temperature of several classes cannot be fitted to a table
    """
    return ModelUpdate(
        "temperature",
        1,
        {"temperature": temperature},
        misfit(table, AS_SENT, n_fitted=1),
        misfit(later, AS_SENT, tolerance),
    )


def misfit(
    table: UnitTable, fit: Recalibration, tolerance: float = 0.0, n_fitted: int = 0
) -> float:
    """Return the p-value of the gaps that a recalibration leaves, ignoring those within tolerance.

    n_fitted : parameters that were fitted to the same table

    Source: Hosmer–Lemeshow statistic with one degree of freedom per bin, less the fitted parameters.
    """
    filled = table.weight > 0
    weight, rate = table.weight[filled], fit(table.mean_confidence[filled])
    gap = table.correct[filled] / weight - rate
    beyond = np.maximum(np.abs(gap) - tolerance, 0.0)
    statistic = float((weight * beyond**2 / (rate * (1.0 - rate))).sum())
    freedom = int(filled.sum()) - n_fitted
    return float(scipy.special.chdtrc(freedom, statistic)) if freedom > 0 else 1.0


def _is_over(since_change: UnitTable, later: UnitTable) -> bool:
    """Return whether the later labels agree with the predictions as sent, and are 20 times as likely under them as under the change."""
    changed = recalibration(since_change)
    if changed is None or not later.n_units or misfit(later, AS_SENT) < MISFIT_P:
        return False
    return AS_SENT.log_likelihood(later) - changed.log_likelihood(later) >= OVER


def _p(gain: float, freedom: int) -> float:
    """Return the p-value of a gain in log-likelihood for a number of additional parameters."""
    return float(scipy.special.chdtrc(freedom, 2.0 * max(gain, 0.0))) if freedom > 0 else 1.0
