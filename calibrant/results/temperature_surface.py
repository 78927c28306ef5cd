"""The losses of a model of two classes over one temperature for each class."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calibrant.calibrators.temperature.surface_report import POINTS, surface_report
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.input.names import MAX_LENGTH
from calibrant.results.base import Result, may_say, says
from calibrant.results.models import Model, bins_of
from calibrant.results.reads import Query, Raters, State, label_policy, read

Lines = list[list[float | None]]
SHOWN = (
    *("nll", "brier", "ece", "lowest", "source", "n_used", "nll_error_bound", "error_estimate"),
    *("reason", "detail"),
)


@dataclass(frozen=True, kw_only=True)
class SurfaceQuery(Query):
    """Over which temperatures."""

    raters: Raters = label_policy()
    points: int = says(
        "Number of temperatures per class, in equal ratios from 0.25 to 10.", POINTS, ge=2, le=40
    )
    case: str | None = says("One case instead of the window.", None, max_length=MAX_LENGTH)

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        if model.n_classes != 2:
            detail = f"Received a model of {model.n_classes} classes; expected 2, one temperature for each."
            raise CalibrationInputError.at("/model", "n_classes", detail)
        return {}


@dataclass(frozen=True, kw_only=True, repr=False)
class Surface(Result):
    """Losses by the temperature of class 1 (rows) and of class 0 (columns)."""

    n: int
    source: Literal["sample", "cells", "case"] | None = may_say(
        "All rows of the window, cells of their logits, or those of one case."
    )
    n_used: int | None = may_say()
    nll_error_bound: Lines | None = may_say(
        "Proved bound of the error of `nll` if it is computed from cells. Null: exact."
    )
    error_estimate: dict[str, float] | None = may_say(
        "By loss: the largest estimated error, if it is computed from cells. Null: exact."
    )
    background: list[float] | None = says("Temperatures of class 0.")
    foreground: list[float] | None = says("Temperatures of class 1.")
    nll: Lines | None
    brier: Lines | None
    ece: Lines | None
    lowest: dict[str, dict[str, float] | None] | None = says(
        "By loss: the temperatures of its lowest value on the grid."
    )
    against: dict[str, Any] | None = may_say("The other side's losses at the same temperatures.")
    reason: str | None = may_say("`logits_not_kept`: predictions came as probabilities.")


@dataclass(frozen=True, kw_only=True)
class SurfaceShown:
    """What an image shows."""

    objective: Literal["nll", "brier", "ece"] = says("What an image shows.", "nll")


def _accumulators(query: SurfaceQuery) -> Iterable[str]:
    return ("counts", "histograms", "sample" if query.case is None else "cases", "logits")


def _compared(state: State, other: State, query: SurfaceQuery) -> Surface:
    """Return the surface; `against` has the other side's losses. A case that it lacks is a reason there."""
    theirs = temperature_surface.of_other(other, query, query.case)
    shown = {name: theirs[name] for name in SHOWN if name in theirs}
    against = {**other.name, **other.pane.counts, **shown}
    return temperature_surface(state, query).with_values(against=against)


@read(
    "temperature/surface",
    tag="temperature",
    response="The surface, or a figure",
    shown=SurfaceShown,
    is_map=True,
    accumulators=_accumulators,
    compare=_compared,
)
def temperature_surface(state: State, query: SurfaceQuery) -> Surface:
    """Return the losses over one temperature for each of two classes as JSON, SVG or PNG."""
    bins = bins_of(state.model, "positive")
    view = View(state.pane, PaneQuery(bins=bins, edges="left", raters=query.raters))
    try:
        found = surface_report(view, points=query.points, case=query.case)
    except NoResultError as rejection:
        if rejection.reason == "unknown_case":
            raise CalibrationInputError.at(
                "/case", rejection.reason, rejection.detail
            ) from rejection
        nothing = dict.fromkeys(("background", "foreground", "nll", "brier", "ece", "lowest"))
        found = {**nothing, "n": 0, "reason": rejection.reason, "detail": rejection.detail}
    return Surface.from_dict({"reason": None} | found)
