"""All available metrics, one per file. A file defines `METRIC` (or `METRICS`) and is discovered here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache

from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.core.query import Option, PaneQuery, check_options
from calibrant.core.view import NoResultError, View
from calibrant.inference.seeds import SEED
from calibrant.metrics.estimate import Estimate
from calibrant.metrics.metric import Metric
from calibrant.metrics.requests import MetricRequest, read_requests


@lru_cache(maxsize=1)
def discovered() -> dict[str, Metric]:
    """Return the folder's metrics by slug, in alphabetical order."""
    found: dict[str, Metric] = {}
    for module in pkgutil.iter_modules(__path__):
        content = importlib.import_module(f"{__name__}.{module.name}")
        for metric in getattr(content, "METRICS", ()) or filter(
            None, (getattr(content, "METRIC", None),)
        ):
            found[metric.slug] = metric
    return dict(sorted(found.items()))


METRICS = discovered()
OPTIONS: dict[str, Option] = {
    option.name: option for metric in METRICS.values() for option in metric.own_options
}
DEFAULT_METRICS = tuple(
    slug
    for slug in (
        "accuracy",
        "ece",
        "mce",
        "ace",
        "rmsce",
        "classwise_ece",
        "all_label_ece",
        "adaptive_ece",
        "debiased_ece",
        "brier",
        "nll",
        "corp_miscalibration",
    )
    if slug in METRICS
)


# Of shares of labels whose number of ratings is not known: accumulators of sums over ratings alone, none over pairs of ratings.
_SUMS = frozenset(
    {"scope", "own_score", "scores", "counts", "top_label", "positive", "classes", "all_labels"}
)
# Values that subtract, or compare with, the variance of single ratings.
_OF_RATINGS = ("debiased_ece", "l2_ece_squared", "kde_ece", "hosmer_lemeshow", "spiegelhalter_z")
# Means over predictions, whose interval is that of the mean of independent units.
_MEANS = ("accuracy", "brier", "nll")
# Accumulators of a scope's cells by its kind; all of them where it is not known.
_SCOPES = {
    "top_label": frozenset({"top_label"}),
    "positive": frozenset({"positive"}),
    "class": frozenset({"classes"}),
    "all": frozenset({"classes", "all_labels"}),
    "": frozenset({"top_label", "positive", "classes", "all_labels"}),
}


def is_error(slug: str) -> bool:
    """Return whether a metric is a calibration error: a probability that is 0 for a calibrated model of enough data."""
    metric = METRICS.get(slug)
    return metric is not None and metric.direction == "lower" and metric.unit == "probability"


def slug_of(key: str) -> str:
    """Return the slug of a metric without its options."""
    return key.partition("(")[0]


def title_of(key: str) -> str:
    """Return the title of a metric, with its options.

    >>> title_of("ece"), title_of("ece(bins=5)")
    ('Expected calibration error', 'Expected calibration error (bins=5)')
    """
    slug, bracket, options = key.partition("(")
    metric = METRICS.get(slug)
    return (metric.title if metric else slug) + (f" ({options}" if bracket else "")


def requested(
    texts: str | Iterable[str], pointer: str = "/metrics", shared: Collection[str] = ()
) -> list[MetricRequest]:
    """Read metrics as they are requested, such as `ece,lp_ece(order=3)`.

    Raises
    ------
    CalibrationInputError
        An unknown slug or option, or a value that the option does not allow.
    """
    parts = texts if isinstance(texts, str) else tuple(texts)
    if not isinstance(parts, str) and not all(isinstance(each, str) for each in parts):
        return read_requests(parts, METRICS, pointer, shared)
    return list(_requested(parts, pointer, frozenset(shared)))


@lru_cache(maxsize=256)
def _requested(
    texts: str | tuple[str, ...], pointer: str, shared: frozenset[str]
) -> tuple[MetricRequest, ...]:
    """Return what `requested` reads; one call of the library reads the same texts several times."""
    return tuple(read_requests(texts, METRICS, pointer, shared))


def chosen(slugs: Iterable[str]) -> list[Metric]:
    """Return the metrics of those requests, each once.

    Raises
    ------
    CalibrationInputError
        As `requested`.
    """
    return list({each.metric.slug: each.metric for each in requested(slugs)}.values())


