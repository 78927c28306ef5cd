"""torchmetrics: `binary_calibration_error` and `multiclass_calibration_error`.

Bins are [a, b) with the edges of `torch.linspace`; a score of 1 is in an extra bin. Top-class confidences are float32.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.peers.peer import Peer, PeerValue, ScoredRows

WHY = (
    "torchmetrics uses bins [a, b), ours are (a, b], and puts scores of exactly 1 into an extra bin"
)
PRECISION = "; it also rounds confidences and sums to float32."


def linspace(end: Any, n_bins: int, kind: type[np.floating[Any]]) -> NDArray[Any]:
    """Return the edges of `torch.linspace(0, end, n_bins + 1)`: the upper half is counted down from the end.

    Each edge is rounded once, as processors do that multiply and add in one step.
    """
    step = Fraction(float(kind(end) / kind(n_bins)))
    half = (n_bins + 1) // 2
    up = [float(step * i) for i in range(half)]
    down = [float(Fraction(float(end)) - step * (n_bins - i)) for i in range(half, n_bins + 1)]
    return np.array(up + down).astype(kind)


def compute(rows: ScoredRows, bins: int) -> dict[str, PeerValue]:
    """Return the three norms."""
    kind: type[np.floating[Any]] = np.float64 if rows.one_class else np.float32
    gap, share = _bins(rows, bins, kind)
    name = "binary_calibration_error" if rows.one_class else "multiclass_calibration_error"
    why = WHY + ("." if rows.one_class else PRECISION)
    values = {
        "l1": ("ece", (gap * share).sum(dtype=kind)),
        "l2": ("rmsce", np.sqrt((gap**2 * share).sum(dtype=kind))),
        "max": ("mce", gap.max()),
    }
    return {
        f"{name}(norm='{norm}')": PeerValue(float(value), metric, why)
        for norm, (metric, value) in values.items()
    }


def _bins(
    rows: ScoredRows, bins: int, kind: type[np.floating[Any]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the absolute gap of every bin and its share of the rows."""
    score, outcome = rows.score.astype(kind), rows.outcome.astype(kind)
    index = np.searchsorted(linspace(1.0, bins, kind), score, "right") - 1
    count, confidence, correct = (np.zeros(bins + 1, kind) for _ in range(3))
    np.add.at(count, index, kind(1))
    np.add.at(confidence, index, score)
    np.add.at(correct, index, outcome)
    some = np.maximum(count, kind(1))
    return np.abs(correct / some - confidence / some), count / count.sum(dtype=kind)


PEER = Peer("torchmetrics", "1.9.0", compute)
