"""netcal: `ECE`, `ACE` and `MCE`, of bins of equal width or of equal mass.

Scores are clipped to [eps, 1 - eps]. Bins are [a, b) with the edges of `numpy.linspace` or `numpy.quantile`.
"""

from __future__ import annotations

import numpy as np

from calibrant.peers.peer import Floats, Peer, PeerValue, ScoredRows

EPSILON = float(np.finfo(np.float64).eps)
WIDTH = "netcal uses bins [a, b) with the edges of linspace, ours are (a, b] with edges i/B."
MASS = "netcal cuts at interpolated quantiles, ours fills bins of equal counts in the order of the scores."
AVERAGE = (
    "netcal cuts bins [a, b) where ours are (a, b]; both divide by the number of non-empty bins."
)


def compute(rows: ScoredRows, bins: int) -> dict[str, PeerValue]:
    """Return ECE, ACE and MCE, and the ECE of equal mass."""
    score = np.clip(rows.score, EPSILON, 1.0 - EPSILON)
    gap, count = _bins(score, rows.outcome, np.linspace(0.0, 1.0, bins + 1))
    ece = float((gap * count).sum() / count.sum())
    return {
        "ECE": PeerValue(ece, "ece", WIDTH),
        "ACE": PeerValue(float(gap.sum() / np.count_nonzero(count)), "ace", AVERAGE),
        "MCE": PeerValue(float(gap.max()), "mce", WIDTH),
        "ECE(equal_intervals=False)": _equal_mass(score, rows.outcome, bins),
    }


def _equal_mass(score: Floats, outcome: Floats, bins: int) -> PeerValue:
    edges = np.quantile(score, np.linspace(0.0, 1.0, bins + 1))
    edges[0], edges[-1] = 0.0, 1.0
    if (np.diff(edges) <= 0.0).any():
        return PeerValue(None, "adaptive_ece", MASS, "tied_edges")
    gap, count = _bins(score, outcome, edges)
    return PeerValue(float((gap * count).sum() / count.sum()), "adaptive_ece", MASS)


def _bins(score: Floats, outcome: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """Return the absolute gap of every bin, 0 if empty, and its count."""
    index = np.searchsorted(edges, score, "right") - 1
    n = len(edges) - 1
    count = np.bincount(index, minlength=n).astype(np.float64)
    difference = np.bincount(index, outcome, n) - np.bincount(index, score, n)
    return np.abs(difference) / np.maximum(count, 1.0), count


PEER = Peer("netcal", "1.4.0", compute)
