"""Size of an effect, from a unit-weighted table: intercept, slope and temperature, and the gap of each bin.

Errors assume that a unit's contributions are fully dependent, the conservative case. They are exact if each unit
contributes once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.documents import Row
from calibrant.drift.unit_tables import UnitTable
from calibrant.inference.reliability_table import wilson

Floats = NDArray[np.float64]
# Mean scores closer to 0 or 1 than this are moved to this distance: the log-odds of 1 is infinite.
NEAREST_TO_CERTAIN = 1e-4
_STEPS, _MAX_STEP, _CLOSE, _FARTHEST = 100, 1.0, 1e-10, 12.0


@dataclass(frozen=True)
class Recalibration:
    """logit E[label] = intercept + slope · logit(score); calibrated at 0 and 1.

    Attributes
    ----------
    intercept, slope : the fit
    errors : standard errors of the two, 0 for a fixed one
    log_likelihood : unit-weighted, in nats
    """

    intercept: float
    slope: float
    errors: tuple[float, float]
    log_likelihood: float

    def __call__(self, score: Floats) -> Floats:
        """Recalibrated scores."""
        return np.asarray(scipy.special.expit(self.intercept + self.slope * log_odds(score)))


def log_odds(score: Floats) -> Floats:
    """Return log-odds of scores; scores within 1e-4 of 0 and 1 are moved to that distance."""
    return np.asarray(
        scipy.special.logit(np.clip(score, NEAREST_TO_CERTAIN, 1.0 - NEAREST_TO_CERTAIN))
    )


def recalibration(
    table: UnitTable, intercept: bool = True, slope: bool = True
) -> Recalibration | None:
    """Fit by maximum likelihood to the mean scores of the bins.

    Parameters
    ----------
    table : UnitTable
    intercept, slope : whether each is fitted; otherwise fixed at 0 and 1

    Returns
    -------
    Recalibration, or None if the data allow none (no units, equal labels, scores in one bin).

    Source
    ------
    Cox (1958); calibration intercept and slope of Van Calster et al. (BMC Medicine 2019).
    """
    filled = table.weight > 0
    x = log_odds(table.mean_confidence[filled])
    weight, correct = table.weight[filled], table.correct[filled]
    design = np.stack([np.ones(len(x)), x])[[intercept, slope]]
    value = np.zeros(len(design))
    information = np.zeros((len(design), len(design)))
    for _ in range(_STEPS):
        rate = scipy.special.expit(x + value @ design)
        information = (design * (weight * rate * (1.0 - rate))) @ design.T
        if len(x) < len(design) or np.linalg.cond(information) > 1e12:
            return None
        step = np.linalg.solve(information, design @ (correct - weight * rate))
        value = value + step * min(1.0, _MAX_STEP / np.abs(step).max(initial=_CLOSE))
        if np.abs(value).max(initial=0.0) > _FARTHEST:
            return None
        if np.abs(step).max(initial=0.0) < _CLOSE:
            break
    eta = x + value @ design
    likelihood = float((correct * eta - weight * np.logaddexp(0.0, eta)).sum())
    fitted, errors = np.zeros(2), np.zeros(2)
    fitted[[intercept, slope]] = value
    errors[[intercept, slope]] = np.sqrt(np.diag(np.linalg.inv(information)))
    return Recalibration(
        float(fitted[0]), 1.0 + float(fitted[1]), (float(errors[0]), float(errors[1])), likelihood
    )


def saturated_log_likelihood(table: UnitTable) -> float:
    """Return the log-likelihood of a separate rate for each bin, in nats."""
    filled = table.weight > 0
    weight, correct = (
        table.weight[filled],
        np.clip(table.correct[filled], 0.0, table.weight[filled]),
    )
    rate = correct / weight
    return float(
        (
            scipy.special.xlogy(correct, rate) + scipy.special.xlogy(weight - correct, 1.0 - rate)
        ).sum()
    )


def bin_rows(table: UnitTable, ci: float = 0.95) -> list[Row]:
    """Return each bin with its gap and the interval of its accuracy (Wilson, for independent units).

    Parameters
    ----------
    table : UnitTable
    ci : level of each bin's interval
    """
    rate = np.divide(
        table.correct, table.weight, out=np.zeros(table.n_bins), where=table.weight > 0
    )
    low, high = wilson(np.clip(rate, 0.0, 1.0), table.weight, ci)
    rows: list[Row] = []
    for k, mean in enumerate(table.mean_confidence):
        here = bool(table.weight[k] > 0)
        gap = float(table.gap[k])
        rows.append(
            {
                "lower": k / table.n_bins,
                "upper": (k + 1) / table.n_bins,
                "n_units": float(table.weight[k]),
                "mean_confidence": float(mean) if here else None,
                "accuracy": float(mean) + gap if here else None,
                "gap": gap if here else None,
                "gap_interval": [float(low[k] - mean), float(high[k] - mean)] if here else None,
            }
        )
    return rows


def temperature_of(table: UnitTable) -> float | None:
    """Return the divisor of the score's log-odds that fits a table best; None if none can be fitted.

    Of a score of two classes it is the temperature. Of a top label it is an approximation: the log-odds of a top label have no
    slope of 1 / T.
    """
    fit = recalibration(table, intercept=False)
    return 1.0 / fit.slope if fit is not None and fit.slope > 0.0 else None
