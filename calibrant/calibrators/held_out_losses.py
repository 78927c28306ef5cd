"""Held-out losses of a map of one class's probability, cross-fitted on halves of the stored sample.

For scopes whose tables the replicates do not store: one class of a model with many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.calibrators.base import Floats, MapMethod, Options
from calibrant.calibrators.cell_fits import why_no_fit
from calibrant.calibrators.from_rows import rows_of
from calibrant.calibrators.map_losses import difference, losses
from calibrant.calibrators.rows import MIN_UNITS, LabelledRows, event_losses, mean_by_unit
from calibrant.core.cells import SUM_FIELDS, Cells
from calibrant.core.documents import Result
from calibrant.core.view import View


def held_out_losses(
    method: MapMethod, view: View, options: Options
) -> tuple[Result | None, str | None]:
    """Return losses before and after by two-fold cross-fitting over units, or the reason why there are none.

    Parameters
    ----------
    method : MapMethod of one score
    view : View; its scope names the class
    options : as of the fit

    Returns
    -------
    result : dict or None; `gain` is before minus after, its interval from the variation across units (Student's t)
    reason : None, "few_units", "one_class" if the sample has no positive or no negative, or the reason of a half's fit

    Raises
    ------
    NoResultError
        The panes store no sample.
    """
    assert method.solve is not None
    rows, sample = rows_of(view)
    rows = rows.take(np.flatnonzero(rows.weight > 0.0))
    if rows.n_units < MIN_UNITS:
        return None, "few_units"
    class_index = int(view.scope.partition(":")[2])
    before = np.clip(rows.probabilities[:, class_index], 0.0, 1.0)
    if reason := why_no_fit(cells_of_rows(rows, class_index, before)):
        return None, reason
    after = np.empty_like(before)
    for side in (0, 1):
        others, mine = np.flatnonzero(rows.half != side), rows.half == side
        solved = method.solve(
            cells_of_rows(rows.take(others), class_index, before[others]), options
        )
        if solved.parameters is None:
            return None, solved.reason
        after[mine] = method.at_scores(solved.parameters, before[mine])
    correct, every_row = rows.share[:, class_index], np.arange(len(rows))
    reported = [
        losses(_summed(every_row, correct, rows.weight, before), each) for each in (before, after)
    ]
    first, then = (event_losses(correct, rows.weight, each) for each in (before, after))
    gain: Result = {
        "ece": {"value": difference(reported[0]["ece"], reported[1]["ece"]), "interval": None}
    }
    for name in first:
        with np.errstate(invalid="ignore"):
            gain[name] = mean_by_unit(
                first[name] - then[name], rows.weight, rows.unit, view.pane_query.ci
            )
    result = {
        "before": reported[0],
        "after": reported[1],
        "gain": gain,
        "folds": 2,
        "n": len(rows),
        "n_units": rows.n_units,
        "ci": view.pane_query.ci,
        "interval_method": "halves of the units, each mapped by the other half's fit",
        "sample": sample,
    }
    return result, None


def cells_of_rows(rows: LabelledRows, class_index: int, score: Floats) -> Cells:
    """Return one cell for each distinct score."""
    distinct, place = np.unique(score, return_inverse=True)
    return _summed(place, rows.share[:, class_index], rows.weight, distinct)


def _summed(place: Any, hit: Floats, weight: Floats, score: Floats) -> Cells:
    """Return cells at `score` with the sums over their places."""
    correct, mass = (
        np.bincount(place, each, len(score)).astype(np.float64) for each in (hit, weight)
    )
    count = np.bincount(place, minlength=len(score)).astype(np.int64)
    zeros: dict[str, Floats] = dict.fromkeys(SUM_FIELDS, np.zeros(len(score)))
    sums = zeros | {"weight": mass, "confidence": mass * score, "correct": correct}
    return Cells(score, score, count, count, **sums)
