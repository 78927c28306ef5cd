"""The catalogues of metrics and of methods of recalibration: what `METRICS` and `MAPS` declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calibrant.calibrators import MAPS
from calibrant.core.query import Option
from calibrant.metrics import DEFAULT_METRICS, METRICS
from calibrant.metrics.metric import Metric
from calibrant.metrics.requests import SHARED, options_of, plain
from calibrant.results.base import Result, says
from calibrant.results.map_query import OPTIONS

REQUIREMENTS = {
    "cases": "predictions with `cases`",
    "classes": "cells of every class: at most 64 classes, or those listed",
    "disagreement": "at least two ratings of a prediction",
    "label_bins": "cells of every class: at most 64 classes, or those listed",
    "label_distribution": "at least two ratings of a prediction",
    "label_uncertainty": "at least two ratings of a prediction",
    "sample": "complete rows: posted ones, or the stored sample",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class CatalogueOption(Result):
    """An option, written in the brackets of the slug."""

    name: str
    description: str
    default: str | int | float = says(
        "For a shared option: the default if the model does not determine it."
    )
    shared: bool = says("Whether it may also be a parameter of the request.")
    allowed: list[str | int] | None = says("Every allowed value, if they are listed.")
    low: float | None
    high: float | None

    @classmethod
    def of(cls, option: Option) -> CatalogueOption:
        """Describe an option; a shared one may be a parameter of the request."""
        return cls(
            name=option.name,
            description=option.description,
            default=option.default,
            shared=option.name in SHARED,
            allowed=list(option.allowed) or None,
            low=option.low,
            high=option.high,
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchWord(Result):
    """A name of the metric in papers and elsewhere."""

    word: str
    with_: str | None = says("Parameters that the name implies.")


@dataclass(frozen=True, kw_only=True, repr=False)
class MetricEntry(Result):
    """One metric."""

    slug: str
    title: str
    source: str = says("Paper and authors.")
    formula: str
    unit: str
    range: list[float | None] = says("Lowest and highest value; null if unbounded.")
    direction: Literal["lower", "higher", "zero", "one"] = says("Which value is better.")
    default: bool = says("Whether `GET metrics` returns it by default.")
    exactness: Literal["exact", "estimated"] = says(
        "exact: the stored state gives the value of the raw rows, to rounding. estimated: from cells or "
        "from the stored sample, with `error_bound` where there is one."
    )
    requires: list[str]
    options: list[CatalogueOption]
    search_words: list[SearchWord]


@dataclass(frozen=True, kw_only=True, repr=False)
class MetricCatalogue(Result):
    """Every metric, by slug."""

    metrics: list[MetricEntry]


@dataclass(frozen=True, kw_only=True, repr=False)
class CalibratorEntry(Result):
    """One method of recalibration."""

    slug: str
    title: str
    source: str = says("Paper and authors.")
    input: str = says("What the formula takes: logit, probability or probabilities.")
    objective: str = says("The loss that the fit minimises.")
    scopes: list[str] = says("Which probabilities it maps.")
    fitted_to: Literal["state", "rows"] = says(
        "state: the stored sums, which describe all data. rows: the stored sample, or posted rows."
    )
    options: list[CatalogueOption]
    parameters: list[str] = says("Parameters of the request that it reads.")


@dataclass(frozen=True, kw_only=True, repr=False)
class CalibratorCatalogue(Result):
    """Every method, by slug."""

    calibrators: list[CalibratorEntry]


def catalogue(search: str | None = None) -> MetricCatalogue:
    """Describe every metric, or those that a search word, a slug or a title means.

    Parameters
    ----------
    search : letters and digits are compared, in any case

    Examples
    --------
    >>> [each.slug for each in catalogue("mr-ece").metrics]
    ['ece']
    """
    found = [each for each in METRICS.values() if search is None or means(each, search)]
    return MetricCatalogue(metrics=[described(each) for each in found])


def means(metric: Metric, search: str) -> bool:
    """Return whether a slug, a title, a search word or the source of the metric contains what is searched for."""
    texts = (metric.slug, metric.title, *metric.search_words, metric.source)
    return any(plain(search) in plain(each) for each in texts)


def described(metric: Metric) -> MetricEntry:
    """Describe one metric."""
    required = dict.fromkeys(REQUIREMENTS[need] for need in metric.needs if need in REQUIREMENTS)
    words = metric.search_words.items()
    return MetricEntry(
        slug=metric.slug,
        title=metric.title,
        source=metric.source,
        formula=metric.formula,
        unit=metric.unit,
        range=list(metric.range),
        direction=metric.direction,  # type: ignore[arg-type]  # one of these by its declaration
        default=metric.slug in DEFAULT_METRICS,
        exactness="exact" if metric.exact else "estimated",
        requires=list(required),
        options=[CatalogueOption.of(each) for each in options_of(metric).values()],
        search_words=[SearchWord(word=word, with_=implied or None) for word, implied in words],
    )


def calibrators() -> CalibratorCatalogue:
    """Describe every method of recalibration."""
    entries = [
        CalibratorEntry(
            slug=each.slug,
            title=each.title,
            source=each.source,
            input=each.input,
            objective=each.objective,
            scopes=list(each.scopes),
            fitted_to="rows" if each.solve_rows is not None else "state",
            options=[CatalogueOption.of(OPTIONS[name]) for name in each.options if name in OPTIONS],
            parameters=[name for name in each.options if name not in OPTIONS],
        )
        for each in MAPS.values()
    ]
    return CalibratorCatalogue(calibrators=entries)
