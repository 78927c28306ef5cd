"""uncertainty-calibration: `get_ece`, `get_ece_em` and the debiased `lower_bound_scaling_ce`.

Bins are (a, b]. Those of equal mass are cut midway between neighbouring parts of `numpy.array_split`; equal cuts merge.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from calibrant.peers.peer import Floats, Peer, PeerValue, ScoredRows

WIDTH = "No difference is expected: both cut bins (a, b] at i/B."
MASS = (
    "uncertainty-calibration never splits tied scores and merges equal cuts; ours follows counts."
)
DEBIASED = (
    "uncertainty-calibration uses bins of equal mass and floors the debiased mean of squares at 0; "
    "ours uses the bins of the query."
)
MARGINAL = (
    "uncertainty-calibration takes the root of the mean square over classes of debiased errors; "
    "ours is the mean over classes of plain errors."
)


def compute(rows: ScoredRows, bins: int) -> dict[str, PeerValue]:
    """Return the ECE of both binnings and the debiased errors."""
    width = np.arange(1, bins + 1) / bins
    values = {
        "get_ece": PeerValue(_plain(rows.score, rows.outcome, width), "ece", WIDTH),
        "get_ece_em": PeerValue(
            _plain(rows.score, rows.outcome, equal_mass(rows.score, bins)), "adaptive_ece", MASS
        ),
        "lower_bound_scaling_ce": PeerValue(
            _debiased(rows.score, rows.outcome, bins) ** 0.5, "debiased_ece", DEBIASED
        ),
    }
    if not rows.one_class:
        columns = zip(rows.probabilities.T, rows.one_hot.T, strict=True)
        squares = [_debiased(score, outcome, bins) for score, outcome in columns]
        values["lower_bound_scaling_ce(mode='marginal')"] = PeerValue(
            float(np.mean(squares)) ** 0.5, "classwise_ece", MARGINAL
        )
    return values


def equal_mass(score: Floats, bins: int) -> Floats:
    """Return the upper edges of `get_equal_bins`."""
    parts = np.array_split(np.sort(score), min(bins, len(score)))
    cuts = [(low[-1] + high[0]) / 2.0 for low, high in pairwise(parts)]
    return np.unique([*cuts, 1.0])


def _sums(score: Floats, outcome: Floats, upper: Floats) -> tuple[Floats, Floats, Floats]:
    """Return count, mean gap and mean outcome of the bins; 0 if empty."""
    index = np.searchsorted(upper, score)
    count = np.bincount(index, minlength=len(upper)).astype(np.float64)
    some = np.maximum(count, 1.0)
    rate = np.bincount(index, outcome, len(upper)) / some
    return count, np.bincount(index, score, len(upper)) / some - rate, rate


def _plain(score: Floats, outcome: Floats, upper: Floats) -> float:
    count, gap, _ = _sums(score, outcome, upper)
    return float(count @ np.abs(gap) / count.sum())


def _debiased(score: Floats, outcome: Floats, bins: int) -> float:
    """Return the mean square less its noise, at least 0; bins of one row count 0."""
    count, gap, rate = _sums(score, outcome, equal_mass(score, bins))
    square = gap**2 - rate * (1.0 - rate) / np.maximum(count - 1.0, 1.0)
    return max(float(count @ np.where(count < 2, 0.0, square) / count.sum()), 0.0)


PEER = Peer("uncertainty-calibration", "0.1.4", compute)
