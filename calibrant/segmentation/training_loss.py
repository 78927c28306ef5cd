"""Marginal L1 average calibration error as a training loss: its value and gradient for one image.

    loss = (1 / C) Σ_c 1[class c present] ACE_c,   ACE_c = (1 / M') Σ_m |o_m - e_m| over the M' bins that are not empty
    ∂ loss / ∂ x_i = (1 / (C M')) Σ_m sign(e_m - o_m) [ψ'_m(x_i)(x_i - e_m) + ψ_m(x_i) - ψ'_m(x_i)(Y_i - o_m)] / W_m

With hard membership ψ is constant between edges and ψ' is 0; with soft membership ψ is the triangle of `case_bins`.
A class that does not occur in the image contributes 0 and is counted in the divisor C, as in the published code.

Source
------
Barfoot et al., Average Calibration Losses, hL1-ACE and sL1-ACE.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.errors import CalibrationInputError, check_one_of
from calibrant.core.grid import Edges, equal_width_bin
from calibrant.segmentation.case_bins import MEMBERSHIPS, SOFT_EMPTY, soft_place


@dataclass(frozen=True)
class LossValue:
    """A loss with its gradient.

    Attributes
    ----------
    value : float in [0, 1]
    gradient : float64, shape of the probabilities, derivative of `value` by each of them
    by_class : float64 (n_classes,), ACE of each class, 0 if the class was masked
    """

    value: float
    gradient: Floats
    by_class: Floats


def l1_ace_loss(
    probabilities: Floats,
    labels: Floats,
    bins: int = 20,
    *,
    membership: str = "soft",
    edges: Edges = "right",
    mask_missing: bool = True,
    weights: Floats | None = None,
) -> LossValue:
    """Return the loss of one image and its gradient by the probabilities.

    Parameters
    ----------
    probabilities : float (n, n_classes), in [0, 1]
    labels : (n, n_classes), one-hot or shares of raters, in [0, 1]
    bins : at least 1
    membership : "hard" or "soft"
    edges : for hard bins
    mask_missing : whether classes without a label contribute 0; if not, the value is mL1-ACE with background
    weights : float (n,), at least 0, factors of the pixels' memberships. Default: 1.

    Returns
    -------
    LossValue; value nan without pixels.

    Raises
    ------
    CalibrationInputError
        Shapes that differ, a value outside [0, 1], or an option outside its range.

    Examples
    --------
    >>> loss = l1_ace_loss(np.array([[0.2, 0.8]]), np.array([[0.0, 1.0]]), 5, membership="hard")
    >>> round(loss.value, 3)
    0.1
    """
    scores, shares = checked_pixels(probabilities, labels)
    _check_options(bins, membership)
    factors = checked_weights(weights, len(scores))
    gradient, by_class = np.zeros(scores.shape), np.zeros(scores.shape[1])
    if not factors.any():
        return LossValue(float("nan"), gradient, by_class)
    for k in range(scores.shape[1]):
        if mask_missing and not shares[:, k].any():
            continue
        if membership == "soft":
            by_class[k], gradient[:, k] = _soft(scores[:, k], shares[:, k], factors, bins)
        else:
            by_class[k], gradient[:, k] = _hard(scores[:, k], shares[:, k], factors, bins, edges)
    return LossValue(float(by_class.mean()), gradient / scores.shape[1], by_class)


def _hard(
    score: Floats, share: Floats, factors: Floats, bins: int, edges: Edges
) -> tuple[float, Floats]:
    place = equal_width_bin(score, bins, edges)
    weight = np.bincount(place, factors, bins)
    filled = weight > 0
    gap = ratio(np.bincount(place, factors * (score - share), bins), weight)
    slope = ratio(np.sign(gap), weight) / filled.sum()
    return float(np.abs(gap).sum() / filled.sum()), factors * slope[place]


def _soft(score: Floats, share: Floats, factors: Floats, bins: int) -> tuple[float, Floats]:
    """Return the value and gradient; a score is in at most two triangles, with ψ' -M in the lower and M in the upper one."""
    lower, inner = soft_place(score, bins)
    upper = np.minimum(lower + 1, bins - 1)
    moving = ((inner > 0) & (lower < bins - 1)) * float(bins)

    def total(values: Floats) -> Floats:
        parts = np.bincount(lower, (1.0 - inner) * values, bins) + np.bincount(
            upper, inner * values, bins
        )
        return np.asarray(parts, np.float64)

    weight = total(factors)
    filled = weight >= SOFT_EMPTY
    n_filled = max(int(filled.sum()), 1)
    mean, rate = (
        np.divide(total(factors * v), weight, out=np.zeros(bins), where=filled)
        for v in (score, share)
    )
    gap = mean - rate
    slope = np.divide(np.sign(gap), weight, out=np.zeros(bins), where=filled) / n_filled
    gradient = np.zeros(len(score))
    for place, membership, change in ((lower, 1.0 - inner, -moving), (upper, inner, moving)):
        gradient += slope[place] * (membership + change * (score - share - gap[place]))
    return float(np.abs(gap).sum() / n_filled), factors * gradient


def checked_pixels(probabilities: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Return both as float64 (n, n_classes) in [0, 1].

    Raises
    ------
    CalibrationInputError
        Shapes that differ, or a value outside [0, 1].
    """
    scores, shares = np.asarray(probabilities, np.float64), np.asarray(labels, np.float64)
    if scores.ndim != 2 or scores.shape[1] < 1 or shares.shape != scores.shape:
        raise CalibrationInputError.at(
            "/labels",
            "shape",
            f"Received probabilities {scores.shape} and labels {shares.shape}; expected both (n, n_classes).",
        )
    for name, values in (("probabilities", scores), ("labels", shares)):
        if not ((values >= 0.0) & (values <= 1.0)).all():
            raise CalibrationInputError.at(f"/{name}", "range", f"Received {name} outside [0, 1].")
    return scores, shares


def checked_weights(weights: Floats | None, n: int) -> Floats:
    """Return the factors of n pixels, 1 by default.

    Raises
    ------
    CalibrationInputError
        Another number of them, or one that is negative or not finite.
    """
    if weights is None:
        return np.ones(n)
    factors = np.asarray(weights, np.float64)
    if factors.shape != (n,) or not (np.isfinite(factors) & (factors >= 0)).all():
        raise CalibrationInputError.at(
            "/weights",
            "range",
            f"Received other weights; expected {n} finite numbers of at least 0.",
        )
    return factors


def _check_options(bins: int, membership: str) -> None:
    if bins < 1:
        raise CalibrationInputError.at(
            "/bins", "range", f"Received bins={bins}; expected at least 1."
        )
    check_one_of("membership", membership, MEMBERSHIPS)
