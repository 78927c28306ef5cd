"""Two-fold cross-fitting by units: fits that stop before full convergence, each applied to the other half.

The candidates of a recommendation read the same rows, so these are arranged once, and a fit can start from a simpler
one's optimum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.base import Floats
from calibrant.calibrators.diagonal_objective import DiagonalObjective
from calibrant.calibrators.from_rows import clipped, why_none
from calibrant.calibrators.linear_forms import LinearForm, linear, probabilities_of
from calibrant.calibrators.rows import LabelledRows
from calibrant.calibrators.softmax_objective import FLAT, SoftmaxPoints


class Halves:
    """Rows split by unit.

    Parameters
    ----------
    rows : LabelledRows, each with weight
    """

    def __init__(self, rows: LabelledRows) -> None:
        self.rows = rows
        self.places = [np.flatnonzero(rows.half == side) for side in (0, 1)]
        self.parts = [rows.take(place) for place in self.places]
        self.inputs = clipped(rows.logits)
        self._points: dict[int, SoftmaxPoints] = {}

    def fitted(
        self,
        make: Callable[[int], LinearForm],
        starts: list[Floats] | None = None,
        missing_class_matters: bool = True,
    ) -> tuple[list[Floats], str | None]:
        """Return the fitted parameters of each half, or the reason why one half has none.

        Parameters
        ----------
        make : number of classes to a form that uses its own class only
        starts : initial parameters, one array per half
        missing_class_matters : as in `why_none`
        """
        found: list[Floats] = []
        for side in (0, 1):
            form, part = make(self.rows.n_classes), self.parts[side]
            reason = why_none(part, form, self.inputs[self.places[side]], missing_class_matters)
            if reason is not None:
                return [], reason
            objective = DiagonalObjective(self._points_of(side), form)
            quick = objective.fit_fast(form.start if starts is None else starts[side])
            if quick.is_free and quick.least_curvature < FLAT:
                return [], "constant_scores" if objective.is_collinear() else "separable"
            if not quick.has_converged:
                return [], "not_converged"
            found.append(quick.parameters)
        return found, None

    def mapped(self, make: Callable[[int], LinearForm], fitted: list[Floats]) -> Floats:
        """Return probabilities of every row by the fit to the other half, (n, n_classes)."""
        coefficients = [make(self.rows.n_classes).coefficients(at) for at in fitted]
        result = np.empty_like(self.inputs)
        for side, other in ((0, 1), (1, 0)):
            place: NDArray[np.int64] = self.places[side]
            result[place] = probabilities_of(linear(self.inputs[place], coefficients[other], True))
        return result

    def _points_of(self, side: int) -> SoftmaxPoints:
        if side not in self._points:
            self._points[side] = SoftmaxPoints(self.parts[side], self.inputs[self.places[side]])
        return self._points[side]
