"""Frozen calibration maps: versions that never change, and which of them clients shall use.

The current map stands whole in one field of the store, so a client may poll it as often as it likes: an
unchanged one is 304 after a single read. `stale-if-error` lets it go on with what it has while the
service is away.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrant.errors import Offence
from service.auth import Caller
from service.bodies import JSON, read_body
from service.columns import object_of
from service.dependencies import (
    Admin,
    IfMatch,
    IfNoneMatch,
    MapReader,
    TheConnection,
    TheReading,
    TheReception,
)
from service.document import answers, problems, takes
from service.documents import read_json
from service.engine import engine_errors
from service.errors import (
    MapNotBetter,
    MapsFull,
    MapUnknown,
    ModelUnknown,
    PreconditionFailed,
    PreconditionRequired,
)
from service.headers import entity_tags, names
from service.map_questions import MapAnswer, MapQuery, map_ask
from service.names import ModelId
from service.problem_responses import invalid_input, offence_of
from service.queries import WindowQuery
from service.reading import Ask, Reading
from service.reception import Reception, model_of
from workers.state.maps import (
    CurrentMap,
    NoSuchMap,
    NoSuchModel,
    PromotionConflict,
    TooManyMaps,
)
from workers.state.registry import ModelConfig
from workers.windows import rfc3339

router = APIRouter(tags=["maps"], default_response_class=Response)

STALE_IF_ERROR_S = 86_400
CURRENT_HEADERS = {
    "Cache-Control": f"private, max-age=0, stale-if-error={STALE_IF_ERROR_S}",
    "Vary": "Authorization",
}
MAX_OBJECTS = 1000
SUMMARY = (
    *("method", "scope", "class", "digest", "n", "window", "slice", "state_version"),
    *("created_at", "created_by", "note", "before", "after", "heldout", "heldout_reason"),
)
MapNumber = Annotated[int, Path(ge=1, le=1_000_000, description="Number of the version.")]


class NewMap(MapQuery):
    """Which fit to freeze: what `GET calibration-map` takes, and a note."""

    note: str | None = Field(None, max_length=2000, description="For people.")


class Promotion(BaseModel):
    """Which version becomes current, and why."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = Field(ge=1, le=1_000_000)
    reason: str = Field(min_length=1, max_length=2000, description="Recorded with the promotion.")
    override: bool = Field(
        False, description="Promote it although it did not beat the current one on later labels."
    )


class MapVersion(MapAnswer):
    """A frozen map: the answer of the fit as it was, for good."""

    model: str
    version: int
    created_at: str
    created_by: str
    note: str | None = None
    window: dict[str, str]
    state_version: str


class PromotionRecord(BaseModel):
    """Who made which version current, when, why, and on what evidence."""

    model_config = ConfigDict(extra="allow")

    promotion: int
    version: int
    previous: int | None
    promoted_at: str
    promoted_by: str
    reason: str
    override: bool
    evidence: dict[str, Any] | None


class CurrentMapAnswer(MapVersion):
    """The current map with its promotion."""

    promotion: PromotionRecord


class MapsAnswer(BaseModel):
    """Versions and promotions of a model, oldest first; the maps themselves are left out."""

    model: str
    current: int | None
    versions: list[dict[str, Any]]
    promotions: list[PromotionRecord]


@router.post(
    "/v1/models/{model}/maps",
    operation_id="createMap",
    responses={
        200: answers(MapVersion, "The same fit was frozen before", Location="The version."),
        201: answers(MapVersion, "The version", Location="The version."),
        **problems(408, 409, 413, 415, 422),
    },
    openapi_extra=takes("Which fit", json=NewMap),
)
async def create_map(
    model: ModelId,
    request: Request,
    caller: Admin,
    connection: TheConnection,
    reading: TheReading,
    reception: TheReception,
) -> Response:
    """Fit a calibration map and freeze it as a version."""
    wanted = _valid(NewMap, await _document(request, reception))
    config = await model_of(connection, caller, model)
    ask = map_ask(wanted, config)
    note = ask.params.pop("note", None)
    with engine_errors(), _map_errors():
        fitted = orjson.loads((await reading.ask(ask, await reading.window(ask))).body)
        if fitted.get("parameters") is None:
            detail = f"There is no map to freeze: {fitted.get('reason') or 'no data'}."
            raise invalid_input([Offence("/method", "no_map", detail)])
        frozen = {
            **fitted,
            "fit": ask.params,
            "created_at": rfc3339(datetime.now(UTC)),
            "created_by": _who(caller),
            "note": note,
        }
        body = orjson.dumps(frozen, option=orjson.OPT_SORT_KEYS)
        summary = orjson.dumps({name: frozen.get(name) for name in SUMMARY})
        number, is_new = await connection.inbox.maps.add(
            config, _identity(fitted, ask), body, summary
        )
        shown = await connection.inbox.maps.version(config, number)
    location = {"Location": f"/v1/models/{model}/maps/{number}"}
    return Response(orjson.dumps(shown), 201 if is_new else 200, location, JSON)


