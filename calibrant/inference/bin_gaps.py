"""Bins of a reliability table whose accuracy is farther from the confidence than a tolerance and chance explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import scipy

Bin = Mapping[str, Any]
# Chance that a calibrated model has such a bin at all, shared by the bins.
LEVEL = 0.05
# Bins with fewer independent units are not tested.
MIN_BIN_UNITS = 5.0


def widest_gap(rows: Sequence[Bin], tolerance: float) -> Bin | None:
    """Return the bin with the widest gap that is certain to exceed the tolerance; None if there is none.

    The exact interval of the accuracy, at `LEVEL` divided by the number of bins, must be farther than the tolerance from the mean
    confidence. An average over all bins hides such a bin if most predictions are in others, as the background of an image is.

    Parameters
    ----------
    rows : `table` of a reliability table

    Source
    ------
    Clopper, Pearson (Biometrika 1934), with the effective number of independent units; Bonferroni over the bins.

    Examples
    --------
    >>> easy = {"mean_confidence": 0.01, "accuracy": 0.01, "n_effective": 9000.0}
    >>> high = {"mean_confidence": 0.97, "accuracy": 0.77, "n_effective": 100.0}
    >>> widest_gap([easy, high], 0.05) is high, widest_gap([easy, high | {"n_effective": 10.0}], 0.05)
    (True, None)
    """
    tested = [
        row
        for row in rows
        if row.get("mean_confidence") is not None and row.get("n_effective", 0.0) >= MIN_BIN_UNITS
    ]
    found = [row for row in tested if _is_apart(row, tolerance, LEVEL / len(tested))]
    return max(found, key=_gap, default=None)


def _gap(row: Bin) -> float:
    return abs(float(row["mean_confidence"] - row["accuracy"]))


def _is_apart(row: Bin, tolerance: float, level: float) -> bool:
    n, confidence = row["n_effective"], row["mean_confidence"]
    correct, quantile = row["accuracy"] * n, scipy.special.betaincinv
    lower = quantile(correct, n - correct + 1.0, level / 2.0) if correct > 0.0 else 0.0
    upper = quantile(correct + 1.0, n - correct, 1.0 - level / 2.0) if correct < n else 1.0
    return bool(confidence > upper + tolerance or confidence < lower - tolerance)
