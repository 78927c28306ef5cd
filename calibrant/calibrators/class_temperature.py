"""One temperature per class: each class's log-probability divided by its own, then softmax.

In a binary model these are the temperatures of background and foreground.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.base import CLIP, Floats, MapMethod, Options, Solved
from calibrant.calibrators.form import LinearForm, probabilities_of
from calibrant.calibrators.from_rows import clipped, solve_form
from calibrant.calibrators.rows import LabelledRows


def form(n_classes: int) -> LinearForm:
    """Return the form with inverse temperatures within the range of the common one."""
    place = np.stack([np.arange(n_classes), np.full(n_classes, -1)], axis=1)
    bounds = float(BETAS[0]), float(BETAS[-1])
    return LinearForm(
        True, place, np.zeros((n_classes, 2)), np.zeros(n_classes), np.ones(n_classes), bounds
    )


def solve_rows(rows: LabelledRows, options: Options) -> Solved:
    """Fit the temperatures of minimal NLL, each in [1/32, 32].

    Parameters
    ----------
    rows : LabelledRows
    options : not used

    Returns
    -------
    Solved; standard errors are those of the inverse temperatures. Separable if the most probable class is always correct.
    """
    solved = solve_form(rows, form, _named, missing_class_matters=False)
    if solved.parameters is not None and rows.is_all_right:
        solved.details.pop("standard_errors")
        return Solved(None, "separable", solved.details)
    if solved.parameters is not None:
        beta = np.array(solved.parameters.pop("inverse_temperatures"))
        solved.parameters |= {"temperatures": (1.0 / beta).tolist(), "clip": CLIP}
    return solved


def at_rows(parameters: Mapping[str, Any], logits: Floats) -> Floats:
    """Return softmax(max(log p, log clip) / temperatures), (n, n_classes)."""
    return probabilities_of(
        clipped(logits, parameters["clip"]) / np.array(parameters["temperatures"])
    )


def _named(coefficients: Floats) -> dict[str, Any]:
    return {"inverse_temperatures": coefficients[:, 0].tolist()}


MAP = MapMethod(
    slug="class_temperature",
    title="One temperature per class",
    source="Kock, Thielke et al., confidence histograms and temperature (their background and foreground)",
    input="log_probabilities",
    objective="nll",
    scopes=("full", "positive"),
    needs=("sample",),
    solve_rows=solve_rows,
    at_rows=at_rows,
)
