"""Bound of the metrics of one request: metrics, parts, slice values and sides are counted before anything is read.

A unit is about a millisecond of CPU. `python -m benchmarks.request_costs` measures the costliest requests that are accepted.
"""

from __future__ import annotations

from collections.abc import Collection

from calibrant.core.errors import CalibrationInputError
from calibrant.metrics import MetricRequest, requested

MAX_WORK = 1000
_METRIC, _PART, _SLICE, _DIFFERENCE = 2, 3, 20, 3
# In each part of a series, whose sides are also merged for it.
_DIFFERENCE_IN_PARTS = 6
# Units that a metric takes in addition in each part of a series: it draws labels and fits a curve to each draw.
_MORE_IN_PARTS = {"corp_miscalibration": 5}
# So many bins of a metric beyond the default number are a unit.
_BINS, _DEFAULT_BINS = 8, 15
# Metrics that order cells again and again, smooth them, or compare rows with each other.
_SLOW_METRIC = 50
SLOW = frozenset(
    {"auc", "ks", "kuiper", "smooth_ece", "zhang_kde_ece", "kde_ece", "skce", "canonical_ce"}
)


def metric_work(
    metrics: Collection[str | MetricRequest],
    bins: int = _DEFAULT_BINS,
    is_compared: bool = False,
    in_parts: bool = False,
) -> int:
    """Return the units of these metrics of one window.

    Parameters
    ----------
    metrics : requests, or their keys
    bins : of the metrics whose request sets no other number
    is_compared : there are two windows, and the differences of the metrics
    in_parts : it is one of the parts of a series

    >>> metric_work(["ece", "brier"]), metric_work(["ece", "auc"]), metric_work(["ece(bins=1200)"])
    (4, 52, 150)
    >>> metric_work(["ece", "brier"], is_compared=True)
    12
    >>> metric_work(["ece", "brier"], is_compared=True, in_parts=True)
    24
    """
    found = [each for some in metrics for each in _read(some)]
    work = sum(_SLOW_METRIC if each.metric.slug in SLOW else _METRIC for each in found)
    if in_parts:
        work += sum(_MORE_IN_PARTS.get(each.metric.slug, 0) for each in found)
    work += sum(
        max(0, int(dict(each.options).get("bins", bins)) - _DEFAULT_BINS) // _BINS
        for each in found
        if "bins" in each.metric.options
    )
    if not is_compared:
        return work
    return work * (_DIFFERENCE_IN_PARTS if in_parts else _DIFFERENCE)


def _read(metric: str | MetricRequest) -> list[MetricRequest]:
    return requested([metric]) if isinstance(metric, str) else [metric]


def reject_costly_metrics(
    pointer: str,
    metrics: Collection[str | MetricRequest],
    *,
    n_parts: int = 1,
    n_slices: int = 1,
    bins: int = _DEFAULT_BINS,
    is_compared: bool = False,
    at_most: int = MAX_WORK,
) -> None:
    """Reject metrics of more parts and slice values than one request may have.

    Parameters
    ----------
    pointer : the parameter that makes them many
    n_parts : parts of a series that have data
    n_slices : values of a slice key, or models
    bins, is_compared : as in `metric_work`
    at_most : units of work

    Raises
    ------
    CalibrationInputError
        The rule is `too_many_values`. The detail has the number that these metrics allow.
    """
    each = metric_work(metrics, bins, is_compared, in_parts=n_parts > 1)
    work = n_slices * (_SLICE * (n_slices > 1) + n_parts * (_PART * (n_parts > 1) + each))
    if work <= at_most:
        return
    parts = f"{n_parts} parts" if n_parts > 1 else ""
    slices = f"{n_slices} slice values" if n_slices > 1 else ""
    named = " of ".join(filter(None, (parts, slices))) or "one window"
    detail = (
        f"Received {len(metrics)} metrics of {named}: {work} units of work; expected at most {at_most}. "
        f"These metrics take {each} units each time. Request fewer metrics or bins, longer parts, a shorter window or single slices."
    )
    raise CalibrationInputError.at(pointer, "too_many_values", detail)
