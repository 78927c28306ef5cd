"""Values of one calibration error under each label policy, and for each rater separately.

The multi-rater value and a consensus estimate different quantities, so both are returned under their names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from calibrant.core.arrays import Ints
from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import NoResultError, View
from calibrant.inference.seeds import SEED
from calibrant.metrics import METRICS, accumulators_for, compute_metrics


def of_raters(batch: Batch, slug: str, pane_query: PaneQuery, raters: Mapping[str, Ints]) -> Result:
    """Return a metric with each rater's labels alone, `by_rater`, and the mean of the values, `mean_of_raters`.

    Raises
    ------
    CalibrationInputError
        Raters' columns that do not fit the batch.
    """
    by_rater = {
        name: _of_rater(batch, name, classes, slug, pane_query) for name, classes in raters.items()
    }
    values = [each["value"] for each in by_rater.values() if each["value"] is not None]
    return {"by_rater": by_rater, "mean_of_raters": float(np.mean(values)) if values else None}


def under(view: View, policy: str) -> View:
    """Return the same data under another label policy."""
    batch = None if view.batch_sums is None else view.batch_sums.complete_batch
    return View(view.pane, replace(view.pane_query, raters=policy), batch)


def by_policy(view: View, slug: str, seed: int = SEED) -> dict[str, Result]:
    """Return a metric's result under each label policy, in the order of `POLICIES`."""
    return {policy: compute_metrics(under(view, policy), [slug], seed)[slug] for policy in POLICIES}


def values_by_policy(view: View, slug: str) -> dict[str, float | None]:
    """Return a metric's number alone under each label policy, None if it has none."""
    return {policy: _value(under(view, policy), slug)[0] for policy in POLICIES}


def _value(view: View, slug: str) -> tuple[float | None, str]:
    """Return the number, or None and the reason."""
    try:
        value = METRICS[slug].value(view)
    except NoResultError as rejection:
        return None, rejection.reason
    return (None, "no_data") if value is None or not np.isfinite(value) else (float(value), "")


def _of_rater(batch: Batch, name: str, classes: Ints, slug: str, pane_query: PaneQuery) -> Result:
    """Return value and n with one rater's labels alone."""
    view = view_of_rater(batch, name, classes, pane_query, accumulators_for([slug]))
    if view is None:
        return {"value": None, "reason": "no_data", "n": 0}
    # The number alone: intervals and null references of a hundred raters would take a hundred times as long.
    value, reason = _value(view, slug)
    n = int((np.asarray(classes) >= 0).sum())
    return {"value": value, "n": n} | ({"reason": reason} if value is None else {})


def view_of_rater(
    batch: Batch,
    name: str,
    classes: Ints,
    pane_query: PaneQuery,
    only: Collection[str] | None = None,
) -> View | None:
    """Return a view of the rows that one rater labelled, with their labels alone; None if there are none.

    Parameters
    ----------
    only : the accumulators to fill; default: all

    Raises
    ------
    CalibrationInputError
        Classes that do not fit the batch.
    """
    given = np.asarray(classes)
    fits = given.shape == (batch.n,) and given.dtype.kind in "iu"
    if not fits or (given < -1).any() or (given >= batch.n_classes).any():
        detail = f"each rater has one class index per row, -1 for none: 0 to {batch.n_classes - 1}, {batch.n} rows"
        raise CalibrationInputError.at(f"/raters/{name}", "rater_classes", detail)
    row = np.flatnonzero(given >= 0)
    if not len(row):
        return None
    own = replace(
        batch, ratings=Ratings(row, given[row].astype(np.int64), np.ones(len(row), np.int64))
    ).take(row)
    pane = Pane(PaneSpec(batch.task, batch.n_classes), only)
    pane.fill_batch(own)
    return View(pane, replace(pane_query, raters="pooled"), own)
