"""relplot: `binnedECE` and `smECE`.

The kernel of `smECE` is a reflected Gaussian on a grid that holds its end points once. The bandwidth is found by ten
bisections, and the error is a sum over 200 points.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.peers.peer import Floats, Peer, PeerValue, ScoredRows

POINTS, REFINEMENTS, MIN_BANDWIDTH, DENSITY = 200, 10, 0.001, 0.0001
BINNED = (
    "relplot uses bins [a, b) by int(p B), ours are (a, b], and puts scores of 1 into an extra bin."
)
SMOOTH = (
    "relplot finds the bandwidth by ten bisections, sums over 200 points and halves the weight of "
    "scores of exactly 0 and 1, which count in full in ours."
)


def compute(rows: ScoredRows, bins: int) -> dict[str, PeerValue]:
    """Return the binned and the smooth error."""
    residual = rows.score - rows.outcome
    index = (rows.score / (1.0 / bins)).astype(np.int64)
    binned = np.abs(np.bincount(index, residual)).sum() / len(residual)
    return {
        "binnedECE": PeerValue(float(binned), "ece", BINNED),
        "smECE": PeerValue(smooth_ece(rows.score, residual), "smooth_ece", SMOOTH),
    }


def smooth_ece(score: Floats, residual: Floats) -> float:
    """Return the smooth error at the bandwidth that about equals it."""
    low, high = 0.0, 1.0
    for _ in range(REFINEMENTS):
        middle = (low + high) / 2.0
        if middle < MIN_BANDWIDTH or middle < _at(score, residual, middle):
            low = middle
        else:
            high = middle
    return _at(score, residual, high)


def _at(score: Floats, residual: Floats, bandwidth: float) -> float:
    at = np.linspace(0.0, 1.0, max(round(10 / bandwidth), POINTS))
    density = _smoothed(score, np.ones_like(score), at, bandwidth) + DENSITY
    mean = _smoothed(score, residual, at, bandwidth) / density
    return float((np.abs(mean) * density).sum() / density.sum())


def _smoothed(score: Floats, values: Floats, at: Floats, bandwidth: float) -> Floats:
    """Return the sums of values around the points, by the kernel."""
    size = max(2000, round(20 / bandwidth)) // 2 + 1
    place = score * (size - 1)
    lower = np.clip(place.astype(np.int64), 0, size - 2)
    part = place - lower
    grid = np.bincount(lower, (1 - part) * values, size)
    grid += np.bincount(lower + 1, part * values, size)
    distance = np.linspace(0.0, 1.0, size) - 0.5
    kernel = np.exp(-(distance**2) / (2 * bandwidth**2)) / (np.sqrt(2 * np.pi) * bandwidth)
    reflected = np.concatenate([grid[::-1][:-1], grid, grid[::-1][1:]])
    smoothed = scipy.signal.fftconvolve(reflected, kernel, "valid")[size // 2 : size // 2 + size]
    return np.asarray(np.interp(at, np.linspace(0.0, 1.0, size), smoothed))


PEER = Peer("relplot", "1.0.3", compute)
