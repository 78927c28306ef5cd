"""Cases: errors of each image or study, as numbers or drawn."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.figures.case_boxes import draw_boxes
from calibrant_server.service.figures.case_histogram import draw_histogram
from calibrant_server.service.figures.case_reliability import draw_one_case, draw_reliability_boxes
from calibrant_server.service.figures.case_sensitivity import draw_sensitivity
from calibrant_server.service.openapi.schema import answers
from calibrant_server.service.reads.dependencies import TheRead
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.figures import Draw, Format, or_drawn
from calibrant_server.service.reads.queries import (
    AgainstQuery,
    ClockQuery,
    invalid_query,
    unanswerable,
)
from calibrant_server.workers.queries.kinds.cases import CasesQuery
from calibrant_server.workers.queries.query import class_index
from calibrant_server.workers.store.registry import ModelConfig

router = APIRouter(tags=["cases"], default_response_class=Response)

DRAWINGS: dict[str, Callable[..., bytes]] = {
    "histogram": draw_histogram,
    "boxes": draw_boxes,
    "reliability": draw_reliability_boxes,
    "case": draw_one_case,
    "sensitivity": draw_sensitivity,
}
OF_ONE_CLASS = ("histogram", "case")


class CasesParameters(ClockQuery, AgainstQuery, CasesQuery):
    """How cases are binned and which classes count; which cases of the same names they are paired with; the figure."""

    format: Format | None = Field(None, description="Instead of the header Accept.")
    figure: Literal["histogram", "boxes", "reliability", "case", "sensitivity"] = Field(
        "histogram", description="What an image shows; `case` is the one that `case` names."
    )
    class_: str | None = Field(
        None,
        alias="class",
        max_length=200,
        description="Class of the figure. Default: all classes.",
    )


class Case(BaseModel):
    """One case; errors and Dice with `mean` over its classes and `by_class`."""

    model_config = ConfigDict(extra="allow")

    case: str
    weight: float
    present: list[bool] = Field(description="By class: whether a rating of it is there.")
    counted: list[bool] = Field(description="By class: whether it counts in the averages.")


class CasesResponse(BaseModel):
    """Every stored case, averages and box plots over cases, and the dataset reliability histogram."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    raters: str
    bins: int
    edges: str
    n: int
    n_cases: int
    n_cases_kept: int | None = Field(None, description="Those with a table of their own.")
    n_missing: int | None = Field(None, description="Classes that a case has no rating of.")
    classes: list[str] | None = Field(None, description="Those that count, by name or index.")
    cases: list[Case]
    summary: dict[str, dict[str, Any]] | None = Field(
        description="By measure: macro, micro and micro_pooled averages."
    )
    boxes: dict[str, Any] | None = Field(description="By measure: the numbers of a box plot.")
    histogram: dict[str, Any] | None = Field(
        description="How many cases have, in a bin of confidence, which observed frequency."
    )
    reliability: list[dict[str, Any]] = Field(description="By bin, with a box over cases.")
    case: dict[str, Any] | None = Field(
        None, description="Of the requested case: one table per class."
    )
    sensitivity: list[dict[str, Any]] | None = Field(None, description="By number of bins.")
    comparison: dict[str, Any] | None = Field(
        None,
        description="With `against`, by measure: paired t-test, Wilcoxon, permutation; `by_class`.",
    )
    reason: str | None = None


CASES = answers(CasesResponse, "The cases, or a figure", ETag="State and query.")


@router.get("/v1/models/{model}/cases", operation_id="listCases", responses=or_drawn(CASES))
async def list_cases(read: TheRead, query: Annotated[CasesParameters, Query()]) -> Response:
    """Return the metrics of every case as JSON, or a figure as SVG or PNG."""
    draw = drawing(query, await read.config())
    if query.figure == "sensitivity":
        query = query.model_copy(update={"include": "sensitivity"})
    ask = await read.ask(query, figure=query.figure, class_=query.class_)
    return await read.answer(ask, query.format, draw)


def drawing(query: CasesParameters, config: ModelConfig) -> Draw:
    """Return the function of the requested figure; reject a class that does not count and a missing case."""
    if query.figure == "case" and query.case is None:
        raise unanswerable("/case", "missing", "The figure of one case needs its name in `case`.")
    draw = DRAWINGS[query.figure]
    if query.class_ is None:
        return draw
    if query.figure not in OF_ONE_CLASS:
        detail = f"One class is drawn of the figures {', '.join(OF_ONE_CLASS)} alone."
        raise unanswerable("/class", "one_of", detail)
    try:
        place = class_index(query.class_, config, "/class") - (not query.counts_background)
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    if place < 0:
        detail = "Class 0 is the background, which does not count; request metric=ml1_ece(background=in)."
        raise unanswerable("/class", "background", detail)
    return partial(draw, of_class=place)
