"""Which calibration map is fitted, to what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.calibrators import MAPS, Options
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import Option, PaneQuery, default_bins
from calibrant.core.view import View
from calibrant.metrics.requests import Value, parse, read_option, shortest
from calibrant.results.base import says
from calibrant.results.models import Model, class_index
from calibrant.results.queries import Binning, costly_parts, in_order
from calibrant.results.reads import Query, Raters, label_policy, level
from calibrant.results.weights import Weights, weights_of_rows

TOP_LABEL = "top_label"
PARTS = ("recommendation", "heldout")
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


@dataclass(frozen=True, kw_only=True)
class MapFitQuery(Query):
    """Which map, fitted to what."""

    method: str = says(
        f"One of {', '.join(MAPS)}, with its options in brackets: dirichlet(regularisation=0.1). "
        "GET /v1/calibrators lists them.",
        "temperature",
        max_length=200,
    )
    raters: Raters = label_policy()
    bins: int | None = says(
        "Number of bins, for methods with bins; one that the model's grid gives exactly, if they have equal width. "
        "Default: 15, or the nearest exact number.",
        None,
        ge=1,
        le=1200,
    )
    binning: Binning = says("Binning, for methods with bins.", "equal_width")
    ci: float = level()
    class_: str | None = says(
        "One class against the rest, by name or index; top_label.", None, max_length=200
    )
    include: str | None = costly_parts(PARTS)

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        slug, options = read_method(self.method)
        listed = ",".join(f"{name}={shortest(value)}" for name, value in options.items())
        place = None if self.class_ is None else _place(self.class_, model)
        if place is not None and "class" not in MAPS[slug].scopes:
            others = ", ".join(name for name, each in MAPS.items() if "class" in each.scopes)
            detail = f"Received class, but {slug} does not map one class alone. Leave class out, or choose one of {others}."
            raise CalibrationInputError.at("/class", "one_of", detail)
        self._reject_unused(slug, given)
        self._check_bins(model, place)
        method = f"{slug}({listed})" if listed else slug
        return {"method": method, "class_": place, "include": in_order(self.include, PARTS)}

    def _reject_unused(self, slug: str, given: Collection[str]) -> None:
        """Reject bins and a binning that the method does not read.

        Raises
        ------
        CalibrationInputError
            As described.
        """
        for name in ("bins", "binning"):
            if name in given and not self.reads(name):
                others = ", ".join(each for each, map_ in MAPS.items() if name in map_.options)
                detail = f"Received {name}, which {slug} does not read. Leave it out, or choose one of {others}."
                raise CalibrationInputError.at(f"/{name}", "not_taken", detail)

    def _check_bins(self, model: Model, place: str | None) -> None:
        """Check that the model's panes give the bins of a map with bins of equal width.

        Raises
        ------
        CalibrationInputError
            They do not.
        """
        if self.bins is not None and self.binning == "equal_width" and self.reads("binning"):
            scope = _scope(place)
            PaneQuery(bins=self.bins, scope=scope).check(model.spec())

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
        scope = _scope(self.class_)
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


@dataclass(frozen=True, kw_only=True)
class CalibrationMapQuery(MapFitQuery):
    """Which map, fitted to what, under which weights."""

    weights: Weights = weights_of_rows()


def _place(name: str, model: Model) -> str:
    """Return the index of a class, or the top label unless a class has that name."""
    if name == TOP_LABEL and name not in (model.classes or ()):
        return name
    return str(class_index(name, model, "/class"))


def _scope(place: str | None) -> str | None:
    return place if place in (None, TOP_LABEL) else f"class:{place}"


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
