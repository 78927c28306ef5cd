"""The temperature fitted to the labels of a window."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from calibrant.figures.losses import draw_losses
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheMapRead
from calibrant_server.service.reads.estimates import TemperatureResponse
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.workers.queries.kinds.temperature import TemperatureQuery

router = APIRouter(tags=["temperature"], default_response_class=Response)


class TemperatureParameters(ClockQuery, AgainstQuery, TemperatureQuery):
    """What the temperature is fitted to, and how it is shown."""

    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


CURVE: dict[str, Any] = success(
    TemperatureResponse,
    "The temperature, or a figure of its losses",
    ETag="Changes with the state and the query.",
)


@router.get(
    "/v1/models/{model}/temperature", operation_id="getTemperature", responses=or_drawn(CURVE)
)
async def get_temperature(
    read: TheMapRead, query: Annotated[TemperatureParameters, Query()]
) -> Response:
    """Fit the temperature that scales the model's logits best; as SVG or PNG the losses along it."""
    if read.is_drawn(query.format):
        query = query.model_copy(update={"include": "curve"})
    return await read.respond(await read.read_query(query), query.format, draw_losses)
