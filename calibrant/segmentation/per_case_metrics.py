"""Any metric of each case separately, from raw rows: one number per image, then mean and sd."""

from __future__ import annotations

import numpy as np

from calibrant.core.documents import Result, Row
from calibrant.core.pane import Pane
from calibrant.core.view import NoResultError, View
from calibrant.metrics import chosen
from calibrant.segmentation.case_errors import spread
from calibrant.segmentation.single_cases import rows_of_cases


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
        As `rows_of_cases`.

    Source
    ------
    Riera-Marin et al., table 2.
    """
    metric = chosen([slug])[0]
    batch, rows_by_case = rows_of_cases(view)
    cases, values = [], []
    for name, rows in rows_by_case.items():
        own = batch.take(rows)
        pane = Pane(view.spec)
        pane.fill_batch(own)
        reported: Row = {"case": name, "n": own.n}
        try:
            value = metric.value(View(pane, view.pane_query, own))
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
        "n_cases": len(rows_by_case),
        "mean": float(found.mean()) if len(found) else None,
        **spread(found),
        "cases": cases,
    }
