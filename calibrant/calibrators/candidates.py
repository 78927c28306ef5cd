"""Candidates of a recommendation: the maps that its actions freeze, and how each is fitted to rows."""

from __future__ import annotations

from typing import Any

from calibrant.calibrators.held_out import AtRows, SolveRows, of_class
from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.map_method import FitResult, Options, map_methods
from calibrant.calibrators.temperature.fit import fit_rows
from calibrant.core.actions import map_method
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


def fitting_of(action: str, view: View, is_binary: bool) -> tuple[SolveRows, AtRows]:
    """Return how the map of an action is fitted to some of a view's rows, and applied to others.

    Parameters
    ----------
    action : of `CANDIDATES`
    view : View; its query gives the label policy
    is_binary : whether maps are of class 1 against class 0
    """
    method = map_methods()[str(map_method(action, is_binary))]
    if method.at_rows is None:
        return of_class(method, Options())
    solve = method.solve_rows
    if solve is None:
        return TemperatureOfRows(view), method.at_rows
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
