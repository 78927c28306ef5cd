"""The temperature that the window's labels ask for."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from calibrant_server.service.figures.losses import draw_losses
from calibrant_server.service.openapi.schema import answers
from calibrant_server.service.reads.compare import AgainstQuery, compared
from calibrant_server.service.reads.dependencies import TheMapRead
from calibrant_server.service.reads.estimates import TemperatureResponse
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import Raters, WindowQuery
from calibrant_server.service.reads.service import ReadQuery

router = APIRouter(tags=["temperature"], default_response_class=Response)


class TemperatureQuery(WindowQuery, AgainstQuery):
    """What the temperature is fitted to."""

    objective: Literal["nll", "brier", "ece"] = "nll"
    raters: Raters = "pooled"
    ci: float = Field(0.95, gt=0, lt=1, description="Level of the interval.")
    format: Format | None = Field(None, description="In place of the header Accept.")


CURVE: dict[str, Any] = answers(
    TemperatureResponse, "The temperature, or its losses drawn", ETag="State and query."
)


@router.get(
    "/v1/models/{model}/temperature", operation_id="getTemperature", responses=or_drawn(CURVE)
)
async def get_temperature(
    read: TheMapRead, query: Annotated[TemperatureQuery, Query()]
) -> Response:
    """Fit the temperature that scales the model's logits best; as SVG or PNG the losses along it."""
    params = query.params()
    params.pop("format", None)
    ask = ReadQuery("temperature", await read.config(), params, query)
    ask = await compared(ask, query, read.caller, read.connection, read.reading)
    return await read.answer(ask, query.format, draw_losses)
