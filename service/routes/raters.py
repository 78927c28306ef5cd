"""Metrics of each named rater separately, with the label policies and the raters' disagreement."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.queries import AgainstQuery, WindowQuery
from calibrant_server.workers.queries.kinds.raters import RatersQuery

router = APIRouter(tags=["raters"], default_response_class=Response)


class RatersParameters(WindowQuery, AgainstQuery, RatersQuery):
    """Which metric, and how scores are binned. Records are read as they are now: no cohort of them is sealed."""


class RaterValue(BaseModel):
    """The metric with one rater's labels alone."""

    value: float | None
    n: int = Field(description="Number of predictions that this rater rated.")
    reason: str | None = None
    against: float | None = Field(None, description="The other side's value.")
    difference: float | None = Field(None, description="This side's value minus the other's.")
    difference_interval: list[float] | None = None
    difference_reason: str | None = Field(
        None,
        description="Why there is no difference or no interval, such as `unknown_rater` or `too_many_raters` (beyond 16).",
    )


class RatersResponse(BaseModel):
    """A metric of each named rater, from the records with ids of a window."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    metric: str
    n_labelled: int = Field(description="Labelled predictions of the window, with ids or without.")
    n_records: int = Field(
        description="Number of the window's labelled predictions that have an id; the result uses only these."
    )
    n_raters: int
    n_raters_over: int = Field(
        description="Number of named raters beyond the 64 who rated most; they are not returned."
    )
    by_rater: dict[str, RaterValue] = Field(
        description="Raters, sorted by number of ratings, most first."
    )
    mean_of_raters: float | None = Field(
        description="Mean over the raters returned; null with a `reason`."
    )
    policies: dict[str, float | None] | None = Field(
        description="The metric under every label policy."
    )
    against: dict[str, Any] | None = Field(
        None,
        description="The other side: `window` or `model`, with its numbers of predictions and raters.",
    )
    disagreement: float | None = Field(description="Share of pairs of ratings that differ.")
    n_majority_ties: int | None
    consistent: bool = Field(description="false: the window changed while its records were read.")
    reason: str | None = None


RATERS: dict[str, Any] = success(
    RatersResponse, "The raters compared", ETag="Changes with the state and the query."
)


@router.get(
    "/v1/models/{model}/raters",
    operation_id="getRaters",
    responses={
        200: RATERS,
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_raters(read: TheReadAccess, query: Annotated[RatersParameters, Query()]) -> Response:
    """Return a metric of each named rater separately, from retained records; a window with too many is rejected."""
    return await read.reads.respond(read.request, await read.read_query(query))
