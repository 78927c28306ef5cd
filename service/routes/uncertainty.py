"""The uncertainty diagram, as numbers or drawn."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from calibrant_server.service.figures.uncertainty import draw_uncertainty
from calibrant_server.service.openapi.schema import answers
from calibrant_server.service.reads.compare import AgainstQuery, compared
from calibrant_server.service.reads.dependencies import TheRead
from calibrant_server.service.reads.estimates import Estimate, WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import Edges, Raters, WindowQuery
from calibrant_server.service.reads.service import ReadQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class UncertaintyQuery(WindowQuery, AgainstQuery):
    """How the table is made and shown."""

    bins: int = Field(15, ge=1, le=240, description="Divisors of 240.")
    edges: Edges = "right"
    raters: Raters = "pooled"
    ci: float = Field(0.95, ge=0.5, lt=1, description="Level of the intervals.")
    format: Format | None = Field(None, description="In place of the header Accept.")


class UncertaintyResponse(Estimate):
    """The uncertainty calibration error, and the table behind its diagram."""

    model: str
    window: WindowShown
    state_version: str
    raters: str
    bins: int
    edges: str
    table: list[dict[str, Any]] = Field(
        description="By bin: weight, mean_uncertainty, error_rate with its interval; ideal_error of two classes."
    )
    ideal_curve: dict[str, list[float]] | None = Field(
        description="Of two classes: the share of errors that a calibrated model has at an uncertainty."
    )


TABLE: dict[str, Any] = answers(
    UncertaintyResponse, "The table, or the diagram", ETag="State and query."
)


@router.get(
    "/v1/models/{model}/uncertainty", operation_id="getUncertainty", responses=or_drawn(TABLE)
)
async def get_uncertainty(read: TheRead, query: Annotated[UncertaintyQuery, Query()]) -> Response:
    """Return how errors follow the entropy of the predictions as JSON, SVG or PNG."""
    params = query.params()
    params.pop("format", None)
    ask = ReadQuery("uncertainty", await read.config(), params, query)
    ask = await compared(ask, query, read.caller, read.connection, read.reading)
    return await read.answer(ask, query.format, draw_uncertainty)
