"""Reliability before and after the current map, on labels of predictions since its promotion."""

from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import Response
from pydantic import BaseModel, Field

from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.errors import MapUnknown
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.frozen_maps import formula_of, reject_observed
from calibrant_server.service.reads.operations import Access, Operations, Reader
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.workers.queries.kinds.map_effect import MapEffectQuery
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import rfc3339

router = Operations("maps")


class MappedReliability(BaseModel):
    """The calibration error with interval and null reference, and the reliability table of 10 bins."""

    ece: dict[str, Any]
    table: list[dict[str, Any]]


class MapEffectResponse(BaseModel):
    """Reliability before and after the current map, on the labels so far of predictions since its promotion."""

    model: str
    version: int
    since: str = Field(
        description="Predictions from here on: the first time slice after the promotion and after the data of the fit."
    )
    n: int = Field(description="Labelled predictions of the stored sample.")
    sample: dict[str, Any] | None = None
    before: MappedReliability | None
    after: MappedReliability | None
    reason: str | None = Field(description="Why there is none, such as `no_labels`.")


@router.operation(
    "GET /v1/models/{model}/maps/current/effect",
    Reader,
    success(MapEffectResponse, "Reliability before and after"),
    409,
)
async def get_map_effect(access: Access) -> Response:
    """Return the reliability before and after the current map, on labels that came after its promotion."""
    config = await access.config()
    reject_observed(access.settings, config)
    current = await access.inbox.maps.current(config)
    if current is None:
        raise MapUnknown("No map of this model was promoted yet.")
    fitted: dict[str, Any] = orjson.loads(current.body)
    since = _first_slice_after(fitted, config)
    found = {"n": 0, "before": None, "after": None, "reason": "no_labels"}
    if since < datetime.now(UTC):
        query = MapEffectQuery(fitted=formula_of(fitted), raters=fitted.get("raters", "pooled"))
        view = ClockQuery.model_validate({"from": rfc3339(since)})
        found = orjson.loads((await access.reads.result(ReadQuery(query, config, view))).body)
    about = {"model": config.model, "version": fitted["version"], "since": rfc3339(since)}
    return Response(orjson.dumps(found | about), 200, {"Cache-Control": "no-cache"}, JSON)


def _first_slice_after(fitted: dict[str, Any], config: ModelConfig) -> datetime:
    """Return the start of the first time slice after the promotion of a map and after the window that it was fitted to."""
    times = (fitted["promotion"]["promoted_at"], fitted["window"]["to"])
    last_s = max(datetime.fromisoformat(each).timestamp() for each in times)
    return datetime.fromtimestamp(-(-last_s // config.pane_s) * config.pane_s, UTC)
