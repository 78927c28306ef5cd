"""A calibration map fitted to a window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from calibrant.calibrators import MAPS, Options, fit
from calibrant.calibrators.gain_over_other_map import gain_over_other_map
from calibrant.calibrators.recommendation import recommend
from calibrant.calibrators.softmax import MAX_CURVED
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import Option, PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.metrics.requests import Value, parse, read_option, shortest
from calibrant.results.models import class_index
from calibrant.results.weights import Weighted, Weights, weighted
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.query import (
    CI,
    Binning,
    Including,
    Query,
    Raters,
    include_field,
)
from calibrant_server.workers.store.model_config import ModelConfig

PARTS = ("recommendation", "heldout")
_READ = (
    "counts",
    "histograms",
    "replicates",
    "top_label",
    "positive",
    "classes",
    "temperature",
    "sample",
)
_OF_OTHER = ("method", "scope", "class", "parameters", "digest", "n", "before", "after", "reason")
OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("centred", "false", "Isotonic with one point per block.", allowed=("false", "true")),
        Option(
            "regularisation",
            0.0,
            "Factor of the mean square of deviations from the temperature; 0: chosen by the data.",
            low=0.0,
            high=1e8,
        ),
        Option("knots", 6, "Knots of the spline, equidistant in quantiles.", low=3, high=30),
        Option(
            "shrunk",
            "true",
            "Shrink the spline to the scores as sent; false as published.",
            allowed=("true", "false"),
        ),
    )
}


class MapFitQuery(Including):
    """Which map, fitted to what."""

    kind: ClassVar[str] = "calibration_map"
    parts: ClassVar[tuple[str, ...]] = PARTS

    method: str = Field(
        "temperature",
        max_length=200,
        description=f"One of {', '.join(MAPS)}, with its options in brackets: dirichlet(regularisation=0.1). "
        "GET /v1/calibrators lists them.",
    )
    raters: Raters = "pooled"
    bins: int | None = Field(
        None,
        ge=1,
        le=1200,
        description="Number of bins, for methods with bins; one that the model's grid gives exactly, if they have equal width. "
        "Default: 15, or the nearest exact number.",
    )
    binning: Binning = Field("equal_width", description="Binning, for methods with bins.")
    ci: float = CI
    class_: str | None = Field(
        None,
        alias="class",
        max_length=200,
        description="One class against the rest, by name or index.",
    )
    include: str | None = include_field(PARTS)

    def resolved(self, config: ModelConfig) -> Query:
        slug, given = read_method(self.method)
        listed = ",".join(f"{name}={shortest(value)}" for name, value in given.items())
        place = None if self.class_ is None else str(class_index(self.class_, config, "/class"))
        if place is not None and "class" not in MAPS[slug].scopes:
            others = ", ".join(name for name, each in MAPS.items() if "class" in each.scopes)
            detail = f"Received class, but {slug} does not map one class alone. Leave class out, or choose one of {others}."
            raise CalibrationInputError.at("/class", "one_of", detail)
        self._reject_unused(slug)
        self._check_bins(config, place)
        method = f"{slug}({listed})" if listed else slug
        return self.own(method=method, class_=place, include=self.canonical_include())

    def _reject_unused(self, slug: str) -> None:
        """Reject bins and a binning that the method does not read.

        Raises
        ------
        CalibrationInputError
            As described.
        """
        for name in ("bins", "binning"):
            if name in self.model_fields_set and not self.reads(name):
                others = ", ".join(each for each, map_ in MAPS.items() if name in map_.options)
                detail = f"Received {name}, which {slug} does not read. Leave it out, or choose one of {others}."
                raise CalibrationInputError.at(f"/{name}", "not_taken", detail)

    def _check_bins(self, config: ModelConfig, place: str | None) -> None:
        """Check that the model's panes give the bins of a map with bins of equal width.

        Raises
        ------
        CalibrationInputError
            They do not.
        """
        if self.bins is not None and self.binning == "equal_width" and self.reads("binning"):
            scope = None if place is None else f"class:{place}"
            PaneQuery(bins=self.bins, scope=scope).check(config.spec())

    def reads(self, option: str) -> bool:
        """Whether the method reads an option."""
        return option in MAPS[self.slug].options

    @property
    def slug(self) -> str:
        """The method, without its options."""
        return read_method(self.method)[0]

    def view_of(self, pane: Pane) -> tuple[View, Options]:
        """Return the view that a map is fitted to, and what the method reads."""
        given = dict(read_method(self.method)[1])
        scope = None if self.class_ is None else f"class:{self.class_}"
        bins = default_bins(pane.spec, scope)
        pane_query = PaneQuery(bins=bins, raters=self.raters, scope=scope, ci=self.ci)
        options = Options(
            bins=self.bins or bins,
            binning=self.binning,
            centred=given.get("centred") == "true",
            regularisation=float(given.get("regularisation", Options.regularisation)),
            knots=int(given.get("knots", Options.knots)),
            shrunk=given.get("shrunk", "true") == "true",
        )
        return View(pane, pane_query), options


class CalibrationMapQuery(MapFitQuery):
    """Which map, fitted to what, under which weights."""

    kind: ClassVar[str] = "calibration_map"

    weights: Weights = Field(
        "prediction",
        description="prediction: as sent. unit: every unit (patient, item) has weight one, as in the drift alarm.",
    )


def read_method(text: str) -> tuple[str, dict[str, Value]]:
    """Read a method and the options in its brackets, sorted, without its defaults.

    Raises
    ------
    CalibrationInputError
        An unknown method or option, or a value that the option does not allow.
    """
    slug, written = parse(text, "/method")
    if slug not in MAPS:
        detail = f"{slug!r} is not a method; expected one of {', '.join(MAPS)}."
        raise CalibrationInputError.at("/method", "unknown_value", detail)
    taken = {name: option for name, option in OPTIONS.items() if name in MAPS[slug].options}
    given = {
        name: read_option(slug, name, value, taken, "/method")
        for name, value in sorted(written.items())
    }
    return slug, {name: value for name, value in given.items() if value != OPTIONS[name].default}


def accumulators(query: CalibrationMapQuery) -> Iterable[str]:
    """Everything that some map reads, where the model's panes store it."""
    return _READ


