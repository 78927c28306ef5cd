"""The uncertainty diagram, as numbers or as a figure."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from calibrant_server.service.figures.uncertainty import draw_uncertainty
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import Estimate, WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.workers.queries.kinds.uncertainty import UncertaintyQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class UncertaintyParameters(ClockQuery, AgainstQuery, UncertaintyQuery):
    """How the table is made and shown."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class UncertaintyResponse(Estimate):
    """The uncertainty calibration error, and the table behind its diagram."""

    model: str
    window: WindowShown
    state_version: str
    raters: str
    bins: int
    edges: str
    table: list[dict[str, Any]] = Field(
        description="By bin: weight, mean_uncertainty, error_rate with its interval; for two classes ideal_error."
    )
    ideal_curve: dict[str, list[float]] | None = Field(
        description="For two classes: the share of errors of a calibrated model at each uncertainty."
    )


TABLE: dict[str, Any] = success(
    UncertaintyResponse, "The table, or the diagram", ETag="Changes with the state and the query."
)


@router.get(
    "/v1/models/{model}/uncertainty", operation_id="getUncertainty", responses=or_drawn(TABLE)
)
async def get_uncertainty(
    read: TheReadAccess, query: Annotated[UncertaintyParameters, Query()]
) -> Response:
    """Return the error rate by the entropy of the predictions as JSON, SVG or PNG."""
    return await read.respond(await read.read_query(query), query.format, draw_uncertainty)
