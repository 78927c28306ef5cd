"""Calibration maps: fitted on request, given as plain numbers, applied to a posted batch."""

from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from calibrant import maps
from service.bodies import Body, read_body
from service.columns import read_columns
from service.dependencies import (
    AppSettings,
    IfNoneMatch,
    MapReader,
    Prefer,
    TheConnection,
    TheReading,
    TheReception,
)
from service.document import ProblemError, answers, problems, takes
from service.engine import engine_errors
from service.map_questions import MapAnswer, MapQuery, map_ask
from service.names import ModelId
from service.posted import PredictionRecord, PredictionsBody, checked_batch, refuse_too_many
from service.queries import unanswerable
from service.reception import Sender, model_of
from service.settings import Settings
from service.threads import aside
from workers.state.registry import ModelConfig

router = APIRouter(tags=["read"], default_response_class=Response)

class ApplyQuery(MapQuery):
    """Which map, and what to do with rows that cannot be read."""

    partial: bool = Field(False, description="Map the good rows and answer the bad ones.")


class ApplyAnswer(BaseModel):
    """Recalibrated probabilities, row by row as accepted."""

    model: str
    method: str
    scope: str
    digest: str | None
    accepted: int
    rejected: int
    probabilities: list[list[float]] | None = Field(None, description="A row a prediction.")
    confidences: list[float] | None = Field(
        None, description="In their place where the map is of one probability a prediction."
    )
    errors: list[ProblemError]


@router.get(
    "/v1/models/{model}/calibration-map",
    operation_id="getCalibrationMap",
    responses={
        200: answers(MapAnswer, "The map", ETag="State and query."),
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_calibration_map(
    model: ModelId,
    request: Request,
    caller: MapReader,
    query: Annotated[MapQuery, Query()],
    connection: TheConnection,
    reading: TheReading,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Response:
    """Fit a calibration map to the window's labels."""
    config = await model_of(connection, caller, model)
    return await reading.answer(request, map_ask(query, config))


@router.post(
    "/v1/models/{model}/calibration-map/apply",
    operation_id="applyCalibrationMap",
    responses={200: answers(ApplyAnswer, "The recalibrated batch"), **problems(408, 413, 415, 422)},
    openapi_extra=takes("Predictions", json=PredictionsBody, ndjson=PredictionRecord),
)
async def apply_calibration_map(
    model: ModelId,
    request: Request,
    caller: MapReader,
    query: Annotated[ApplyQuery, Query()],
    connection: TheConnection,
    reading: TheReading,
    reception: TheReception,
    settings: AppSettings,
) -> Response:
    """Recalibrate the probabilities of a posted batch; nothing is stored."""
    reception.admission.check(Sender(caller, model).key)
    config = await model_of(connection, caller, model)
    with reception.admission.hold() as hold, engine_errors():
        body = await read_body(request, settings, hold)
        ask = map_ask(query, config)
        fitted = orjson.loads((await reading.ask(ask, await reading.window(ask))).body)
        answer = await aside(applied, body, fitted, config, settings, query.partial)
    return Response(answer, media_type="application/json")


def applied(
    body: Body, fitted: dict[str, Any], config: ModelConfig, settings: Settings, partial: bool
) -> bytes:
    """Return the answer of an application as JSON."""
    posted = read_columns(body, settings)
    checked = checked_batch(posted, config, partial)
    offences = [posted.place(offence) for offence in checked.offences]
    refuse_too_many(checked.batch.n, offences, settings.max_row_errors)
    if fitted.get("parameters") is None:
        reason = fitted.get("reason", "no_data")
        raise unanswerable("/method", "no_map", f"There is no map to apply: {reason}.")
    mapped = np.ascontiguousarray(maps.apply(fitted, checked.batch))
    answer = {
        "model": config.model,
        "method": fitted.get("method"),
        "scope": fitted.get("scope"),
        "digest": fitted.get("digest"),
        "accepted": checked.batch.n,
        "rejected": len(offences),
        ("probabilities" if mapped.ndim == 2 else "confidences"): mapped,
        "errors": [vars(offence) for offence in offences],
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
