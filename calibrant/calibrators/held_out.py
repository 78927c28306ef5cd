"""Losses of maps on rows that took no part in their fit: by folds of units, each mapped by the fit to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from calibrant.calibrators.cell_fits import why_no_fit
from calibrant.calibrators.labelled_rows import MIN_UNITS, LabelledRows, rows_of
from calibrant.calibrators.map_method import FitResult, MapMethod, Options
from calibrant.calibrators.row_losses import ONE_CLASS, gain_by_unit, losses_of, scope_losses
from calibrant.core.arrays import Floats, Ints
from calibrant.core.cells import SUM_FIELDS, Cells
from calibrant.core.documents import Result
from calibrant.core.view import View

FOLDS = 5
HOW = {
    2: "halves of the units, each mapped by the other half's fit",
    FOLDS: "fifths of the units, each mapped by the fit to the others",
}
SolveRows = Callable[[LabelledRows], FitResult]
AtRows = Callable[[Mapping[str, Any], Floats], Floats]


def cross_fitted(
    rows: LabelledRows, fold: Ints, solve: SolveRows, at: AtRows
) -> tuple[Floats | None, str | None]:
    """Return the rows of each fold mapped by the fit to the other folds, (n, n_classes), or the reason why there are none."""
    after = np.empty_like(rows.logits)
    for number in np.unique(fold):
        mine = fold == number
        solved = solve(rows.take(np.flatnonzero(~mine)))
        if solved.parameters is None:
            return None, solved.reason
        after[mine] = at(solved.parameters, rows.logits[mine])
    return after, None


def of_class(method: MapMethod, options: Options) -> tuple[SolveRows, AtRows]:
    """Return how a map of one score is fitted to rows of two classes and applied to them: to the probability of class 1."""
    assert method.solve is not None
    solve, at_score = method.solve, method.at_scores

    def at(parameters: Mapping[str, Any], logits: Floats) -> Floats:
        score = at_score(parameters, np.clip(np.exp(logits[:, 1]), 0.0, 1.0))
        return np.stack([1.0 - score, score], axis=1)

    return lambda rows: solve(cells_of_rows(rows, 1), options), at


def held_out_rows(
    solve: SolveRows,
    at: AtRows,
    rows: LabelledRows,
    scope: str,
    ci: float,
    brier: str = ONE_CLASS,
    folds: int = FOLDS,
) -> tuple[Result | None, str | None]:
    """Return losses before and after by cross-fitting over units, in two folds or five, or the reason why there are none.

    Returns
    -------
    result : dict or None, as from `held_out_result`
    reason : None, "few_units" or the reason of a fold's fit
    """
    rows = rows.take(np.flatnonzero(rows.weight > 0))
    if rows.n_units < MIN_UNITS:
        return None, "few_units"
    # Units are numbered in the order of their hashes.
    after, reason = cross_fitted(rows, rows.half if folds == 2 else rows.unit % folds, solve, at)
    if after is None:
        return None, reason
    return held_out_result(rows, rows.probabilities, after, scope, ci, brier, folds), None


def held_out_result(
    rows: LabelledRows,
    before: Floats,
    after: Floats,
    scope: str,
    ci: float,
    brier: str = ONE_CLASS,
    folds: int = 2,
) -> Result:
    """Return losses before and after of rows mapped by fits to other rows.

    Parameters
    ----------
    rows : LabelledRows
    before, after : float64 (n, n_classes)
    scope, ci, brier, folds : as in `held_out_rows`

    Returns
    -------
    dict; `gain` is before minus after, its interval from the variation across units (Student's t).
    """
    first, then = (scope_losses(rows, each, scope, brier) for each in (before, after))
    result: Result = {
        "before": losses_of(rows, before, scope, first),
        "after": losses_of(rows, after, scope, then),
        "folds": folds,
        "n": len(rows),
        "n_units": rows.n_units,
        "ci": ci,
        "interval_method": HOW[folds],
    }
    gain = gain_by_unit(rows, first, then, ci)
    eces = result["before"]["ece"], result["after"]["ece"]
    gain["ece"] = {"value": None if None in eces else eces[0] - eces[1], "interval": None}
    return result | {"gain": gain}


def held_out_class(
    method: MapMethod, view: View, options: Options
) -> tuple[Result | None, str | None]:
    """Return losses of a map of one class's probability, before and after, by halves of the stored sample, or why there are none.

    For scopes whose tables the replicates do not store: one class of a model with many.

    Raises
    ------
    NoResultError
        The panes store no sample.
    """
    rows, sample = rows_of(view)
    rows = rows.take(np.flatnonzero(rows.weight > 0.0)).of_class(int(view.scope.partition(":")[2]))
    if rows.n_units >= MIN_UNITS and (reason := why_no_fit(cells_of_rows(rows, 1))):
        return None, reason
    ci, fitting = view.pane_query.ci, of_class(method, options)
    result, reason = held_out_rows(*fitting, rows, "positive", ci, folds=2)
    return None if result is None else result | {"sample": sample}, reason


def cells_of_rows(rows: LabelledRows, class_index: int) -> Cells:
    """Return one cell for each distinct probability of a class."""
    score = np.clip(rows.probabilities[:, class_index], 0.0, 1.0)
    distinct, place = np.unique(score, return_inverse=True)
    add = partial(np.bincount, place, minlength=len(distinct))
    weight, correct = (
        np.asarray(add(each), np.float64) for each in (rows.weight, rows.share[:, class_index])
    )
    count = add().astype(np.int64)
    return cells_of_sums(distinct, distinct, weight, weight * distinct, correct, count)


def cells_of_sums(
    lower: Floats,
    upper: Floats,
    weight: Floats,
    confidence: Floats,
    correct: Floats,
    count: Ints | None = None,
) -> Cells:
    """Return cells with weight, confidence and correct ratings; without counts, the weights, rounded."""
    n = np.round(weight).astype(np.int64) if count is None else count
    sums = dict.fromkeys(SUM_FIELDS, np.zeros(len(lower)))
    sums |= {"weight": weight, "confidence": confidence, "correct": correct}
    return Cells(lower, upper, n, n, **sums)