def is_slow(query: CalibrationMapQuery) -> bool:
    """Maps with parameters per class take seconds: several strengths of shrinkage, and folds."""
    return MAPS[query.slug].solve_rows is not None


def compute(query: CalibrationMapQuery, inputs: Inputs) -> Result:
    """Parameters and losses before and after; the requested parts."""
    return _fitted(query, weighted(inputs.pane, query.weights, query.raters))


def _reject_too_small(found: Result) -> None:
    """Reject a map with more parameters than the sample can determine, with the numbers needed."""
    method, reason = found["method"], found["reason"]
    if reason == "too_many_classes":
        detail = f"Received {method} with {found['n_parameters']} parameters; expected at most {MAX_CURVED}. Choose a map with fewer."
        raise CalibrationInputError.at("/method", reason, detail)
    if reason == "few_rows" and "n_units_needed" in found:
        where = " in the stored sample" if found["fitted_to"] == "sample" else ""
        detail = (
            f"Received {found['n_units_fitted']} independent units{where} for {found['n_parameters']} parameters of "
            f"{method}; expected at least {found['n_units_needed']}. Use a longer window or a map with fewer parameters."
        )
        raise CalibrationInputError.at("/method", "few_units", detail)


def _fitted(query: CalibrationMapQuery, inputs: Weighted) -> Result:
    view, options = query.view_of(inputs.pane)
    found = fit(query.slug, view, options, evaluate="heldout" in query.included)
    _reject_too_small(found)
    found |= inputs.about
    if "heldout" not in query.included:
        del found["heldout"], found["heldout_reason"]
    return found | (recommend(view) if "recommendation" in query.included else {})


def compare(query: CalibrationMapQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, with the other side's map and the gain over it on this window's labels."""
    reject_other_classes(inputs.config, other.config)
    own, others = (
        weighted(inputs.pane, query.weights, query.raters),
        weighted(other.pane, query.weights, query.raters),
    )
    theirs = fit(query.slug, *query.view_of(others.pane), evaluate=False)
    view, options = query.view_of(own.pane)
    shown = {name: theirs[name] for name in _OF_OTHER if name in theirs}
    mine = _fitted(query, own)
    about = {"n": mine["n"], "against": other_side(against, own.pane, other) | {"map": shown}}
    return mine | gain_over_other_map(theirs, view, query.slug, options) | about


KIND = ResultKind(CalibrationMapQuery, compute, accumulators, compare, is_slow=is_slow)
