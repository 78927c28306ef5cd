"""Cases: errors of each image or study, as numbers or as a figure."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import Option
from calibrant.figures.case_boxes import draw_boxes
from calibrant.figures.case_histogram import draw_histogram
from calibrant.figures.case_reliability import draw_one_case, draw_reliability_boxes
from calibrant.figures.case_sensitivity import draw_sensitivity
from calibrant.metrics.requests import parse, read_option
from calibrant.results.models import class_index
from calibrant_server.service.http.lists import ListPage, PageQuery, link_to, page_of
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.figures import Draw, Format, or_drawn
from calibrant_server.service.reads.queries import (
    AgainstQuery,
    ClockQuery,
    invalid_query,
    unanswerable,
)
from calibrant_server.service.reads.service import JSON
from calibrant_server.workers.queries.kinds.cases import MAX_BINS, CaseParameters
from calibrant_server.workers.queries.query import Query as AnyQuery
from calibrant_server.workers.store.model_config import ModelConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

router = APIRouter(tags=["cases"], default_response_class=Response)

FIGURES: "dict[str, Callable[..., Figure]]" = {
    "histogram": draw_histogram,
    "boxes": draw_boxes,
    "reliability": draw_reliability_boxes,
    "case": draw_one_case,
    "sensitivity": draw_sensitivity,
}
CLASS = Option("class", "", "Class of the figure, by name or index. Default: all classes.")
FREQUENCY_BINS = Option(
    "frequency_bins",
    15,
    "Bins of the histogram's observed frequency. Default: `bins`.",
    low=1,
    high=MAX_BINS,
)
MIN_COUNT = Option(
    "min_count", 0.0, "Bins of a case with fewer samples are left out.", low=0.0, high=1e15
)
FIGURE_OPTIONS: dict[str, dict[str, Option]] = {
    "histogram": {"class": CLASS, "frequency_bins": FREQUENCY_BINS},
    "reliability": {"min_count": MIN_COUNT},
    "case": {"class": CLASS},
}


class CasesParameters(PageQuery, ClockQuery, AgainstQuery, CaseParameters):
    """How cases are binned and which classes count; which cases of the same names they are paired with; the figure."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )
    figure: str = Field(
        "histogram",
        max_length=300,
        json_schema_extra={"pattern": rf"^\s*({'|'.join(FIGURES)})\s*(\(.*\))?\s*$"},
        description="What an image shows: histogram, boxes, reliability, case (the one that `case` names) or sensitivity. "
        "Options in brackets: histogram(class=liver), case(class=2), histogram(frequency_bins=20), which also sets "
        "`histogram` of the response, and reliability(min_count=50), which sets its `reliability`.",
    )

    @property
    def figure_options(self) -> tuple[str, dict[str, Any]]:
        """Name and options of the figure.

        Raises
        ------
        CalibrationInputError
            An unknown figure, or an option that it does not take.
        """
        if self.figure.partition("(")[0].strip() not in FIGURES:
            detail = f"Received figure {self.figure[:60]!r}; expected one of {', '.join(FIGURES)}."
            raise CalibrationInputError.at("/figure", "one_of", detail)
        name, written = parse(self.figure, "/figure")
        options = FIGURE_OPTIONS.get(name, {})
        return name, {
            each: read_option(name, each, value, options, "/figure")
            for each, value in written.items()
        }

    def resolved(self, config: ModelConfig) -> AnyQuery:
        query = super().resolved(config)
        name, options = self.figure_options
        changed = {
            "frequency_bins": options.get("frequency_bins"),
            "min_count": options.get("min_count", MIN_COUNT.default),
        }
        return query.model_copy(
            update=changed | ({"include": "sensitivity"} if name == "sensitivity" else {})
        )


class Case(BaseModel):
    """One case; errors and Dice with `mean` over its classes and `by_class`."""

    model_config = ConfigDict(extra="allow")

    case: str
    weight: float
    present: list[bool] = Field(description="By class: whether it has a rating.")
    counted: list[bool] = Field(description="By class: whether it counts in the averages.")


class CasesResponse(ListPage):
    """A page of the stored cases, averages and box plots over cases, and the dataset reliability histogram."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    raters: str
    bins: int
    edges: str
    n: int
    n_cases: int
    n_cases_kept: int | None = Field(None, description="Cases with their own table.")
    n_missing: int | None = Field(
        None, description="Number of classes without a rating, summed over cases."
    )
    classes: list[str] | None = Field(
        None, description="Classes that count in the averages, by name or index."
    )
    cases: list[Case] = Field(description="A page of the stored cases, sorted by name.")
    summary: dict[str, dict[str, Any]] | None = Field(
        description="By measure: macro, micro and micro_pooled averages."
    )
    boxes: dict[str, Any] | None = Field(description="By measure: the numbers of a box plot.")
    histogram: dict[str, Any] | None = Field(
        description="Number of cases by bin of confidence and observed frequency."
    )
    reliability: list[dict[str, Any]] = Field(
        description="Reliability table by bin, with a box over cases."
    )
    case: dict[str, Any] | None = Field(
        None, description="Tables of the requested case, one per class."
    )
    sensitivity: list[dict[str, Any]] | None = Field(
        None, description="Averages by number of bins."
    )
    comparison: dict[str, Any] | None = Field(
        None,
        description="With `against`, by measure: paired t-test, Wilcoxon, permutation; `by_class`.",
    )
    reason: str | None = None


CASES = success(
    CasesResponse,
    "A page of the cases, or a figure",
    ETag="Changes with the state and the query.",
    Link="The next page, with rel=next.",
)


@router.get("/v1/models/{model}/cases", operation_id="listCases", responses=or_drawn(CASES))
async def list_cases(read: TheReadAccess, query: Annotated[CasesParameters, Query()]) -> Response:
    """Return the metrics of cases as JSON, page by page, or a figure of all cases as SVG or PNG."""
    config = await read.config()
    try:
        name, options = query.figure_options
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    draw = drawing(query, name, options.get("class"), config)
    read_query = await read.read_query(query, figure=query.figure)
    if read.is_drawn(query.format):
        return await read.respond(read_query, query.format, draw)
    following: list[str] = []

    async def one_page(body: bytes) -> bytes:
        document = orjson.loads(body)
        page, cursor = page_of(document["cases"], lambda each: [each["case"]], query)
        following.extend([] if cursor is None else [cursor])
        return orjson.dumps(document | {"cases": page, "next": cursor})

    read_query = replace(read_query, shown=(str(query.limit), query.cursor))
    response = await read.reads.respond(read.request, read_query, JSON, one_page)
    if following:
        response.headers["Link"] = link_to(read.request, following[0])
    return response


def drawing(query: CasesParameters, name: str, class_: str | None, config: ModelConfig) -> Draw:
    """Return the function of the requested figure; reject a class that does not count and a missing case."""
    if name == "case" and query.case is None:
        raise unanswerable(
            "/case",
            "missing",
            "Received figure=case without a case; expected its name. Add the parameter `case`.",
        )
    draw = FIGURES[name]
    if class_ is None:
        return draw
    try:
        place = class_index(class_, config, "/figure") - (not query.counts_background)
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    if place < 0:
        detail = "Received class 0, the background, which does not count. Request metric=ml1_ece(background=in)."
        raise unanswerable("/figure", "background", detail)
    return partial(draw, of_class=place)
