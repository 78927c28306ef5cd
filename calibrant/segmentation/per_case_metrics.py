"""Any metric of each case separately, from raw rows: one number per image, then mean and sd."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.core.documents import Result, Row
from calibrant.core.pane import Pane
from calibrant.core.view import NoResultError, View
from calibrant.metrics import chosen
from calibrant.segmentation.case_errors import spread
from calibrant.segmentation.case_tables import numbered

MAX_CASES = 256


def by_case(view: View, slug: str) -> Result:
    """Compute a metric of each case's rows separately.

    Parameters
    ----------
    view : with raw rows and their case names
    slug : the metric, under the view's query

    Returns
    -------
    dict with `metric`, raters, scope, `n_cases`, `mean`, `sd` (population), `quantiles`, and `cases`: each with `value`
    (None with a `reason`) and n

    Raises
    ------
    CalibrationInputError
        An unknown metric.
    NoResultError
        There are no raw rows, they have no case names, or more than 256.

    Source
    ------
    Riera-Marin et al., table 2.
    """
    metric = chosen([slug])[0]
    if view.batch_sums is None:
        raise NoResultError(
            "needs_raw_rows", "a metric of single cases needs rows: post them to score them"
        )
    batch = view.batch_sums.batch
    if batch.cases is None:
        raise NoResultError("no_cases", "no labelled prediction names its case")
    names, place = numbered(batch.cases)
    if len(names) > MAX_CASES:
        raise NoResultError(
            "too_many_cases",
            f"Received {len(names)} cases; at most {MAX_CASES} are computed separately.",
        )
    cases, values = [], []
    for i, name in enumerate(names):
        own = batch.take(place == i)
        pane = Pane(view.spec)
        pane.fill_batch(own)
        reported: Row = {"case": name, "n": own.n}
        try:
            value = metric.value(View(pane, replace(view.pane_query), own))
            reported |= (
                {"value": value} if value is not None else {"value": None, "reason": "no_data"}
            )
        except NoResultError as rejection:
            reported |= {"value": None, "reason": rejection.reason}
        cases.append(reported)
        values.append(reported["value"])
    found = np.array([value for value in values if value is not None], np.float64)
    return {
        "metric": slug,
        "raters": view.pane_query.raters,
        "scope": view.scope,
        "n_cases": len(names),
        "mean": float(found.mean()) if len(found) else None,
        **spread(found),
        "cases": cases,
    }
