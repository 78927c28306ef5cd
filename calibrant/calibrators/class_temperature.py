"""One temperature per class: each class's log-probability divided by its own, then softmax.

In a binary model these are the temperatures of background and foreground.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.base import FitResult, Floats, MapMethod, Options
from calibrant.calibrators.cell_fits import CLIP
from calibrant.calibrators.from_rows import clipped
from calibrant.calibrators.linear_forms import LinearForm, probabilities_of
from calibrant.calibrators.rows import LabelledRows
from calibrant.calibrators.shrinkage import solve_shrunk
from calibrant.core.documents import Parameters


def form(own: NDArray[np.bool_], beta: float) -> LinearForm:
    """Return the form with inverse temperatures within the range of the common one.

    Parameters
    ----------
    own : bool (n_classes,), classes with a temperature of their own
    beta : inverse of the common temperature
    """
    n_classes, n = len(own), int(own.sum())
    place = np.full((n_classes, 2), -1)
    place[own, 0] = np.arange(n)
    fixed = np.stack([np.full(n_classes, beta), np.zeros(n_classes)], axis=1)
    centre = np.full(n, beta)
    bounds = float(BETAS[0]), float(BETAS[-1])
    penalty = np.full(n, 1.0 / (max(n, 1) * beta**2))
    return LinearForm(True, place, fixed, penalty, centre, bounds, centre=centre)


def solve_rows(rows: LabelledRows, options: Options) -> FitResult:
    """Fit the temperatures, each in [1/32, 32], shrunk to the common one.

    Parameters
    ----------
    rows : LabelledRows
    options : `regularisation`, `temperature`

    Returns
    -------
    FitResult; standard errors are those of the inverse temperatures. Separable if the most probable class is always correct.
    """
    solved = solve_shrunk(rows, form, _named, options)
    if solved.parameters is not None:
        beta = np.array(solved.parameters.pop("inverse_temperatures"))
        solved.parameters |= {"temperatures": (1.0 / beta).tolist(), "clip": CLIP}
    return solved


def at_rows(parameters: Mapping[str, Any], logits: Floats) -> Floats:
    """Return softmax(max(log p, log clip) / temperatures), (n, n_classes)."""
    return probabilities_of(
        clipped(logits, parameters["clip"]) / np.array(parameters["temperatures"])
    )


def _named(coefficients: Floats) -> Parameters:
    return {"inverse_temperatures": coefficients[:, 0].tolist()}


MAP = MapMethod(
    slug="class_temperature",
    title="One temperature per class",
    source="Kock, Thielke et al., confidence histograms and temperature (their background and foreground)",
    input="log_probabilities",
    objective="nll",
    scopes=("full", "positive"),
    options=("regularisation",),
    solve_rows=solve_rows,
    at_rows=at_rows,
)
