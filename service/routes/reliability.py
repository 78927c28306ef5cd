"""The reliability table, as numbers or as a figure."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.figures.reliability import draw_reliability
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.figures import (
    MEDIA_TYPES,
    Format,
    drawn,
    media_type_of,
    or_drawn,
)
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery, unanswerable
from calibrant_server.service.reads.table_formats import or_table, table_type
from calibrant_server.service.reads.tables import RELIABILITY, reliability_rows, rendered
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.kinds.reliability import ReliabilityQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class ReliabilityParameters(ClockQuery, AgainstQuery, ReliabilityQuery):
    """How the table is made and shown."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class ErrorParameters(ClockQuery, MetricsQuery):
    """The window and the bins of the diagram."""


class ReliabilityResponse(BaseModel):
    """The table behind the diagram."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    n_predictions: int
    n_ratings: int
    state_version: str


TABLE = or_table(
    success(
        ReliabilityResponse,
        "The table, or the diagram",
        ETag="Changes with the state and the query.",
    )
)


@router.get(
    "/v1/models/{model}/reliability", operation_id="getReliability", responses=or_drawn(TABLE)
)
async def get_reliability(
    read: TheReadAccess, query: Annotated[ReliabilityParameters, Query()]
) -> Response:
    """Return the reliability table as JSON, CSV or Arrow, or the diagram of it as SVG or PNG."""
    if query.binning != "equal_width" and query.against:
        raise unanswerable(
            "/binning",
            "equal_width",
            "Received another binning with against; expected equal_width. Bins of equal mass differ between two sides.",
        )
    read_query = await read.read_query(query)
    table = None if query.format else table_type(read.request, list(MEDIA_TYPES.values()))
    if table is not None:
        return await read.reads.respond(
            read.request, read_query, table, rendered(table, RELIABILITY, reliability_rows)
        )
    if query.against or not read.is_drawn(query.format):
        return await read.respond(read_query, query.format, draw_reliability)
    media_type = media_type_of(query.format, read.request)
    read_queries = {"table": read_query, "error": await read.read_query(_of_error(query))}
    return await read.reads.together(
        read.request,
        read_queries,
        lambda found: _with_error(found, read_query.config.classes),
        media_type,
        drawn(draw_reliability, media_type),
    )


def _of_error(query: ReliabilityParameters) -> ErrorParameters:
    """Return the query of the calibration error over the same bins, which the diagram states."""
    shared = query.model_fields_set & set(ErrorParameters.model_fields)
    fields = query.model_dump(mode="json", by_alias=True, include=shared)
    return ErrorParameters.model_validate({**fields, "metrics": "ece"})


def _with_error(found: dict[str, Any], classes: list[str] | None) -> dict[str, Any]:
    return {**found["table"], "error": found["error"]["metrics"].get("ece"), "classes": classes}
