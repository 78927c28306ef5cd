"""What to do about scores that are no probabilities, by what they look like."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LOGITS = " If these are logits, pass them as logits."
PERCENT = " If these are percentages, divide them by 100."
PERCENT_OR_LOGITS = (
    " If these are percentages, divide them by 100; if they are logits, pass them as logits."
)
MULTI_LABEL = (
    " If the columns are independent labels (multi-label), pass task=multilabel: each column is then the probability of its label. "
    "To divide each row by its sum, pass normalize=true."
)
NORMALIZE = " To divide each row by its sum, pass normalize=true."
COUNTS = " If these are numbers of ratings, pass them as label_counts; otherwise divide each row by its sum."
MASKED_LOGITS = " For a class that is impossible, use a logit of -1e9."
SHAPES = (
    " expected rows of numbers, one per class, (n, n_classes), or one probability per row, (n,)."
)
IMAGES = " Move the axis of the classes last and join the others: np.moveaxis(p, 1, -1).reshape(-1, n_classes). Average repeated passes first."
# By so much no rounding raises a sum above 1.
_FAR = 0.1


def of_range(scores: NDArray[np.float64]) -> str:
    """Return the advice for finite scores of which some are outside [0, 1]."""
    if scores.min() < 0.0 or scores.max() > 100.0:
        return LOGITS
    if scores.shape[1] == 1:
        return PERCENT_OR_LOGITS
    sums = scores.sum(axis=1)
    return PERCENT if np.median(np.abs(sums - 100.0)) <= scores.shape[1] else LOGITS


def of_sum(sums: NDArray[np.float64]) -> str:
    """Return the advice for rows in [0, 1] whose sums are not 1."""
    return MULTI_LABEL if (sums > 1.0 + _FAR).any() else NORMALIZE
