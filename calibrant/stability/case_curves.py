"""Stability curves over cases: one error per image, and their mean over the images of a subset."""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats, ratio
from calibrant.core.view import NoResultError, View
from calibrant.metrics.case_metric import CaseMetric
from calibrant.segmentation.case_bins import CaseBins
from calibrant.segmentation.case_errors import ERRORS, CaseErrors, case_errors
from calibrant.stability.subsets import FRACTIONS, CurveSource, Draws

N_ORDERS = 16


def from_cases(view: View, metric: CaseMetric) -> CurveSource:
    """Return how the curves of an error are computed from the cases of a view, stored or raw.

    Subsets are of cases with their own table. Under micro averages, the bins of a subset's cases are pooled.

    Raises
    ------
    NoResultError
        Fewer than two cases with their own table, or as `case_errors`.

    Source
    ------
    Riera-Marin et al., table 2.
    """
    cases = _cases(view)
    n = len(cases.names)
    if n < 2:
        raise NoResultError("too_few_cases", "subsets are drawn of two cases or more")
    exact = not cases.bound(metric.error)
    about = {"source": "cases", "n_drawn": n, "n_cases": cases.n_cases["n"], "exact": exact}
    if not exact:
        about["detail"] = "plain histograms represent their scores by means of cells"
    return CurveSource(
        lambda v, draws: _curves_of(_cases(v), metric.error, draws), n, N_ORDERS, about
    )


def _cases(view: View) -> CaseErrors:
    return view.once("stability of cases", lambda: case_errors(view))


def _curves_of(cases: CaseErrors, error: str, draws: Draws) -> Floats:
    if cases.options.average == "macro":
        return _curves(cases.by_case(error), draws)
    return _pooled_curves(cases, error, draws)


def _pooled_curves(cases: CaseErrors, error: str, draws: Draws) -> Floats:
    """Return the error of the drawn cases pooled, the mean over classes that count, (n_draws, 17)."""
    bins, use = cases.counted, cases.use.astype(np.float64)
    filled = use[:, :, None] * bins.filled
    means = np.where(filled > 0, bins.mean, 0.0)
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for step in range(len(FRACTIONS)):
        times = draws.times(step)

        def added(values: Floats, times: Floats = times) -> Floats:
            return np.asarray(np.tensordot(times, values, axes=1))

        tables = {
            name: added(getattr(bins, name) * use[:, :, None])
            for name in ("weight", "confidence", "correct")
        }
        totals = {
            name: added(getattr(bins, name) * use)
            for name in ("total", "positives", "predicted", "hit", "ranked")
        }
        if cases.options.average == "micro":
            # As the papers' code: the plain mean over cases of their own mean confidences.
            n = added(filled)
            plain = ratio(added(means), n)
            tables["confidence"] = plain * tables["weight"]
        pooled = CaseBins(
            **tables, **totals, least=bins.least, gap_error=np.zeros_like(tables["weight"])
        )
        by_class = ERRORS[error](pooled)
        known = np.isfinite(by_class)
        if not known.any(axis=1).all():
            raise NoResultError("no_data", f"no case counts among {draws.sizes[step]}")
        found[:, step] = np.where(known, by_class, 0.0).sum(axis=1) / known.sum(axis=1)
    return found


def _curves(errors: Floats, draws: Draws) -> Floats:
    """Return the mean error of the drawn cases that have one, (n_draws, 17)."""
    known = np.isfinite(errors)
    values = np.where(known, errors, 0.0)
    found = np.empty((len(draws.order), len(FRACTIONS)))
    for step in range(len(FRACTIONS)):
        times = draws.times(step)
        n = times @ known.astype(np.float64)
        if not n.all():
            raise NoResultError("no_data", f"no case counts among {draws.sizes[step]}")
        found[:, step] = times @ values / n
    return found
