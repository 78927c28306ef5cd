"""The temperature that the window's labels ask for."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.comparing import AgainstQuery, compared
from service.dependencies import IfNoneMatch, MapReader, Prefer, TheConnection, TheReading
from service.document import answers, problems
from service.estimates import TemperatureAnswer
from service.names import ModelId
from service.queries import Raters, WindowQuery
from service.reading import Ask
from service.reception import model_of

router = APIRouter(tags=["read"], default_response_class=Response)


class TemperatureQuery(WindowQuery, AgainstQuery):
    """What the temperature is fitted to."""

    objective: Literal["nll", "brier", "ece"] = "nll"
    raters: Raters = "pooled"
    ci: float = Field(0.95, gt=0, lt=1, description="Level of the interval.")


@router.get(
    "/v1/models/{model}/temperature",
    operation_id="getTemperature",
    responses={
        200: answers(TemperatureAnswer, "The temperature", ETag="State and query."),
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_temperature(
    model: ModelId,
    request: Request,
    caller: MapReader,
    query: Annotated[TemperatureQuery, Query()],
    connection: TheConnection,
    reading: TheReading,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Response:
    """Fit the temperature that scales the model's logits best."""
    config = await model_of(connection, caller, model)
    ask = Ask("temperature", config, query.params(), query)
    return await reading.answer(request, await compared(ask, query, caller, connection, reading))
