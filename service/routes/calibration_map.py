"""Calibration maps applied to a posted batch."""

from typing import Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from calibrant import calibrators as maps
from calibrant_server.service.http.bodies import Body, read_body
from calibrant_server.service.http.errors import MapUnknown
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.ingest.model_rules import checked_batch, reject_too_many
from calibrant_server.service.ingest.schemas import PredictionRecord, PredictionsBody, RecordsBody
from calibrant_server.service.openapi.schema import ProblemError, problems, success, takes
from calibrant_server.service.reads.by_label import require_label
from calibrant_server.service.reads.frozen_maps import (
    MAX_VERSION,
    ApplyFit,
    map_errors,
    reject_observed,
)
from calibrant_server.service.reads.operations import Access, MapReader, operation
from calibrant_server.service.reads.queries import resolved_query, unanswerable
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.store.frozen_maps import FrozenMap
from calibrant_server.workers.store.model_config import ModelConfig

router = APIRouter(tags=["maps"], default_response_class=Response)


class ApplyParameters(ApplyFit):
    """Which map, fitted on request or frozen, and what to do with rows that cannot be read."""

    partial: bool = Field(
        False, description="Map the valid rows and return the violations of the others."
    )
    version: int | None = Field(
        None, ge=1, le=MAX_VERSION, description="A frozen version instead of a fit."
    )
    map: Literal["current"] | None = Field(
        None, description="`current`: the version promoted last, instead of a fit."
    )

    @property
    def is_frozen(self) -> bool:
        """Return whether the map was fitted already."""
        return self.version is not None or self.map is not None

    def check_frozen(self) -> None:
        """Reject all further parameters if a version or the current map is requested: they describe a fit."""
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        given = [names[name] for name in sorted(self.model_fields_set - {"partial"})]
        which = "version" if self.version is not None else "map"
        if more := [name for name in given if name != which]:
            detail = f"Received {which} with {', '.join(more)}; expected {which} alone, because it names a map that is already fitted."
            raise unanswerable(f"/{more[0]}", "one_of", detail)


class ApplyResponse(BaseModel):
    """Recalibrated probabilities, row by row as accepted."""

    model: str
    version: int | None = Field(
        description="Version of a frozen map; null if the map was fitted on request."
    )
    method: str
    scope: str
    class_: int | None = Field(alias="class", description="Class index, for the scope `class`.")
    digest: str | None
    accepted: int
    rejected: int
    probabilities: list[list[float]] | None = Field(None, description="One row per prediction.")
    confidences: list[float] | None = Field(
        None,
        description="Instead of `probabilities`, if the map returns one probability per prediction.",
    )
    errors: list[ProblemError]


@operation(
    router,
    "POST /v1/models/{model}/calibration-map/apply",
    "applyCalibrationMap",
    MapReader,
    {200: success(ApplyResponse, "The recalibrated batch"), **problems(408, 409, 413, 415, 422)},
    query=ApplyParameters,
    takes_=takes("Predictions", json=(PredictionsBody, RecordsBody), ndjson=PredictionRecord),
)
async def apply_calibration_map(access: Access) -> Response:
    """Recalibrate the probabilities of a posted batch by a fit or a frozen map; nothing is stored."""
    query, settings = access.query, access.settings
    if query.is_frozen:
        query.check_frozen()
    config = await access.usable_config()
    reject_observed(settings, config)
    with access.ingest.admission.hold() as hold, map_errors():
        body = await read_body(access.request, settings, hold)
        if query.is_frozen:
            fitted = await _frozen(access.inbox, config, query.version)
        else:
            require_label(config, query.slice)
            read_query = ReadQuery(resolved_query(query, config), config, query)
            fitted = orjson.loads((await access.reads.result(read_query)).body)
        result = await in_thread(applied, body, fitted, config, settings, query.partial)
    return Response(result, media_type="application/json")


async def _frozen(inbox: Inbox, config: ModelConfig, version: int | None) -> FrozenMap:
    """Return the frozen version, or the current one for None; one read, no computation."""
    maps = inbox.maps
    if version is not None:
        return await maps.version(config, version)
    current = await maps.current(config)
    if current is None or current.generation != config.generation:
        raise MapUnknown("No map of this model was promoted yet.")
    found: FrozenMap = orjson.loads(current.body)
    return found


def applied(
    body: Body, fitted: dict[str, Any], config: ModelConfig, settings: Settings, partial: bool
) -> bytes:
    """Return the response of an application as JSON."""
    posted = read_columns(body, settings)
    checked = checked_batch(posted, config, partial)
    violations = [posted.place(violation) for violation in checked.violations]
    reject_too_many(checked.batch.n, violations, checked.n_rejected)
    if fitted.get("parameters") is None:
        reason = fitted.get("reason", "no_data")
        raise unanswerable("/method", "no_map", f"There is no map to apply: {reason}.")
    mapped = np.ascontiguousarray(maps.apply(fitted, checked.batch))
    result = {
        "model": config.model,
        "version": fitted.get("version"),
        "method": fitted.get("method"),
        "scope": fitted.get("scope"),
        "class": fitted.get("class"),
        "digest": fitted.get("digest"),
        "accepted": checked.batch.n,
        "rejected": len(violations),
        ("probabilities" if mapped.ndim == 2 else "confidences"): mapped,
        "errors": [vars(violation) for violation in violations],
    }
    return orjson.dumps(result, option=orjson.OPT_SERIALIZE_NUMPY)