@router.get(
    "/v1/models/{model}/maps",
    operation_id="listMaps",
    responses={200: answers(MapsAnswer, "The versions"), **problems(422)},
)
async def list_maps(model: ModelId, caller: MapReader, connection: TheConnection) -> Response:
    """List the frozen maps of a model and their promotions."""
    config = await model_of(connection, caller, model)
    with engine_errors():
        versions, promotions = await connection.inbox.maps.listed(config)
    current = promotions[-1]["version"] if promotions else None
    body = {"model": model, "current": current, "versions": versions, "promotions": promotions}
    return Response(orjson.dumps(body), media_type=JSON, headers={"Cache-Control": "no-cache"})


@router.get(
    "/v1/models/{model}/maps/current",
    operation_id="getCurrentMap",
    responses={
        200: answers(
            CurrentMapAnswer,
            "The current map",
            ETag="Its promotion.",
            Cache_Control="How long it may be used while the service is away.",
        ),
        304: {"description": "The promotion is the one that If-None-Match names"},
        **problems(422),
    },
)
async def get_current_map(
    model: ModelId,
    request: Request,
    caller: MapReader,
    connection: TheConnection,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the map that clients shall use now."""
    with engine_errors():
        current = await connection.inbox.maps.current(f"{caller.tenant}/{model}")
    if current is None:
        await model_of(connection, caller, model)
        raise MapUnknown("No map of this model was promoted yet.")
    if names(entity_tags(request, "if-none-match"), current.etag):
        return Response(status_code=304, headers={**CURRENT_HEADERS, "ETag": current.etag})
    return _current(current)


@router.get(
    "/v1/models/{model}/maps/{version}",
    operation_id="getMap",
    responses={
        200: answers(MapVersion, "The version", ETag="It never changes."),
        304: {"description": "The version is the one that If-None-Match names"},
        **problems(422),
    },
)
async def get_map(
    model: ModelId,
    version: MapNumber,
    request: Request,
    caller: MapReader,
    connection: TheConnection,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return a frozen map."""
    config = await model_of(connection, caller, model)
    with engine_errors(), _map_errors():
        shown = await connection.inbox.maps.version(config, version)
    headers = {
        "ETag": f'"{config.generation}.version.{version}"',
        "Cache-Control": "private, max-age=3600",
        "Vary": "Authorization",
    }
    if names(entity_tags(request, "if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(orjson.dumps(shown), 200, headers, JSON)


@router.put(
    "/v1/models/{model}/maps/current",
    operation_id="promoteMap",
    responses={
        200: answers(CurrentMapAnswer, "The current map", ETag="Its promotion."),
        **problems(408, 409, 412, 413, 415, 422, 428),
    },
    openapi_extra=takes("Which version, and why", json=Promotion),
)
async def promote_map(
    model: ModelId,
    request: Request,
    caller: Admin,
    connection: TheConnection,
    reading: TheReading,
    reception: TheReception,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Make a version the current map; the same call goes back to an earlier one."""
    wanted = _valid(Promotion, await _document(request, reception))
    config = await model_of(connection, caller, model)
    with engine_errors(), _map_errors():
        now = await connection.inbox.maps.current(config.key)
        _check_preconditions(request, now)
        version = await connection.inbox.maps.version(config, wanted.version)
        before = None if now is None else orjson.loads(now.body)
        if now is not None and before is not None and before["version"] == wanted.version:
            return _current(now)
        evidence = await _evidence(reading, config, before, version)
        if before is not None and not evidence["beats"] and not wanted.override:
            raise _not_better(wanted, before, evidence)
        record = {
            "version": wanted.version,
            "previous": None if before is None else before["version"],
            "promoted_at": rfc3339(datetime.now(UTC)),
            "promoted_by": _who(caller),
            "reason": wanted.reason,
            "override": wanted.override,
            "evidence": evidence,
        }
        promotion = 1 if now is None else now.promotion + 1
        body = {**version, "promotion": {"promotion": promotion, **record}}
        new = CurrentMap(config.generation, promotion, orjson.dumps(body))
        await connection.inbox.maps.promote(config, wanted.version, new, orjson.dumps(record))
    return _current(new)


async def _document(request: Request, reception: Reception) -> dict[str, Any]:
    with reception.admission.hold() as hold:
        body = await read_body(request, reception.settings, hold, (JSON,))
        return object_of(read_json(body.data, MAX_OBJECTS))


def _valid(model: type[Any], document: dict[str, Any]) -> Any:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        offences = [offence_of({**each, "loc": ("body", *each["loc"])}) for each in error.errors()]
        raise invalid_input(offences) from error


def _who(caller: Caller) -> str:
    """Return the name of the caller's key, as far as it has one."""
    return caller.name or caller.tenant


def _identity(fitted: dict[str, Any], ask: Ask) -> str:
    """Return what two fits have in common that are the same: map, state, question."""
    made_of = [fitted.get("digest"), fitted.get("state_version"), ask.params, ask.slice_name]
    return blake2b(orjson.dumps(made_of, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def _current(current: CurrentMap) -> Response:
    return Response(current.body, 200, {**CURRENT_HEADERS, "ETag": current.etag}, JSON)


def _check_preconditions(request: Request, now: CurrentMap | None) -> None:
    """Refuse a promotion that does not say which one it follows, or follows another one."""
    required = entity_tags(request, "if-match")
    excluded = entity_tags(request, "if-none-match")
    if required is None and excluded is None:
        raise PreconditionRequired(
            "A promotion needs If-Match with the ETag of the current map; If-None-Match: * where there is none."
        )
    stale = (
        "Another map is current than the one that the request was made for; read it again first."
    )
    if required is not None and (now is None or not names(required, now.etag)):
        raise PreconditionFailed(stale)
    if now is not None and names(excluded, now.etag):
        raise PreconditionFailed(stale)


async def _evidence(
    reading: Reading,
    config: ModelConfig,
    before: dict[str, Any] | None,
    version: dict[str, Any],
) -> dict[str, Any]:
    """Return what the version gains over the current map on panes after both of their windows."""
    fits = [each for each in (before, version) if each is not None]
    since = max(each["window"]["to"] for each in fits)
    params = {
        "current": None if before is None else _formula(before),
        "candidate": _formula(version),
        "raters": version.get("raters", "pooled"),
    }
    view = WindowQuery.model_validate({"from": since, "slice": version.get("slice")})
    ask = Ask("map_comparison", config, params, view)
    if datetime.fromisoformat(since) >= datetime.now(UTC):
        return {"beats": False, "reason": "no_labels", "detail": "no later labels have come"}
    compared: dict[str, Any] = orjson.loads((await reading.ask(ask, await reading.window(ask))).body)
    compared.pop("model", None)
    return compared


def _formula(fitted: dict[str, Any]) -> dict[str, Any]:
    return {name: fitted.get(name) for name in ("method", "scope", "class", "parameters")}


def _not_better(
    wanted: Promotion, before: dict[str, Any], evidence: dict[str, Any]
) -> MapNotBetter:
    gain = (evidence.get("gain") or {}).get("nll") or {}
    measured = ""
    if gain.get("value") is not None and gain.get("interval"):
        low, high = gain["interval"]
        measured = f" Gain in NLL {gain['value']:.4g}, interval {low:.4g} to {high:.4g}."
    detail = (
        f"Version {wanted.version} did not beat version {before['version']} on later labels: "
        f"{evidence['detail']}.{measured} Send override: true to promote it all the same."
    )
    return MapNotBetter(detail, errors=[Offence("/version", evidence["reason"], detail)])


@contextmanager
def _map_errors() -> Iterator[None]:
    """Translate what the store of maps raises."""
    try:
        yield
    except NoSuchMap as error:
        raise MapUnknown(f"The model has no map version {error.args[0]}.") from error
    except NoSuchModel as error:
        raise ModelUnknown() from error
    except TooManyMaps as error:
        raise MapsFull() from error
    except PromotionConflict as error:
        raise PreconditionFailed(
            "Another map was promoted meanwhile; read the current one again first."
        ) from error
