"""Dirichlet calibration: a matrix and an intercept on the log-probabilities, shrunk to the common temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.base import FitResult, Floats, MapMethod, Options
from calibrant.calibrators.cell_fits import CLIP
from calibrant.calibrators.from_rows import clipped
from calibrant.calibrators.linear_forms import LinearForm, probabilities_of
from calibrant.calibrators.rows import LabelledRows
from calibrant.calibrators.shrinkage import solve_shrunk
from calibrant.core.documents import Parameters


def form(own: NDArray[np.bool_], beta: float) -> LinearForm:
    """Return the form of the classes in `own`; the others have `beta` on the diagonal and no intercept."""
    k, n = len(own), int(own.sum())
    place = np.full((k, k + 1), -1)
    place[own] = np.arange(n * (k + 1)).reshape(n, k + 1)
    fixed = beta * np.eye(k, k + 1)
    penalty = np.full((n, k + 1), 1.0 / beta**2)
    penalty[:, -1] = 1.0
    centre = fixed[own].ravel()
    penalty = penalty.ravel() / max(n * (k + 1), 1)
    return LinearForm(False, place, fixed, penalty, centre, centre=centre)


def solve_rows(rows: LabelledRows, options: Options) -> FitResult:
    """Fit matrix and intercepts, shrunk to the common temperature.

    Parameters
    ----------
    rows : LabelledRows
    options : `regularisation`, `temperature`

    Returns
    -------
    FitResult; the objective includes the penalty.
    """
    return solve_shrunk(rows, form, _named, options)


def at_rows(parameters: Mapping[str, Any], logits: Floats) -> Floats:
    """Return softmax(matrix @ max(log p, log clip) + intercepts), (n, n_classes)."""
    inputs = clipped(logits, parameters["clip"])
    return probabilities_of(
        inputs @ np.array(parameters["matrix"]).T + np.array(parameters["intercepts"])
    )


def _named(coefficients: Floats) -> Parameters:
    return {
        "matrix": coefficients[:, :-1].tolist(),
        "intercepts": coefficients[:, -1].tolist(),
        "clip": CLIP,
    }


MAP = MapMethod(
    slug="dirichlet",
    title="Dirichlet calibration",
    source="Kull, Perello Nieto, Kängsepp et al. (NeurIPS 2019), shrunk to the temperature instead of ODIR",
    input="log_probabilities",
    objective="nll",
    scopes=("full", "positive"),
    options=("regularisation",),
    solve_rows=solve_rows,
    at_rows=at_rows,
)
