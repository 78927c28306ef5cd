"""Common functions of maps fitted to cells: log odds and their inverse, and the reason why no curve can be fitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells

CLIP = 1e-12


def log_odds(score: Floats, clip: float = CLIP) -> Floats:
    """Return ln p - ln(1 - p) of scores clipped to [clip, 1 - clip]."""
    clipped = np.clip(score, clip, 1.0 - clip)
    return np.asarray(np.log(clipped) - np.log1p(-clipped))


def logistic(value: Floats) -> Floats:
    """Return 1 / (1 + exp(-value)), exact in both tails."""
    small = np.exp(-np.abs(value))
    return np.asarray(np.where(value >= 0, 1.0, small) / (1.0 + small))


def probabilities_of(logits: Floats) -> Floats:
    """Return the softmax of rows; minus infinity is allowed."""
    power = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def polygon_at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Interpolate linearly between the points of a map, constant outside."""
    return np.asarray(np.interp(score, parameters["x"], parameters["y"]))


def filled(cells: Cells) -> Cells:
    """Return the cells with weight."""
    return cells.select(cells.weight > 0.0)


def why_no_fit(cells: Cells) -> str | None:
    """Return the reason why no curve can be fitted to these cells; None if one can."""
    weight, correct = float(cells.weight.sum()), float(cells.correct.sum())
    if not weight > 0.0:
        return "no_labels"
    if correct <= 1e-12 * weight or correct >= weight * (1.0 - 1e-12):
        return "one_class"
    return None
