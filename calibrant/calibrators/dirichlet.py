"""Dirichlet calibration: a matrix and an intercept on the log-probabilities, off-diagonal and intercept regularised."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from calibrant.calibrators.base import CLIP, Floats, MapMethod, Options, Solved
from calibrant.calibrators.form import LinearForm, probabilities_of
from calibrant.calibrators.from_rows import clipped, solve_form
from calibrant.calibrators.rows import LabelledRows


def form(n_classes: int, regularisation: float) -> LinearForm:
    """Return the form; the factor times the mean of squares off the diagonal, and of intercepts, is added to the mean NLL."""
    k = n_classes
    place = np.arange(k * (k + 1)).reshape(k, k + 1)
    penalty = np.full((k, k + 1), regularisation / max(k * (k - 1), 1))
    penalty[:, -1] = regularisation / k
    penalty[np.arange(k), np.arange(k)] = 0.0
    start = np.eye(k, k + 1)
    return LinearForm(False, place, np.zeros((k, k + 1)), penalty.ravel(), start.ravel())


def solve_rows(rows: LabelledRows, options: Options) -> Solved:
    """Fit matrix and intercepts of minimal NLL plus penalty.

    Parameters
    ----------
    rows : LabelledRows
    options : `regularisation`

    Returns
    -------
    Solved; the objective includes the penalty.
    """
    solved = solve_form(rows, partial(form, regularisation=options.regularisation), _named)
    return Solved(
        solved.parameters,
        solved.reason,
        solved.details | {"regularisation": options.regularisation},
        solved.warnings,
    )


def at_rows(parameters: Mapping[str, Any], logits: Floats) -> Floats:
    """Return softmax(matrix @ max(log p, log clip) + intercepts), (n, n_classes)."""
    inputs = clipped(logits, parameters["clip"])
    return probabilities_of(
        inputs @ np.array(parameters["matrix"]).T + np.array(parameters["intercepts"])
    )


def _named(coefficients: Floats) -> dict[str, Any]:
    return {
        "matrix": coefficients[:, :-1].tolist(),
        "intercepts": coefficients[:, -1].tolist(),
        "clip": CLIP,
    }


MAP = MapMethod(
    slug="dirichlet",
    title="Dirichlet calibration",
    source="Kull, Perello Nieto, Kängsepp et al. (NeurIPS 2019), regularised off the diagonal (ODIR)",
    input="log_probabilities",
    objective="nll",
    scopes=("full", "positive"),
    needs=("sample",),
    options=("regularisation",),
    solve_rows=solve_rows,
    at_rows=at_rows,
)
