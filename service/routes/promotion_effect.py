"""Reliability before and after the current map, on labels of predictions since its promotion."""

from typing import Any

import orjson
from fastapi import Response
from pydantic import BaseModel, Field

from calibrant.figures.map_effect import draw_map_effect
from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.parameters import negotiated
from calibrant_server.service.http.problems import MapUnknown
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.frozen_maps import (
    effect_document,
    effect_query,
    reject_observed,
)
from calibrant_server.service.reads.operations import Access, Operations, Reader
from calibrant_server.service.reads.representations import IMAGES, drawn, or_drawn

router = Operations("maps")


class MappedReliability(BaseModel):
    """The calibration error with interval and null reference, and the reliability table of 10 bins."""

    ece: dict[str, Any]
    scope: str = Field(
        description="Of which probability the table is: `top_label`, `positive` or `class:INDEX`."
    )
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
    or_drawn(success(MapEffectResponse, "Reliability before and after, or a figure")),
    406,
    409,
)
async def get_map_effect(access: Access) -> Response:
    """Return the reliability before and after the current map, on labels that came after its promotion; as JSON, SVG or PNG."""
    config = await access.config()
    reject_observed(access.settings, config)
    current = await access.inbox.maps.current(config)
    if current is None:
        raise MapUnknown("No map of this model was promoted yet.")
    fitted: dict[str, Any] = orjson.loads(current.body)
    query = effect_query(fitted, config)
    found = None if query is None else orjson.loads((await access.reads.result(query)).body)
    media_type = negotiated(access.request, [JSON, *IMAGES])
    body = orjson.dumps(effect_document(found, fitted, config))
    render = drawn(draw_map_effect, media_type)
    headers = {"Cache-Control": "no-cache", "Vary": "Accept, Authorization"}
    return Response(body if render is None else await render(body), 200, headers, media_type)
