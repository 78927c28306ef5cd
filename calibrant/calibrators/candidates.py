"""Candidates of a recommendation: the maps that its actions freeze, each fitted to one half of the units and applied to the other."""

from __future__ import annotations

from typing import Any

from calibrant.calibrators.held_out import AtRows, SolveRows, cross_fitted, of_class
from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.map_method import FitResult, MapMethod, Options, map_methods
from calibrant.calibrators.temperature.fit import fit_rows
from calibrant.core.actions import map_method
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.view import View

CANDIDATES = ("temperature", "slope_intercept", "flexible")
# Their maps fit a softmax of all classes, so that the candidates of several classes can be compared.
_OF_TWO_CLASSES = ("flexible",)


def candidates_of(is_binary: bool) -> tuple[str, ...]:
    """Return the actions that a recommendation compares, the simplest first.

    >>> candidates_of(False)
    ('temperature', 'slope_intercept')
    """
    return tuple(each for each in CANDIDATES if is_binary or each not in _OF_TWO_CLASSES)


class HalfFits:
    """Fits to halves of a view's rows.

    Parameters
    ----------
    view : View; its query gives the label policy
    rows : its labelled rows with weight
    is_binary : whether maps are of class 1 against class 0
    """

    def __init__(self, view: View, rows: LabelledRows, is_binary: bool) -> None:
        self.view, self.rows, self.is_binary = view, rows, is_binary

    def mapped(self, action: str) -> tuple[Floats | None, str | None]:
        """Return probabilities of every row by the action's map of the other half, (n, n_classes), or the reason why there is none."""
        method = map_methods()[str(map_method(action, self.is_binary))]
        return cross_fitted(self.rows, self.rows.half, *self._fitting(method))

    def _fitting(self, method: MapMethod) -> tuple[SolveRows, AtRows]:
        if method.at_rows is None:
            return of_class(method, Options())
        solve = method.solve_rows
        if solve is None:
            return TemperatureOfRows(self.view), method.at_rows
        return lambda rows: solve(rows, Options()), method.at_rows


class TemperatureOfRows:
    """Temperature of some of a view's rows, as the library fits it to rows.

    Parameters
    ----------
    view : View
    objective, bins, min_count : as in `fit_rows`
    """

    def __init__(
        self, view: View, objective: str = "nll", bins: int = 15, min_count: float = 0.0
    ) -> None:
        self.options: dict[str, Any] = {
            "objective": objective,
            "raters": view.pane_query.raters,
            "bins": bins,
            "min_count": min_count,
        }
        self.batch: Batch = (
            view.pane.sample.batch() if view.batch_sums is None else view.batch_sums.batch
        )

    def __call__(self, rows: LabelledRows) -> FitResult:
        found, _ = fit_rows(self.batch.take(rows.place), **self.options)
        if found["temperature"] is None:
            return FitResult(None, found["reason"])
        return FitResult({"temperature": found["temperature"]})
