"""Stability curves over cases: one error per image, and their mean over the images of a subset."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.view import NotAnswerable, View
from calibrant.metrics.case_metric import CaseMetric
from calibrant.segmentation.case_errors import CaseErrors, case_errors
from calibrant.stability.subsets import FRACTIONS, CurveSource, Draws

Floats = NDArray[np.float64]
N_ORDERS = 16


def from_cases(view: View, metric: CaseMetric) -> CurveSource:
    """Return how the curves of a macro average are computed from the cases of a view, stored or raw.

    Raises
    ------
    NotAnswerable
        Fewer than two cases with their own table, an average of pooled cases, or as `case_errors`.

    Source
    ------
    Riera-Marin et al., table 2.
    """
    cases = _cases(view)
    if cases.options.average != "macro":
        raise NotAnswerable(
            "cases_in_one_pot",
            "curves over cases are of average=macro, the mean of their own errors",
        )
    n = len(cases.names)
    if n < 2:
        raise NotAnswerable("too_few_cases", "subsets are drawn of two cases or more")
    exact = not cases.bound(metric.error)
    about = {"source": "cases", "n_drawn": n, "n_cases": cases.n_cases["n"], "exact": exact}
    if not exact:
        about["detail"] = "plain histograms stand for their scores by means of cells"
    return CurveSource(
        lambda v, draws: _curves(_cases(v).by_case(metric.error), draws), n, N_ORDERS, about
    )


def _cases(view: View) -> CaseErrors:
    return view.once("stability of cases", lambda: case_errors(view))


def _curves(errors: Floats, draws: Draws) -> Floats:
    """Return the mean error of the drawn cases that have one, (n_draws, 17)."""
    known = np.isfinite(errors)
    values = np.where(known, errors, 0.0)
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for step in range(len(FRACTIONS)):
        times = draws.times(step)
        n = times @ known.astype(np.float64)
        if not n.all():
            raise NotAnswerable("no_data", f"no case counts among {draws.sizes[step]}")
        found[:, step] = times @ values / n
    return found
