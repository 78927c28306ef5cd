"""Maps of all classes by a map of one probability: each class against the rest, then the row divided by its sum.

A class whose map cannot be fitted keeps its probability as sent. A row whose classes are all mapped to 0 becomes uniform.

Source
------
Zadrozny, Elkan (KDD 2002).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.calibrators.cell_fits import filled
from calibrant.calibrators.held_out import cells_of_rows
from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.calibrators.map_method import REASONS, FitResult, MapMethod, Options
from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError
from calibrant.core.view import View

# Each class is fitted, and stored, separately.
MAX_CLASSES = 1000


def why_top_label(view: View) -> str | None:
    """Return the reason why a view of several classes has no map of each; None if it has."""
    if view.spec.n_classes > MAX_CLASSES:
        return "many_classes"
    if view.is_raw:
        return None
    if not view.spec.keeps_all_classes:
        return "class_not_kept"
    return None if view.is_without_histograms else "not_in_histogram"


def solve_classes(method: MapMethod, view: View, options: Options) -> FitResult:
    """Fit the map of every class to a view.

    Raises
    ------
    NoResultError
        A class's cells are not stored, or the window contains plain histograms.
    """
    each = (
        view.with_query(replace(view.pane_query, scope=f"class:{k}"))
        for k in range(view.spec.n_classes)
    )
    return _joined([solve_one(method, one, options) for one in each])


def solve_rows(method: MapMethod, rows: LabelledRows, options: Options) -> FitResult:
    """Fit the map of every class to rows."""
    assert method.solve is not None
    cells = (filled(cells_of_rows(rows, k)) for k in range(rows.n_classes))
    return _joined([method.solve(each, options) for each in cells])


def solve_one(method: MapMethod, view: View, options: Options) -> FitResult:
    """Fit the map of the view's own scope."""
    if method.solve_view is not None:
        return method.solve_view(view, options)
    assert method.solve is not None
    return method.solve(filled(view.cells()), options)


def at_classes(method: MapMethod, parameters: Mapping[str, Any], probabilities: Floats) -> Floats:
    """Return recalibrated rows that sum to 1; (n, n_classes) to (n, n_classes).

    Raises
    ------
    CalibrationInputError
        The map is of another number of classes.
    """
    maps, n_classes = parameters.get("classes"), probabilities.shape[1]
    if not isinstance(maps, list) or len(maps) != n_classes:
        detail = f"Received a batch of {n_classes} classes for a map of others. Apply it to the model's classes."
        raise CalibrationInputError.at("/class", "class_range", detail)
    mapped = np.array(probabilities, np.float64)
    for k, own in enumerate(maps):
        if own is not None:
            mapped[:, k] = method.at_scores(own, mapped[:, k])
    total = mapped.sum(axis=1, keepdims=True)
    uniform = np.full_like(mapped, 1.0 / n_classes)
    return np.asarray(np.divide(mapped, total, out=uniform, where=total > 0.0))


def _joined(fits: list[FitResult]) -> FitResult:
    """Return the map of all classes; the reason of the first if no class has one."""
    reasons = {str(k): each.reason for k, each in enumerate(fits) if each.parameters is None}
    details: dict[str, Any] = {
        "classes_as_sent": {
            k: {"reason": r, "detail": REASONS[str(r)]} for k, r in reasons.items()
        },
        "error_bounds": [each.details.get("error_bound") for each in fits],
        "at_bound": any(each.details.get("at_bound") for each in fits),
    }
    if len(reasons) == len(fits):
        return FitResult(None, fits[0].reason, details)
    warnings = dict.fromkeys(name for each in fits for name in each.warnings)
    if reasons:
        warnings["classes_as_sent"] = None
    return FitResult({"classes": [each.parameters for each in fits]}, None, details, [*warnings])
