"""The same numbers from raw rows by independent code: numpy and scipy only.

Each rating is a sample (`raters=pooled`); bins are (a, b].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

Floats = NDArray[np.float64]


def votes_of(ratings: list[list[int]], n_classes: int) -> Floats:
    """Count ratings by prediction and class."""
    return np.array([np.bincount(each, minlength=n_classes) for each in ratings], dtype=np.float64)


def raw_metrics(probabilities: Floats, votes: Floats, bins: int = 15) -> dict[str, float]:
    """Compute the metrics that a few lines can compute."""
    n_ratings = votes.sum(axis=1)
    total = n_ratings.sum()
    top = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    correct = votes[np.arange(len(votes)), top]
    cell = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
    weight = np.bincount(cell, n_ratings, bins)
    gap = np.abs(np.bincount(cell, correct - n_ratings * confidence, bins))
    squares = (probabilities**2).sum(axis=1, keepdims=True) - 2 * probabilities + 1
    return {
        "ece": float(gap.sum() / total),
        "mce": float((gap[weight > 0] / weight[weight > 0]).max()),
        "brier": float((votes * squares).sum() / total),
        "nll": float(-(votes * np.log(probabilities)).sum() / total),
        "accuracy": float(correct.sum() / total),
    }


def raw_temperature(probabilities: Floats, votes: Floats) -> float:
    """Minimise the negative log-likelihood over temperatures on all rows."""
    logits = np.log(probabilities)
    n_ratings = votes.sum(axis=1)

    def nll(log_inverse: float) -> float:
        scaled = np.exp(log_inverse) * logits
        return float((n_ratings * logsumexp(scaled, axis=1)).sum() - (votes * scaled).sum())

    found = minimize_scalar(nll, bounds=(-3.4, 3.4), method="bounded", options={"xatol": 1e-10})
    return float(np.exp(-found.x))
