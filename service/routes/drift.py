"""Drift: the verdict and the evidence for it."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from service.dependencies import IfNoneMatch, Prefer, Reader, TheConnection, TheReading
from service.document import answers, problems
from service.names import ModelId
from service.queries import WindowQuery
from service.reading import Ask
from service.reception import model_of

router = APIRouter(tags=["read"], default_response_class=Response)


class DriftQuery(WindowQuery):
    """Which data the verdict is about."""


class DriftAnswer(BaseModel):
    """Verdict, evidence, effect and the assumptions that they rest on."""

    model_config = ConfigDict(extra="allow")

    status: Literal["insufficient_data", "ok", "watch", "alarm", "acknowledged"]
    evidence_log10: float | None = None
    sr: float | None = None
    threshold: float | None = None
    arl_target: float | None = None


@router.get(
    "/v1/models/{model}/drift",
    operation_id="getDrift",
    responses={
        200: answers(DriftAnswer, "The verdict", ETag="State and query."),
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_drift(
    model: ModelId,
    request: Request,
    caller: Reader,
    query: Annotated[DriftQuery, Query()],
    connection: TheConnection,
    reading: TheReading,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Response:
    """Tell whether the model's calibration has drifted, and on what evidence."""
    config = await model_of(connection, caller, model)
    return await reading.answer(request, Ask("drift", config, query.params(), query))
