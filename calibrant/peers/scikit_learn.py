"""scikit-learn: the mean absolute gap of `calibration_curve`, `brier_score_loss` and `log_loss`.

`calibration_curve` returns the non-empty bins without their counts, so a mean of its gaps is unweighted.
"""

from __future__ import annotations

import numpy as np

from calibrant.peers.peer import Floats, Peer, PeerValue, ScoredRows

EPSILON = float(np.finfo(np.float64).eps)
UNIFORM = (
    "calibration_curve cuts at the edges of linspace and ours at i/B; both average non-empty bins."
)
QUANTILE = (
    "calibration_curve cuts at interpolated quantiles and returns no counts, so bins of unequal "
    "counts have equal weight; ours weights by count."
)
BRIER = "scikit-learn scores one class of two, half the sum over both; ours sums over classes."
SUM = "No difference is expected: both sum over classes."
LOG = "scikit-learn clips probabilities to [2.2e-16, 1 - 2.2e-16]; ours clips none."


def compute(rows: ScoredRows, bins: int) -> dict[str, PeerValue]:
    """Return both curves' mean gaps, and both proper scores."""
    width = np.linspace(0.0, 1.0, bins + 1)
    mass = np.percentile(rows.score, width * 100)
    clipped = np.clip(rows.probabilities, EPSILON, 1.0 - EPSILON)
    log_loss = -np.log(clipped[np.arange(len(clipped)), rows.labels]).mean()
    two = rows.probabilities.shape[1] == 2
    squares = ((rows.probabilities - rows.one_hot) ** 2).sum(axis=1).mean()
    return {
        "calibration_curve(strategy='uniform')": PeerValue(_mean_gap(rows, width), "ace", UNIFORM),
        "calibration_curve(strategy='quantile')": PeerValue(
            _mean_gap(rows, mass), "adaptive_ece", QUANTILE
        ),
        "brier_score_loss": PeerValue(
            float(squares / 2 if two else squares), "brier", BRIER if two else SUM
        ),
        "log_loss": PeerValue(float(log_loss), "nll", LOG),
    }


def _mean_gap(rows: ScoredRows, edges: Floats) -> float:
    """Return the mean of |prob_true - prob_pred| over non-empty bins."""
    index = np.searchsorted(edges[1:-1], rows.score)
    count = np.bincount(index)
    difference = np.bincount(index, rows.outcome) - np.bincount(index, rows.score)
    return float(np.mean(np.abs(difference[count > 0]) / count[count > 0]))


PEER = Peer("scikit-learn", "1.9.1", compute)
