"""The receiver operating characteristic, as numbers or as a figure."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.figures.roc import draw_roc
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import Estimate, WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.workers.queries.kinds.roc import RocQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class RocParameters(ClockQuery, AgainstQuery, RocQuery):
    """Which score is ranked against which labels, and how it is shown."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class RocResponse(BaseModel):
    """The curve from the highest threshold down, and the area under it."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    scope: str
    raters: str
    n: int | None
    n_ratings: int
    auc: float | None = Field(description="Area under the curve; ties count half.")
    error_bound: float | None = Field(None, description="Largest error that cells can cause.")
    positives: float | None = Field(None, description="Total weight of the positives.")
    negatives: float | None = None
    threshold: list[float | None] = Field(
        description="This score or a higher one counts as positive."
    )
    true_positive_rate: list[float]
    false_positive_rate: list[float]
    area: Estimate = Field(description="The metric `auc`, with its interval and null reference.")
    reason: str | None = None


CURVE: dict[str, Any] = success(
    RocResponse, "The curve, or a figure", ETag="Changes with the state and the query."
)


@router.get("/v1/models/{model}/roc", operation_id="getRoc", responses=or_drawn(CURVE))
async def get_roc(read: TheReadAccess, query: Annotated[RocParameters, Query()]) -> Response:
    """Return the receiver operating characteristic of a score as JSON, SVG or PNG."""
    return await read.respond(await read.read_query(query), query.format, draw_roc)
