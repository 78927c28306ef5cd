"""Cases: errors of each image or study, as numbers or drawn."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.case_errors import AVERAGE, CASE_OPTIONS
from service.case_diagrams import draw_boxes, draw_histogram, draw_reliability_boxes
from service.comparing import against_model
from service.dependencies import IfNoneMatch, Prefer, Reader, TheConnection, TheReading
from service.document import answers, problems
from service.estimates import WindowShown
from service.names import PATTERN, ModelId
from service.pictures import Format, drawn, media_type_of, or_drawn
from service.queries import (
    Edges,
    Raters,
    WindowQuery,
    class_index,
    options_query,
    unanswerable,
)
from service.reading import JSON, Ask
from service.reception import model_of
from workers.state.registry import ModelConfig

router = APIRouter(tags=["read"], default_response_class=Response)

MOST_BINS = 100
# The answer holds every average, so that none is asked for.
CaseOptionsQuery: Any = options_query(
    "CaseOptionsQuery", [each for each in CASE_OPTIONS if each is not AVERAGE]
)
Draw = Callable[[dict[str, Any], str], bytes]
DRAWINGS: dict[str, Draw] = {"boxes": draw_boxes, "reliability": draw_reliability_boxes}


class CasesQuery(WindowQuery, CaseOptionsQuery):
    """How cases are binned and which classes count; what is drawn of them."""

    bins: int = Field(15, ge=1, le=MOST_BINS, description="Divisors of 600, for soft bins of 300.")
    edges: Edges = Field("right", description="Of hard bins; left as the papers have it.")
    raters: Raters = "pooled"
    frequency_bins: int | None = Field(
        None, ge=1, le=MOST_BINS, description="Of the histogram's observed frequency; else `bins`."
    )
    case: str | None = Field(
        None, max_length=200, description="One case, whose reliability table is added."
    )
    against_model: Annotated[str, Field(pattern=f"^{PATTERN}$")] | None = Field(
        None, description="Another model over the same window, whose cases of the same name are paired with these."
    )
    format: Format | None = Field(None, description="In place of the header Accept.")
    figure: Literal["histogram", "boxes", "reliability"] = Field(
        "histogram", description="What an image shows."
    )
    class_: str | None = Field(
        None, alias="class", max_length=200, description="Of the drawn histogram; else all classes."
    )


class Case(BaseModel):
    """One case; errors and Dice with `mean` over its classes and `by_class`."""

    model_config = ConfigDict(extra="allow")

    case: str
    weight: float
    present: list[bool] = Field(description="By class: whether a rating of it is there.")
    counted: list[bool] = Field(description="By class: whether it counts in the averages.")


class CasesAnswer(BaseModel):
    """Every kept case, averages and boxes over cases, and the dataset reliability histogram."""

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
    boxes: dict[str, Any] | None = Field(description="By measure: what a box plot draws.")
    histogram: dict[str, Any] | None = Field(
        description="How many cases have, in a bin of confidence, which observed frequency."
    )
    reliability: list[dict[str, Any]] = Field(description="By bin, with a box over cases.")
    case: dict[str, Any] | None = Field(None, description="Of the asked case: a table a class.")
    comparison: dict[str, Any] | None = Field(
        None, description="With `against_model`, by measure: paired t-test, Wilcoxon, permutation; `by_class`."
    )
    reason: str | None = None


CASES = answers(CasesAnswer, "The cases, or a drawing of them", ETag="State and query.")


@router.get(
    "/v1/models/{model}/cases",
    operation_id="listCases",
    responses={
        200: or_drawn(CASES),
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def list_cases(
    model: ModelId,
    request: Request,
    caller: Reader,
    query: Annotated[CasesQuery, Query()],
    connection: TheConnection,
    reading: TheReading,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Response:
    """Return the errors of every case as JSON, or a drawing of them as SVG or PNG."""
    config = await model_of(connection, caller, model)
    media_type = media_type_of(query.format, request)
    shown = ("format", "figure", "class_")
    params = {name: value for name, value in query.params().items() if name not in shown}
    draw = drawing(query, config)
    if media_type != JSON:
        # The ETag is of the drawing, and so of what it shows.
        params |= {"figure": query.figure, "class": query.class_}
    ask = Ask("cases", config, params, query)
    if query.against_model is not None:
        ask = await against_model(
            ask, query.against_model, "cases_difference", caller, connection, reading
        )
    return await reading.answer(request, ask, media_type, drawn(draw, media_type))


def drawing(query: CasesQuery, config: ModelConfig) -> Draw:
    """Return how the asked figure is drawn; a class that does not count is refused."""
    if query.class_ is None:
        return DRAWINGS.get(query.figure, draw_histogram)
    if query.figure != "histogram":
        raise unanswerable("/class", "one_of", "One class is drawn of the histogram alone.")
    place = class_index(query.class_, config, "/class")
    if query.background != "in":
        place -= 1
    if place < 0:
        detail = "Class 0 is the background, which does not count; ask with background=in."
        raise unanswerable("/class", "background", detail)
    return partial(draw_histogram, of_class=place)