def accumulators_for(
    slugs: Iterable[str], scope: str | None = None, own: str | None = None
) -> frozenset[str]:
    """Return the names of the accumulators that these metrics read.

    Parameters
    ----------
    slugs : requests
    scope : of the query, as the model has it; None for any. A request's own scope takes precedence.
    own : scope of the model's own score; None for any
    """
    names = {"counts", "histograms", "replicates"}
    for each in requested(slugs):
        its_scope = _SCOPES[_kind(dict(each.options).get("scope", scope))]
        read = {"scope": its_scope, "own_score": {own} if own else {"top_label", "positive"}}
        for need in each.metric.needs:
            names |= read.get(need, {need})
    return frozenset(names)


def _kind(scope: object) -> str:
    kind = str(scope).partition(":")[0]
    return kind if kind in _SCOPES else ""


def compute_metrics(view: View, slugs: Iterable[str], seed: int = SEED) -> dict[str, Result]:
    """Compute each requested metric as a JSON-able object: value, interval, null reference, n, and a reason where there is no number.

    Parameters
    ----------
    view : View
    slugs : requests, with options in brackets where they differ from the view's
    seed : of the resamples

    Returns
    -------
    dict by the canonical key of the request

    Raises
    ------
    CalibrationInputError
        An unknown name of a metric or of an option, or a value that an option does not allow.
    """
    return {key: estimate.to_dict() for key, estimate in estimates(view, slugs, seed).items()}


def estimates(view: View, slugs: Iterable[str], seed: int = SEED) -> dict[str, Estimate]:
    """Compute each metric as an `Estimate`, as `compute_metrics` does."""
    check_options(view.pane_query.options, OPTIONS)
    split = int(view.pane.units_split["n"]) if "unit_sample" in view.pane.names else None
    return {
        each.key: _estimate(each.metric, view_for(view, each), seed).of(
            each.key, view.counts, split
        )
        for each in requested(slugs, shared=view.pane_query.options)
    }


def view_for(view: View, request: MetricRequest) -> View:
    """Return the view under the options of a request; requests with the same options share it."""
    if not request.options:
        return view
    return view.once(
        ("view_for", request.options), lambda: view.with_query(request.pane_query(view.pane_query))
    )


def _estimate(metric: Metric, view: View, seed: int) -> Estimate:
    are_shares = view.notes.per_rating > 1
    try:
        if are_shares and not is_of_shares(metric.slug):
            detail = "It needs the number of ratings of each row: n_ratings."
            raise NoResultError("label_shares", detail)
        found = metric.estimate(view, seed).within(metric.range, metric.lowest_truth)
        return _without_ratings(metric, found) if are_shares else found
    except NoResultError as rejection:
        extra = {} if rejection.n_excluded is None else {"n_excluded": rejection.n_excluded}
        return Estimate(None, rejection.reason, rejection.detail, extra=extra)


def is_of_shares(key: str) -> bool:
    """Return whether a metric, by its slug or request, has a value of shares alone, whose number of ratings is not known."""
    metric = METRICS[slug_of(key)]
    return metric.slug not in _OF_RATINGS and set(metric.needs) <= _SUMS


def _without_ratings(metric: Metric, found: Estimate) -> Estimate:
    """Return an estimate without null reference, and with an interval only if it does not need the number of ratings."""
    of_chance = ("corrected", "bias", "range")
    extra = {name: each for name, each in found.extra.items() if name not in of_chance}
    extra["null_reason"] = "label_shares"
    if metric.slug in _MEANS:
        return replace(found, null=None, extra=extra)
    return replace(
        found, null=None, interval=None, extra=extra | {"interval_reason": "label_shares"}
    )


__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "OPTIONS",
    "Estimate",
    "Metric",
    "MetricRequest",
    "Option",
    "Pane",
    "PaneQuery",
    "View",
    "accumulators_for",
    "chosen",
    "compute_metrics",
    "estimates",
    "is_error",
    "is_of_shares",
    "requested",
    "slug_of",
    "title_of",
    "view_for",
]
