"""Sources of stability curves: posted rows, cases, or replicates or the sample of stored state."""

from __future__ import annotations

from calibrant.core.available_rows import available_batch
from calibrant.core.documents import Extra
from calibrant.core.errors import check_one_of
from calibrant.core.view import NoResultError, View
from calibrant.metrics.case_metric import CaseMetric
from calibrant.metrics.metric import Metric
from calibrant.stability.case_curves import from_cases
from calibrant.stability.replicate_curves import replicate_curves
from calibrant.stability.row_curves import MAX_AT_ONCE, from_rows
from calibrant.stability.subsets import CurveSource

SOURCES = ("replicates", "sample")
# Of a sample: a few seconds.
MAX_SAMPLED = 500
_NOT_CARRIED = ("not_replicated", "classes_not_replicated", "scope_not_replicated")


def curves_of(view: View, metric: Metric, source: str | None = None) -> tuple[View, CurveSource]:
    """Return the view that subsets are drawn from, and how the metric's curves are computed on it.

    Parameters
    ----------
    source : of a stored state, one of `SOURCES`. Default: the replicates, or the sample where they do not carry the
        metric; errors over cases are of the cases, whatever its value

    Raises
    ------
    CalibrationInputError
        Another source.
    NoResultError
        Neither the state nor the rows support this metric on parts of the data.
    """
    if source is not None:
        check_one_of("source", source, SOURCES)
    if isinstance(metric, CaseMetric):
        return view, from_cases(view, metric)
    if view.is_raw:
        return view, from_rows(view, metric, {"source": "rows"})
    if source != "sample":
        try:
            return view, replicate_curves(view, metric)
        except NoResultError as rejection:
            if source == "replicates" or rejection.reason not in _NOT_CARRIED:
                raise
    sampled, about = _sampled(view)
    return sampled, from_rows(sampled, metric, about)


def _sampled(view: View) -> tuple[View, Extra]:
    """Return the stored sample as raw rows; a uniform part of it if it is large."""
    copies = view.spec.n_classes if view.scope == "all" else 1
    batch, source = available_batch(view, max(min(MAX_SAMPLED, MAX_AT_ONCE // copies), 2))
    about = {"source": source, "n_sample": batch.n, "n_drawn_from": view.counts["n_labelled"]}
    return View(view.pane, view.pane_query, batch), about
