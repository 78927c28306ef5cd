"""The two other terms of segmentation training losses: soft Dice and cross-entropy of one image, with their gradients.

    dice = (1 / C) Σ_c (1 - (2 Σ_i p_ic y_ic + s) / (Σ_i p_ic + Σ_i y_ic + s)),  s = 1e-5
    cross-entropy = -(1 / n) Σ_i Σ_c y_ic log p_ic

Both include background. `s` keeps a class that is neither predicted nor present at a loss of 0.

Source
------
Barfoot et al., Average Calibration Losses, whose baseline is their sum; Milletari et al. (3DV 2016) for soft Dice.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.segmentation.training_loss import LossValue, checked_pixels, checked_weights

SMOOTHING = 1e-5


def dice_loss(probabilities: Floats, labels: Floats, *, weights: Floats | None = None) -> LossValue:
    """Return the soft Dice loss of one image and its gradient by the probabilities.

    Parameters
    ----------
    probabilities : float (n, n_classes), in [0, 1]
    labels : (n, n_classes), one-hot or shares of raters, in [0, 1]
    weights : float (n,), at least 0. Default: 1.

    Returns
    -------
    LossValue; value nan without pixels.

    Raises
    ------
    CalibrationInputError
        Shapes that differ, or a value outside [0, 1].

    Examples
    --------
    >>> round(dice_loss(np.array([[0.2, 0.8]]), np.array([[0.0, 1.0]])).value, 4)
    0.5555
    """
    scores, shares = checked_pixels(probabilities, labels)
    factors = checked_weights(weights, len(scores))[:, None]
    if not factors.any():
        return _nothing(scores)
    over = 2.0 * (factors * scores * shares).sum(axis=0) + SMOOTHING
    under = (factors * scores).sum(axis=0) + (factors * shares).sum(axis=0) + SMOOTHING
    by_class = 1.0 - over / under
    gradient = factors * (over / under**2 - 2.0 * shares / under) / scores.shape[1]
    return LossValue(float(by_class.mean()), gradient, by_class)


def cross_entropy_loss(
    probabilities: Floats,
    labels: Floats,
    *,
    weights: Floats | None = None,
    log_probabilities: Floats | None = None,
) -> LossValue:
    """Return the cross-entropy of one image and its gradient by the probabilities.

    Parameters
    ----------
    probabilities : float (n, n_classes), in [0, 1]
    labels : (n, n_classes), one-hot or shares of raters, in [0, 1]
    weights : float (n,), at least 0. Default: 1.
    log_probabilities : float (n, n_classes), of logits without rounding to 0. Default: log of the probabilities.

    Returns
    -------
    LossValue; value nan without pixels, and inf with an infinite gradient where a rated class has probability 0.

    Raises
    ------
    CalibrationInputError
        Shapes that differ, or a value outside [0, 1].

    Examples
    --------
    >>> round(cross_entropy_loss(np.array([[0.2, 0.8]]), np.array([[0.0, 1.0]])).value, 4)
    0.2231
    """
    scores, shares = checked_pixels(probabilities, labels)
    factors = checked_weights(weights, len(scores))
    if not factors.any():
        return _nothing(scores)
    used = (shares > 0) & (factors[:, None] > 0)
    with np.errstate(divide="ignore"):
        logs = np.log(scores) if log_probabilities is None else np.asarray(log_probabilities)
        share_by_score = np.divide(shares, scores, out=np.zeros(scores.shape), where=used)
    weight = (factors / factors.sum())[:, None]
    terms = np.where(used, -weight * shares * np.where(used, logs, 0.0), 0.0)
    by_class = terms.sum(axis=0)
    return LossValue(float(by_class.sum()), -weight * share_by_score, by_class)


def _nothing(scores: Floats) -> LossValue:
    return LossValue(float("nan"), np.zeros(scores.shape), np.zeros(scores.shape[1]))
