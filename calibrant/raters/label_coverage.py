"""Label coverage: the number of labelled predictions, their scores, and the delays of labels.

If labels are missing at some scores more than at others, labelling may have been selective, and results of the
labelled ones may not hold for the rest (verification bias). The gradient is the change of the labelled share over
the range of the score.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from calibrant.accumulators.delays import RELATIVE_ERROR, Delays
from calibrant.accumulators.units import UNIT_BINS
from calibrant.core.arrays import Ints, ratio
from calibrant.core.documents import Result
from calibrant.core.pane import Pane

PARTS = ("units", "delays")
BINS = 15
QUANTILES = {"median_s": 0.5, "q90_s": 0.9, "q99_s": 0.99}


def coverage(pane: Pane, bins: int = BINS, ci: float = 0.95) -> Result:
    """Return the share of predictions with a label, overall and by equal bins of the score, its gradient, and delays of labels.

    Parameters
    ----------
    pane : Pane with the accumulators of `PARTS`
    bins : a divisor of 60
    ci : level of the gradient's interval
    """
    reported = label_coverage(pane, bins)
    return {
        "coverage": reported["labelled"],
        "n_predictions": reported["n_predictions"],
        "n_labelled": reported["n_labelled"],
        "by_bin": reported["by_bin"],
        "gradient": gradient(pane, ci),
        "delay": _delays(pane),
    }


def label_counts(pane: Pane, bins: int = BINS) -> Ints:
    """Return predictions and labelled predictions by bin of the score, int64 (2, bins)."""
    counts = pane["units"].blocks["bins"].counts
    return np.asarray(counts.reshape(2, bins, UNIT_BINS // bins).sum(axis=2))


def label_coverage(pane: Pane, bins: int = BINS) -> Result:
    """Return the share of predictions that have a label, overall and by bin; None without predictions.

    A share that increases or decreases with the score indicates that outcomes are checked selectively.
    """
    return coverage_of(label_counts(pane, bins))


def coverage_of(counts: Ints) -> Result:
    """Like `label_coverage`, from the result of `label_counts`."""
    predictions, labelled = counts
    by_bin = [float(n / m) if m else None for n, m in zip(labelled, predictions, strict=True)]
    n, m = int(labelled.sum()), int(predictions.sum())
    return {"n_predictions": m, "n_labelled": n, "labelled": n / m if m else None, "by_bin": by_bin}


def gradient(pane: Pane, ci: float = 0.95) -> Result:
    """Fit the slope of the labelled share in the score by least squares over 60 bins, weighted by their predictions.

    Returns
    -------
    dict with `slope` (the change of the share from score 0 to score 1), its `interval` and `p_value`; None if all
    predictions are in one bin, 0 if every bin has the same share. The variance is that of independent
    predictions.
    """
    predictions, labelled = pane["units"].blocks["bins"].counts.astype(np.float64)
    total = predictions.sum()
    nothing = {"slope": None, "interval": None, "p_value": None}
    if not total:
        return nothing
    score = (np.arange(UNIT_BINS) + 0.5) / UNIT_BINS
    centred = score - (predictions * score).sum() / total
    spread = float((predictions * centred**2).sum())
    if not spread:
        return nothing
    # Residual of a constant share; one within the rounding error of its terms counts as none.
    terms = (labelled - predictions * (labelled.sum() / total)) * centred
    rounding = UNIT_BINS * np.finfo(np.float64).eps * float((labelled * np.abs(centred)).sum())
    slope = float(terms.sum() / spread) if abs(terms.sum()) > rounding else 0.0
    share = ratio(labelled, predictions)
    # More labelled predictions than predictions: part of a difference of panes. Such a bin has no variance.
    share = np.clip(share, 0.0, 1.0)
    variance = float((predictions * share * (1.0 - share) * centred**2).sum()) / spread**2
    reach = float(scipy.special.ndtri(0.5 + ci / 2.0)) * variance**0.5
    p_value = float(2.0 * scipy.special.ndtr(-abs(slope) / variance**0.5)) if variance else None
    return {"slope": slope, "interval": [slope - reach, slope + reach], "p_value": p_value}


def _delays(pane: Pane) -> Result:
    delays = pane["delays"]
    assert isinstance(delays, Delays)
    found: Result = {name: delays.quantile(share) for name, share in QUANTILES.items()}
    return {"n": delays.n, **found, "relative_error": RELATIVE_ERROR}


FALL = 0.2  # of the labelled share
_LAST, _EARLIER = 3, 7  # cohorts


def fall_of_coverage(cohorts: Sequence[tuple[int, float]]) -> tuple[float, float, int] | None:
    """Return the labelled share of earlier cohorts, at least 7, of the last 3 and their start, if it fell by 20 points.

    cohorts : start and labelled share of each

    >>> shares = [(day, 0.875) for day in range(10)]
    >>> fall_of_coverage(shares), fall_of_coverage([*shares, (10, 0.5), (11, 0.5), (12, 0.5)])
    (None, (0.875, 0.5, 10))
    """
    earlier, last = ([share for _, share in each] for each in (cohorts[:-_LAST], cohorts[-_LAST:]))
    if len(earlier) < _EARLIER:
        return None
    before, now = sum(earlier) / len(earlier), sum(last) / len(last)
    return (before, now, cohorts[-_LAST][0]) if before - now >= FALL else None
