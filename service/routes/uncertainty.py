"""The uncertainty diagram, as numbers or drawn."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.document import answers
from service.drawings.uncertainty import draw_uncertainty
from service.estimates import Estimate, WindowShown
from service.pictures import Format, or_drawn
from service.queries import AgainstQuery, ClockQuery
from service.reads import TheRead
from workers.answers.uncertainty import UncertaintyQuery

router = APIRouter(tags=["read"], default_response_class=Response)


class UncertaintyParameters(ClockQuery, AgainstQuery, UncertaintyQuery):
    """How the table is made and shown."""

    format: Format | None = Field(None, description="Instead of the header Accept.")


class UncertaintyAnswer(Estimate):
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


TABLE: dict[str, Any] = answers(UncertaintyAnswer, "The table, or the diagram", ETag="State and query.")


@router.get("/v1/models/{model}/uncertainty", operation_id="getUncertainty", responses=or_drawn(TABLE))
async def get_uncertainty(read: TheRead, query: Annotated[UncertaintyParameters, Query()]) -> Response:
    """Return how errors follow the entropy of the predictions as JSON, SVG or PNG."""
    return await read.answer(await read.ask(query), query.format, draw_uncertainty)
