"""Maps of one linear form of the log-probabilities per class, then softmax, shrunk to the common temperature.

Vector scaling has a slope and an intercept per class, `class_temperature` a temperature per class (in a binary model those of
background and foreground), and Dirichlet calibration a complete matrix and intercepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.cell_fits import CLIP, probabilities_of
from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.map_method import FitResult, MapMethod, Options
from calibrant.calibrators.shrinkage import clipped, solve_shrunk
from calibrant.calibrators.softmax import LinearForm
from calibrant.calibrators.solver import Mask
from calibrant.core.arrays import Floats
from calibrant.core.documents import Parameters


@dataclass(frozen=True)
class LinearMap:
    """Description of a map.

    Attributes
    ----------
    has_intercepts : whether each class has one
    is_own : whether a class's form reads only its own log-probability
    bounds : of every free parameter
    names : of the coefficients of inputs, and of the intercepts if there are any
    finished : coefficients as named for the fit to those of the map
    linear : parameters and inputs (n, n_classes) to the forms' values (n, n_classes)
    """

    has_intercepts: bool
    is_own: bool
    names: tuple[str, ...]
    finished: Callable[[Parameters], Parameters]
    linear: Callable[[Mapping[str, Any], Floats], Floats]
    bounds: tuple[float, float] | None = None

    def form(self, own: Mask, beta: float) -> LinearForm:
        """Return the form of the classes in `own`; the others have the slope `beta` and no intercept."""
        n_classes = len(own)
        diagonal = np.ones((n_classes, 1)) if self.is_own else np.eye(n_classes)
        fixed = np.column_stack([beta * diagonal, np.zeros(n_classes)])
        unit = np.full(fixed.shape, 1.0 / beta**2)
        unit[:, -1] = 1.0
        free = np.repeat(own[:, None], fixed.shape[1], axis=1)
        free[:, -1] &= self.has_intercepts
        place = np.where(free, np.cumsum(free).reshape(free.shape) - 1, -1)
        centre, penalty = fixed[free], unit[free] / max(np.count_nonzero(free), 1)
        return LinearForm(self.is_own, place, fixed, penalty, centre, self.bounds, centre)

    def named(self, coefficients: Floats) -> Parameters:
        """Return coefficients (n_classes, n_features) by name."""
        inputs = coefficients[:, 0] if self.is_own else coefficients[:, :-1]
        found = dict(zip(self.names, (inputs.tolist(), coefficients[:, -1].tolist()), strict=False))
        return found | {"clip": CLIP}

    def solve_rows(self, rows: LabelledRows, options: Options) -> FitResult:
        solved = solve_shrunk(rows, self.form, self.named, options)
        if solved.parameters is not None:
            solved.parameters = self.finished(solved.parameters)
        return solved

    def at_rows(self, parameters: Mapping[str, Any], logits: Floats) -> Floats:
        return probabilities_of(self.linear(parameters, clipped(logits, parameters["clip"])))


def _centred(parameters: Parameters) -> Parameters:
    """Return the same map with intercepts that sum to 0."""
    intercepts = np.array(parameters["intercepts"])
    return parameters | {"intercepts": (intercepts - intercepts.mean()).tolist()}


def _temperatures(parameters: Parameters) -> Parameters:
    beta = np.array(parameters["inverse_temperatures"])
    return {"temperatures": (1.0 / beta).tolist(), "clip": parameters["clip"]}


def _vector_at(parameters: Mapping[str, Any], inputs: Floats) -> Floats:
    return np.asarray(inputs * np.array(parameters["slopes"]) + parameters["intercepts"])


def _temperatures_at(parameters: Mapping[str, Any], inputs: Floats) -> Floats:
    return np.asarray(inputs / np.array(parameters["temperatures"]))


def _matrix_at(parameters: Mapping[str, Any], inputs: Floats) -> Floats:
    return np.asarray(
        inputs @ np.array(parameters["matrix"]).T + np.array(parameters["intercepts"])
    )


VECTOR = LinearMap(True, True, ("slopes", "intercepts"), _centred, _vector_at)
CLASS_TEMPERATURE = LinearMap(
    False,
    True,
    ("inverse_temperatures",),
    _temperatures,
    _temperatures_at,
    (float(BETAS[0]), float(BETAS[-1])),
)
DIRICHLET = LinearMap(True, False, ("matrix", "intercepts"), lambda each: each, _matrix_at)


def _method(slug: str, title: str, source: str, each: LinearMap) -> MapMethod:
    return MapMethod(
        slug=slug,
        title=title,
        source=source,
        input="log_probabilities",
        objective="nll",
        scopes=("full", "positive"),
        options=("regularisation",),
        solve_rows=each.solve_rows,
        at_rows=each.at_rows,
    )


MAPS = (
    _method(
        "vector",
        "Vector scaling",
        "Guo, Pleiss, Sun, Weinberger (ICML 2017), on log-probabilities",
        VECTOR,
    ),
    _method(
        "class_temperature",
        "One temperature per class",
        "Kock, Thielke et al., confidence histograms and temperature (their background and foreground)",
        CLASS_TEMPERATURE,
    ),
    _method(
        "dirichlet",
        "Dirichlet calibration",
        "Kull, Perello Nieto, Kängsepp et al. (NeurIPS 2019), shrunk to the temperature instead of ODIR",
        DIRICHLET,
    ),
)
