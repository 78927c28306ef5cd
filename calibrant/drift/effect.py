"""Size of an effect, from a unit-weighted table: intercept, slope and temperature, and the gap of each bin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from calibrant.calibrators.cell_fits import log_odds, logistic
from calibrant.calibrators.logistic import LogisticLoss
from calibrant.calibrators.solver import minimise
from calibrant.core.arrays import Floats, ratio
from calibrant.core.documents import Row
from calibrant.drift.unit_tables import UnitTable
from calibrant.inference.reliability_table import wilson

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


def recalibration(
    table: UnitTable, intercept: bool = True, slope: bool = True
) -> Recalibration | None:
    """Fit by maximum likelihood to the mean scores of the bins.

    Parameters
    ----------
    intercept, slope : whether each is fitted; otherwise fixed at 0 and 1

    Returns
    -------
    Recalibration, or None if the data allow none (no units, equal labels, scores in one bin).

    Source
    ------
    Cox (1958); calibration intercept and slope of Van Calster et al. (BMC Medicine 2019).
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


def bin_rows(table: UnitTable, ci: float = 0.95) -> list[Row]:
    """Return each bin with its gap and the interval of its accuracy (Wilson, for independent units)."""
    rate = np.clip(ratio(table.correct, table.weight), 0.0, 1.0)
    low, high = wilson(rate, table.weight, ci)
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
