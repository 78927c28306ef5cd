"""Gain of a procedure that fits maps, cross-fitted by unit, where no later labels can test the map itself.

The rows of the window's stored sample are split in five by unit. The method is fitted to four fifths, with everything that it
chooses, and applied to the rest. The gain over the current map, or over the probabilities as sent, is paired by row and its variation
taken across units. It describes maps of the procedure fitted to four fifths of the rows, not the one map.
"""

from __future__ import annotations

import numpy as np

from calibrant.calibrators.base import REASONS as FIT_REASONS
from calibrant.calibrators.base import Floats, Options
from calibrant.calibrators.fitting import apply, fit
from calibrant.calibrators.held_out import FOLDS
from calibrant.calibrators.map_comparison import (
    REASONS,
    common_scope,
    judged,
    losses_under,
    means_of,
)
from calibrant.calibrators.rows import (
    MIN_UNITS,
    Ints,
    LabelledRows,
    about_sample,
    gain_by_unit,
    labelled_rows,
)
from calibrant.core.batch import Batch
from calibrant.core.documents import FittedMap, Result
from calibrant.core.pane import Pane
from calibrant.core.routing import split_batch
from calibrant.core.view import NoResultError, View

EVIDENCE = "procedure"
NAMES = ("nll", "brier")
# Rows of a large sample that are used, those of the smallest hashes: each is filled into panes four times.
MAX_ROWS = 20_000


def procedure_gain(current: FittedMap | None, method: str, options: Options, view: View) -> Result:
    """Return the gain of a method's maps over the current map, held out by unit.

    Parameters
    ----------
    current : a fitted map as `apply` takes it; None compares with the probabilities as sent
    method, options : as in `fit`
    view : View of the window that the map was fitted to; its query gives scope, label policy and level

    Returns
    -------
    dict as that of `map_comparison.compare`, with `evidence_of: procedure` and `folds`

    Examples
    --------
    >>> from calibrant import Batch, PaneSpec
    >>> from calibrant.core.query import PaneQuery
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> columns = {"confidences": [0.99, 0.01] * 200, "labels": [1, 0, 1, 0, 1, 0, 0, 1] * 50}
    >>> pane.fill_batch(Batch.from_columns(columns | {"ids": [f"i{i}" for i in range(400)]}).batch)
    >>> procedure_gain(None, "temperature", Options(), View(pane, PaneQuery()))["beats"]
    True
    """
    result: Result = {
        "beats": False, "reason": None, "detail": None, "scope": None, "n": 0, "n_units": 0, "ci": view.pane_query.ci,
        "raters": view.pane_query.raters, "current": None, "candidate": None, "gain": None,
        "sample": about_sample(view.pane), "evidence_of": EVIDENCE, "folds": FOLDS,
    }  # fmt: skip
    if result["sample"] is None:
        return _because(result, "not_kept")
    batch = view.pane.sample.batch()
    batch = batch.take(np.arange(min(batch.n, MAX_ROWS)))
    rows = labelled_rows(batch, view.policy)
    result |= {"n": len(rows), "n_units": rows.n_units}
    if not len(rows) or not rows.weight.sum() > 0:
        return _because(result, "no_labels")
    if rows.n_units < MIN_UNITS:
        return _because(result, "few_units")
    try:
        scope, candidate = losses_across(
            rows.unit % FOLDS, current, method, options, view, batch, rows
        )
    except NoResultError as error:
        return _because(result, error.reason)
    first = losses_under(rows, scope, None if current is None else apply(current, batch))
    gain = gain_by_unit(rows, first, candidate, result["ci"])
    result |= {"scope": scope[0], "gain": gain}
    result |= {"current": means_of(rows, first), "candidate": means_of(rows, candidate)}
    return judged(result)


def losses_across(
    fold: Ints,
    other: FittedMap | None,
    method: str,
    options: Options,
    view: View,
    batch: Batch,
    rows: LabelledRows,
) -> tuple[tuple[str, int | None], dict[str, Floats]]:
    """Return scope and losses of each row by the method's fit to the other folds.

    Parameters
    ----------
    fold : int64 (n,), of each row
    other : map with which the scope is shared; None for the probabilities as sent
    method, options, view : as in `fit`
    batch, rows : the rows

    Raises
    ------
    NoResultError
        A fold has no fit, or its scope is another.
    """
    found: dict[str, Floats] = {name: np.zeros(len(rows)) for name in NAMES}
    scope: tuple[str, int | None] | None = None
    for number in np.unique(fold):
        mine = fold == number
        fitted = _fitted(method, options, view, batch.take(~mine))
        if fitted["parameters"] is None:
            raise NoResultError(fitted["reason"], fitted["detail"] or "")
        scope = common_scope(other, fitted)
        if scope is None:
            raise NoResultError("not_comparable", REASONS["not_comparable"])
        part = rows.take(np.flatnonzero(mine))
        for name, values in losses_under(part, scope, apply(fitted, batch.take(mine))).items():
            found[name][mine] = values
    assert scope is not None
    return scope, found


def _fitted(method: str, options: Options, view: View, batch: Batch) -> Result:
    pane = Pane.for_window(view.spec)
    for part in split_batch(batch):
        pane.fill_batch(part)
    return fit(method, View(pane, view.pane_query), options, evaluate=False)


def _because(result: Result, reason: str) -> Result:
    detail = REASONS.get(reason) or FIT_REASONS.get(reason)
    return result | {"reason": reason, "detail": detail}
