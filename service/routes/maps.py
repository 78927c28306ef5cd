"""Frozen calibration maps: versions of a fit that never change."""

from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson
from fastapi import APIRouter, Response
from pydantic import Field

from calibrant.core.errors import Violation
from calibrant.results.map_query import PARTS
from calibrant_server.service.http.json_bodies import response_or_unchanged
from calibrant_server.service.http.lists import ListPage
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.frozen_maps import (
    MapNumber,
    MapParameters,
    MapVersion,
    PromotionRecord,
    map_errors,
    map_read_query,
    who_is,
)
from calibrant_server.service.reads.operations import (
    Access,
    Admin,
    Created,
    MapReader,
    Page,
    operation,
)
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.workers.store.windows import rfc3339

router = APIRouter(tags=["maps"], default_response_class=Response)

SUMMARY = (
    *("method", "scope", "class", "digest", "n", "window", "slice", "state_version"),
    *("fitted_to", "sample", "recommendation", "warnings", "created_at", "created_by", "note"),
    *("before", "after", "heldout", "heldout_reason"),
)


class NewMap(MapParameters):
    """The fit to freeze: parameters of `GET calibration-map`, and a note."""

    note: str | None = Field(
        None, max_length=2000, description="Text for human readers; the service does not use it."
    )


class MapsResponse(ListPage):
    """Versions and promotions of a model, oldest first, without the maps themselves."""

    model: str
    current: int | None
    versions: list[dict[str, Any]]
    promotions: list[PromotionRecord] = Field(
        description="The last promotions. Only the first page has them; on later pages the list is empty."
    )


MAPS = Collection(
    router,
    "/v1/models/{model}/maps",
    "versions",
    MapVersion,
    MapReader,
    "A page of versions",
    page=MapsResponse,
)


@MAPS.creates(
    "createMap",
    NewMap,
    "The fit to freeze",
    Admin,
    *(408, 409, 413, 415, 422),
    responses={
        200: success(MapVersion, "The same fit was frozen before", Location="The version."),
        201: success(MapVersion, "The version", Location="The version."),
    },
)
async def create_map(access: Access) -> Created:
    """Fit a calibration map and freeze it as a version."""
    config, maps = await access.config(), access.connection.inbox.maps
    wanted = access.body.model_copy(update={"include": ",".join(PARTS)})
    read_query = map_read_query(wanted, config)
    with map_errors():
        fitted = orjson.loads((await access.reads.result(read_query)).body)
        if fitted.get("parameters") is None:
            detail = f"There is no map to freeze: {fitted.get('reason') or 'no data'}."
            raise invalid_input([Violation("/method", "no_map", detail)])
        frozen = {
            **fitted,
            "fit": fit_of(read_query),
            "created_at": rfc3339(datetime.now(UTC)),
            "created_by": who_is(access.caller),
            "note": wanted.note,
        }
        body = orjson.dumps(frozen, option=orjson.OPT_SORT_KEYS)
        summary = orjson.dumps(_summary(frozen))
        number, is_new = await maps.add(config, _identity(fitted, read_query), body, summary)
        shown = await maps.version(config, number)
    return Created(shown, f"/v1/models/{config.model}/maps/{number}", is_new)


@MAPS.lists("listMaps")
async def list_maps(access: Access) -> Page:
    """List the frozen maps of a model and their promotions."""
    config = await access.config()
    versions, promotions = await access.connection.inbox.maps.listed(config)
    page, following = MAPS.paged(access, versions, lambda each: [each["version"]])
    current = promotions[-1]["version"] if promotions else None
    listed = promotions if access.query.cursor is None else []
    return {"model": config.model, "current": current, **page, "promotions": listed}, following


@operation(
    router,
    "GET /v1/models/{model}/maps/{version}",
    "getMap",
    MapReader,
    {
        200: success(MapVersion, "The version", ETag="A version never changes."),
        304: {"description": "The version is the one that If-None-Match names"},
        **problems(422),
    },
    id=("version", MapNumber),
    headers=("if_none_match",),
)
async def get_map(access: Access) -> Response:
    """Return a frozen map."""
    config = await access.config()
    with map_errors():
        shown = await access.inbox.maps.version(config, access.id)
    headers = {
        "ETag": f'"{config.generation}.version.{access.id}"',
        "Cache-Control": "private, max-age=3600",
        "Vary": "Authorization",
    }
    return response_or_unchanged(access.request, orjson.dumps(shown), headers)


def _summary(frozen: dict[str, Any]) -> dict[str, Any]:
    """Return what a list of versions shows of one: its recommendation without the evidence."""
    shown = {name: frozen.get(name) for name in SUMMARY}
    if advice := shown["recommendation"]:
        shown["recommendation"] = {name: advice[name] for name in ("action", "reason")}
    return shown


def fit_of(read_query: ReadQuery) -> dict[str, object]:
    """Return the options with which the fit was requested."""
    return {
        name: value
        for name, value in read_query.query.to_dict().items()
        if value is not None and name != "include"
    }


def _identity(fitted: dict[str, Any], read_query: ReadQuery) -> str:
    """Return the identity of a fit: map, state and query."""
    made_of = [
        fitted.get("digest"),
        fitted.get("state_version"),
        fit_of(read_query),
        read_query.slice_name,
    ]
    return blake2b(orjson.dumps(made_of, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
