"""MONAI: `CalibrationErrorMetric`, each class against the rest, the rows as one image.

With its default `right=False`, bins are (a, b]. The last edge is 1 + 1.2e-7; scores and sums are float32.
"""

from __future__ import annotations

import numpy as np

from calibrant.peers.peer import Peer, PeerValue, ScoredRows
from calibrant.peers.torchmetrics import linspace

END = np.float32(1.0) + np.finfo(np.float32).eps
WHY = "MONAI rounds scores and sums to float32, with edges up to 1 + 1.2e-7, and averages over classes"
EACH = WHY + "."
LARGEST = WHY + "; ours is the largest gap of the scope's score, not a mean of classes."
NARROW = WHY + "; ours averages the bins of the scope's score."


def compute(rows: ScoredRows, bins: int) -> dict[str, PeerValue]:
    """Return the three reductions: expected, average and maximum."""
    if rows.one_class:
        columns, outcomes = rows.score[:, None], rows.outcome[:, None]
    else:
        columns, outcomes = rows.probabilities, rows.one_hot
    found = [
        _reductions(score, outcome, bins)
        for score, outcome in zip(
            columns.T.astype(np.float32), outcomes.T.astype(np.float32), strict=True
        )
    ]
    expected, average, maximum = np.array(found, np.float32).mean(axis=0).tolist()
    described = {
        "expected": (expected, "ece" if rows.one_class else "classwise_ece", EACH),
        "average": (average, "ace", EACH if rows.one_class else NARROW),
        "maximum": (maximum, "mce", EACH if rows.one_class else LARGEST),
    }
    return {
        f"CalibrationErrorMetric(calibration_reduction='{name}')": PeerValue(
            float(value), metric, why
        )
        for name, (value, metric, why) in described.items()
    }


def _reductions(
    score: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    outcome: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    bins: int,
) -> tuple[np.float32, np.float32, np.float32]:
    """Return the mean gap by rows, the mean over non-empty bins and the largest."""
    index = np.minimum(np.searchsorted(linspace(END, bins, np.float32)[1:], score), bins - 1)
    count, confidence, positive = (np.zeros(bins, np.float32) for _ in range(3))
    np.add.at(count, index, np.float32(1))
    np.add.at(confidence, index, score)
    np.add.at(positive, index, outcome)
    some = count > 0
    gap = np.abs(confidence[some] / count[some] - positive[some] / count[some])
    return (gap * count[some]).sum() / count.sum(), gap.mean(), gap.max()


PEER = Peer("monai", "1.6.1", compute)
