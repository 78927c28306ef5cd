"""Vector scaling: one slope and one intercept per class on the log-probabilities."""

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


def shrunk_form(own: NDArray[np.bool_], beta: float) -> LinearForm:
    """Return the form of the classes in `own`; the others have the slope `beta` and no intercept."""
    n_classes, n = len(own), int(own.sum())
    place = np.full((n_classes, 2), -1)
    place[own, 0], place[own, 1] = np.arange(n), n + np.arange(n)
    fixed = np.stack([np.full(n_classes, beta), np.zeros(n_classes)], axis=1)
    centre = np.append(np.full(n, beta), np.zeros(n))
    penalty = np.append(np.full(n, 1.0 / beta**2), np.ones(n)) / max(2 * n, 1)
    return LinearForm(True, place, fixed, penalty, centre, centre=centre)


def solve_rows(rows: LabelledRows, options: Options) -> FitResult:
    """Fit slopes and intercepts (which sum to 0), shrunk to the common temperature.

    Parameters
    ----------
    rows : LabelledRows
    options : `regularisation`, `temperature`

    Returns
    -------
    FitResult
    """
    solved = solve_shrunk(rows, shrunk_form, _named, options)
    if solved.parameters is not None:
        intercepts = np.array(solved.parameters["intercepts"])
        solved.parameters["intercepts"] = (intercepts - intercepts.mean()).tolist()
    return solved


def at_rows(parameters: Mapping[str, Any], logits: Floats) -> Floats:
    """Return softmax(slopes * max(log p, log clip) + intercepts), (n, n_classes)."""
    inputs = clipped(logits, parameters["clip"])
    slopes, intercepts = (np.array(parameters[name]) for name in ("slopes", "intercepts"))
    return probabilities_of(inputs * slopes + intercepts)


def _named(coefficients: Floats) -> Parameters:
    return {
        "slopes": coefficients[:, 0].tolist(),
        "intercepts": coefficients[:, 1].tolist(),
        "clip": CLIP,
    }


MAP = MapMethod(
    slug="vector",
    title="Vector scaling",
    source="Guo, Pleiss, Sun, Weinberger (ICML 2017), on log-probabilities",
    input="log_probabilities",
    objective="nll",
    scopes=("full", "positive"),
    options=("regularisation",),
    solve_rows=solve_rows,
    at_rows=at_rows,
)
