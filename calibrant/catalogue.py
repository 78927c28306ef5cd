"""The catalogue of metrics: what `METRICS` declares, as plain values."""

from __future__ import annotations

from calibrant.core.query import Option
from calibrant.metrics import DEFAULT_METRICS, METRICS
from calibrant.metrics.base import Metric
from calibrant.metrics.requests import SHARED, options_of, plain

REQUIREMENTS = {
    "cases": "predictions with `cases`",
    "classes": "cells of every class: at most 64 classes, or those listed",
    "disagreement": "at least two ratings of a prediction",
    "label_bins": "cells of every class: at most 64 classes, or those listed",
    "label_distribution": "at least two ratings of a prediction",
    "label_uncertainty": "at least two ratings of a prediction",
    "sample": "complete rows: posted ones, or the stored sample",
}


def catalogue(search: str | None = None) -> list[dict[str, object]]:
    """Describe every metric, or those that a search word, a slug or a title means.

    Parameters
    ----------
    search : letters and digits are compared, in any case

    Examples
    --------
    >>> [each["slug"] for each in catalogue("mr-ece")]
    ['ece']
    """
    return [described(each) for each in METRICS.values() if search is None or means(each, search)]


def means(metric: Metric, search: str) -> bool:
    """Return whether a slug, a title, a search word or the source of the metric contains what is searched for."""
    texts = (metric.slug, metric.title, *metric.search_words, metric.source)
    return any(plain(search) in plain(each) for each in texts)


def described(metric: Metric) -> dict[str, object]:
    """Describe one metric."""
    required = dict.fromkeys(REQUIREMENTS[need] for need in metric.needs if need in REQUIREMENTS)
    return {
        "slug": metric.slug,
        "title": metric.title,
        "source": metric.source,
        "formula": metric.formula,
        "unit": metric.unit,
        "range": list(metric.range),
        "direction": metric.direction,
        "default": metric.slug in DEFAULT_METRICS,
        "exactness": "exact" if metric.exact else "estimated",
        "requires": list(required),
        "options": [option_of(each) for each in options_of(metric).values()],
        "search_words": [
            {"word": word, "with": implied or None} for word, implied in metric.search_words.items()
        ],
    }


def option_of(option: Option) -> dict[str, object]:
    """Describe an option; a shared one may be a parameter of the request, and its default depends on the model."""
    return {
        "name": option.name,
        "description": option.description,
        "default": option.default,
        "shared": option.name in SHARED,
        "allowed": list(option.allowed) or None,
        "low": option.low,
        "high": option.high,
    }
