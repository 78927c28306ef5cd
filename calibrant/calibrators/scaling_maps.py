"""The softmax maps with the fewest parameters: a common temperature, or one intercept per class.

The recommendation compares them; the temperature also serves held-out numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.base import Floats
from calibrant.calibrators.cell_fits import CLIP
from calibrant.calibrators.from_rows import clipped
from calibrant.calibrators.linear_forms import LinearForm, linear, probabilities_of
from calibrant.core.documents import Parameters


def temperature_form(n_classes: int) -> LinearForm:
    """Return the form with one inverse temperature, shared by all classes."""
    place = np.stack([np.zeros(n_classes, np.int64), np.full(n_classes, -1)], axis=1)
    bounds = float(BETAS[0]), float(BETAS[-1])
    return LinearForm(True, place, np.zeros((n_classes, 2)), np.zeros(1), np.ones(1), bounds)


def intercept_form(n_classes: int) -> LinearForm:
    """Return the form with one intercept per class, slopes 1."""
    place = np.stack([np.full(n_classes, -1), np.arange(n_classes)], axis=1)
    fixed = np.stack([np.ones(n_classes), np.zeros(n_classes)], axis=1)
    return LinearForm(True, place, fixed, np.zeros(n_classes), np.zeros(n_classes), n_gauge=1)


def named(coefficients: Floats) -> Parameters:
    """Return slopes and intercepts by name."""
    return {
        "slopes": coefficients[:, 0].tolist(),
        "intercepts": coefficients[:, 1].tolist(),
        "clip": CLIP,
    }


def at(parameters: Mapping[str, Any], logits: Floats) -> Floats:
    """Return softmax(slopes * max(log p, log clip) + intercepts), (n, n_classes)."""
    coefficients = np.stack([parameters["slopes"], parameters["intercepts"]], axis=1)
    return probabilities_of(linear(clipped(logits, parameters["clip"]), coefficients, True))
