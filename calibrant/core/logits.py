"""Logits relative to the largest of their row, and the limit below which a class counts as impossible.

A model that masks a class gives it the lowest number of its type. The logarithm of its probability must not be added:
one such rating would hide all others in a sum of losses, and subtracting it would not restore them.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats

# In nats below the largest logit of the row. Losses up to here leave nine decimal places of a sum in float64.
MASKED = 1e6


def relative_logits(logits: Floats, axis: int) -> Floats:
    """Return logits minus the largest of their row; minus infinity, as for a probability of 0, beyond `MASKED` nats.

    Parameters
    ----------
    logits : float64, any shape
    axis : axis of the classes

    Examples
    --------
    >>> relative_logits(np.array([[2.0, 1.0, -3e38]]), 1)
    array([[  0.,  -1., -inf]])
    """
    logit = logits - logits.max(axis=axis, keepdims=True)
    if logit.size and logit.min() < -MASKED:
        logit[logit < -MASKED] = -np.inf
    return np.asarray(logit)
