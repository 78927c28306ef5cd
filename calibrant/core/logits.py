"""Logits relative to the largest of their row, and where a class counts as impossible.

A model that masks a class gives it the lowest number of its type. Its logarithm of a probability is no number to add up:
one such rating would drown every other in a sum of losses, and taking it away again would not bring them back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# In nats below the largest logit of the row. Losses up to here leave nine digits after the point of a sum in float64.
MASKED = 1e6


def relative_logits(logits: Floats, axis: int) -> Floats:
    """Logits less the largest of their row; minus infinity, as for a probability of 0, where that is more than `MASKED` nats.

    Parameters
    ----------
    logits : float64, any shape
    axis : along which the classes lie

    Examples
    --------
    >>> relative_logits(np.array([[2.0, 1.0, -3e38]]), 1)
    array([[  0.,  -1., -inf]])
    """
    zed = logits - logits.max(axis=axis, keepdims=True)
    if zed.size and zed.min() < -MASKED:
        zed[zed < -MASKED] = -np.inf
    return np.asarray(zed)
