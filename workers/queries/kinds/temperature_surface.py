"""The losses of a model of two classes over one temperature for each class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from calibrant.calibrators.temperature.surface_report import POINTS, surface_report
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.input.names import MAX_LENGTH
from calibrant.results.models import bins_of
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    reject_other_classes,
    result_of_other,
    side_name,
)
from calibrant_server.workers.queries.query import Query, Raters
from calibrant_server.workers.store.model_config import ModelConfig

SHOWN = (
    *("nll", "brier", "ece", "lowest", "source", "n_used", "nll_error_bound", "error_estimate"),
    *("reason", "detail"),
)


class SurfaceQuery(Query):
    """Over which temperatures."""

    kind: ClassVar[str] = "temperature_surface"

    raters: Raters = "pooled"
    points: int = Field(
        POINTS,
        ge=2,
        le=40,
        description="Number of temperatures per class, in equal ratios from 0.25 to 10.",
    )
    case: str | None = Field(
        None, max_length=MAX_LENGTH, description="One case instead of the window."
    )

    def resolved(self, config: ModelConfig) -> Query:
        if config.n_classes != 2:
            detail = f"Received a model of {config.n_classes} classes; expected 2, one temperature for each."
            raise CalibrationInputError.at("/model", "n_classes", detail)
        return self.own()


def accumulators(query: SurfaceQuery) -> Iterable[str]:
    """Counts, plain histograms, the cells of logits, and the stored sample; for a case its table."""
    if query.case is not None:
        return ("counts", "histograms", "cases", "logits")
    return ("counts", "histograms", "sample", "logits")


def compute(query: SurfaceQuery, inputs: Inputs) -> Result:
    """The surface; every loss None, with a `reason`, where there is none.

    Raises
    ------
    CalibrationInputError
        A case of which no table is stored.
    """
    bins = bins_of(inputs.config, "positive")
    view = View(inputs.pane, PaneQuery(bins=bins, edges="left", raters=query.raters))
    try:
        return {"reason": None} | surface_report(view, points=query.points, case=query.case)
    except NoResultError as rejection:
        if rejection.reason == "unknown_case":
            raise CalibrationInputError.at(
                "/case", rejection.reason, rejection.detail
            ) from rejection
        nothing: Result = dict.fromkeys(
            ("background", "foreground", "nll", "brier", "ece", "lowest")
        )
        return nothing | {"n": 0, "reason": rejection.reason, "detail": rejection.detail}


def compare(query: SurfaceQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same; `against` has the other side's losses at the same temperatures. A case that it lacks is a reason there."""
    reject_other_classes(inputs.config, other.config)
    mine = compute(query, inputs)
    theirs = result_of_other(compute, query, other, query.case)
    shown = {name: theirs[name] for name in SHOWN if name in theirs}
    return mine | {"against": side_name(against, other) | other.pane.counts | shown}


KIND = ResultKind(SurfaceQuery, compute, accumulators, compare)
