"""Each named rater by himself, beside the label policies and the raters' disagreement."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.openapi.schema import answers, problems
from calibrant_server.service.reads.dependencies import TheRead
from calibrant_server.service.reads.estimates import WindowShown, metric_slug
from calibrant_server.service.reads.queries import (
    Binning,
    BinningQuery,
    Edges,
    WindowQuery,
    asked_of,
)
from calibrant_server.service.reads.service import ReadQuery

router = APIRouter(tags=["raters"], default_response_class=Response)

BINNED = frozenset({"bins", "binning", "edges", "min_count", "scope"})


class RatersQuery(WindowQuery):
    """Which metric, and how scores are binned; ratings are read in every way."""

    clock: Literal["event"] = Field(
        "event", description="Records stand as they are now: no cohort of them is sealed."
    )
    metric: str = Field("ece", max_length=100, description="A slug.")
    bins: int = Field(15, ge=1, le=3600, description="Bins; those that the model's grid gives.")
    binning: Binning = "equal_width"
    edges: Edges = "right"
    min_count: float = Field(
        0, ge=0, le=1e15, allow_inf_nan=False, description="Bins with less are left out."
    )
    scope: str | None = Field(None, max_length=200, description="As of `metrics`.")


class RaterValue(BaseModel):
    """The metric with one rater's labels alone."""

    value: float | None
    n: int = Field(description="Predictions that he rated.")
    reason: str | None = None


class RatersResponse(BaseModel):
    """A metric of each named rater, of the records of a window that came with ids."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    metric: str
    n_labelled: int = Field(description="Labelled predictions of the window, with ids or without.")
    n_records: int = Field(
        description="Those of them that came with an id: all that is told is of these."
    )
    n_raters: int
    n_raters_over: int = Field(
        description="Named raters beyond the 64 who rated most; they are not told."
    )
    by_rater: dict[str, RaterValue] = Field(description="Who rated most first.")
    mean_of_raters: float | None = Field(description="Of the raters told; null with a `reason`.")
    policies: dict[str, float | None] | None = Field(
        description="The metric under every label policy."
    )
    disagreement: float | None = Field(description="Share of pairs of ratings that differ.")
    n_majority_ties: int | None
    consistent: bool = Field(description="false: the window changed while its records were read.")
    reason: str | None = None


RATERS: dict[str, Any] = answers(RatersResponse, "The raters side by side", ETag="State and query.")


@router.get(
    "/v1/models/{model}/raters",
    operation_id="getRaters",
    responses={
        200: RATERS,
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_raters(read: TheRead, query: Annotated[RatersQuery, Query()]) -> Response:
    """Return a metric of each named rater alone, from retained records; a wide window is refused."""
    config = await read.config()
    binned = BinningQuery(**query.model_dump(include=set(BINNED & query.model_fields_set)))
    params = {**asked_of(binned, config), "metric": metric_slug(query.metric)}
    return await read.reading.answer(read.request, ReadQuery("raters", config, params, query))
