"""The registry: the settings of each model, changed one version at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from calibrant_server.service.engine import engine_errors, model_of
from calibrant_server.service.http.bodies import JSON, MERGE_PATCH, read_body
from calibrant_server.service.http.errors import (
    ModelUnknown,
    PreconditionFailed,
    PreconditionRequired,
)
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.lists import page_of
from calibrant_server.service.http.parameters import (
    IfMatch,
    IfNoneMatch,
    ModelId,
    entity_tags,
    names,
)
from calibrant_server.service.ingest.parsed_batch import object_of, reject_unknown
from calibrant_server.service.ingest.service import IngestService
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.reads.archived_reports import DeletionQuery, reports_kept
from calibrant_server.service.reads.collection import Collection, CollectionAccess, Page
from calibrant_server.service.reads.dependencies import (
    Admin,
    Reader,
    TheConnection,
    TheIngestService,
)
from calibrant_server.service.reads.fleet import indexed_statuses
from calibrant_server.service.reads.model_documents import (
    SettingsChange,
    change_of,
    changes_between,
    declared,
    fixed,
    patched,
    shown,
)
from calibrant_server.service.reads.model_list import (
    ModelListQuery,
    ModelQuery,
    ModelResponse,
    ModelsResponse,
    has_tag,
)
from calibrant_server.service.reads.model_settings import ModelSettings, settings_of
from calibrant_server.service.security.audit import audit_of
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.alarm.url_guard import Network, networks_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import FixedProperty, RevisionConflict

router = APIRouter(tags=["models"], default_response_class=Response)

MAX_SETTINGS_OBJECTS = 100_000
MAX_SETTINGS_BYTES = 1024 * 1024


MODELS = Collection(
    router,
    "/v1/models",
    "models",
    ModelResponse,
    Reader,
    "A page of models",
    ModelListQuery,
    ModelsResponse,
)


@MODELS.lists("listModels")
async def list_models(access: CollectionAccess) -> Page:
    """List the models of your key, sorted by id; `view=status` adds the status of each."""
    caller, query, state = access.caller, access.query, access.request.app.state
    found = await access.connection.registry.list(caller.tenant)
    configs = [each for each in found if caller.may_use(each.model) and has_tag(each, query.tag)]
    page, following = page_of(configs, lambda each: [each.model], query)
    models = [shown(each, with_full_urls=_tells_receivers(caller)) for each in page]
    if query.view == "status":
        statuses = await indexed_statuses(state.reads, page)
        flags = await state.fleet.flags(caller.tenant, found, query.false_flags)
        models = [
            model | status | {"flagged": flags.get(config.key, [])}
            for model, status, config in zip(models, statuses, page, strict=True)
        ]
    return {"models": models}, following


@router.get(
    "/v1/models/{model}",
    operation_id="getModel",
    responses={
        200: success(ModelResponse, "The model", ETag="Its version."),
        304: {"description": "The version is the one that If-None-Match names"},
        **problems(422),
    },
)
async def get_model(
    model: ModelId,
    request: Request,
    caller: Reader,
    connection: TheConnection,
    ingest: TheIngestService,
    query: Annotated[ModelQuery, Query()],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the settings of a model."""
    config = await model_of(connection, caller, model)
    with engine_errors():
        records = await connection.inbox.tallies(config)
    with_full_urls = _tells_receivers(caller)
    etag = etag_of(config, records, with_full_urls)
    if names(entity_tags(request, "if-none-match"), etag):
        return Response(status_code=304, headers={**_headers(config), "ETag": etag})
    return _response(config, records, with_full_urls=with_full_urls, ETag=etag)


@router.put(
    "/v1/models/{model}",
    operation_id="putModel",
    responses={
        200: success(ModelResponse, "The model existed", ETag="Its version."),
        201: success(
            ModelResponse, "The model was created", ETag="Its version.", Location="The model."
        ),
        **problems(408, 409, 412, 413, 415, 422, 428),
    },
    openapi_extra=takes("Settings", json=ModelSettings),
)
async def put_model(
    model: ModelId,
    request: Request,
    caller: Admin,
    ingest: TheIngestService,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Create a model, or replace its settings."""
    document = await _document(request, ingest, (JSON,))
    with engine_errors():
        current = await ingest.registry.get(caller.tenant, model)
        change = change_of(settings_of(document), caller, model, current, _networks(ingest))
        _check_preconditions(request, current)
        return await _put(request, ingest, current, change)


@router.patch(
    "/v1/models/{model}",
    operation_id="patchModel",
    responses={
        200: success(ModelResponse, "The model as it is now", ETag="Its version."),
        **problems(408, 409, 412, 413, 415, 422, 428),
    },
    openapi_extra=takes("Changes; null resets", json=ModelSettings, merge_patch=ModelSettings),
)
async def patch_model(
    model: ModelId,
    request: Request,
    caller: Admin,
    connection: TheConnection,
    ingest: TheIngestService,
    if_match: IfMatch = None,
) -> Response:
    """Change some settings of a model (RFC 7396)."""
    document = await _document(request, ingest, (JSON, MERGE_PATCH))
    reject_unknown(document, ModelSettings.model_fields)
    current = await model_of(connection, caller, model)
    _check_preconditions(request, current)
    settings = settings_of(patched(declared(current), document))
    change = change_of(settings, caller, model, current, _networks(ingest))
    with engine_errors():
        return await _put(request, ingest, current, change)


@router.delete(
    "/v1/models/{model}",
    operation_id="deleteModel",
    status_code=204,
    responses={204: {"description": "The model is deleted"}, **problems(409, 412, 422)},
)
async def delete_model(
    model: ModelId,
    request: Request,
    caller: Admin,
    connection: TheConnection,
    query: Annotated[DeletionQuery, Query()],
    if_match: IfMatch = None,
) -> Response:
    """Delete a model with all its data. Archived reports are deleted only with `reports=delete`."""
    with engine_errors():
        config = await connection.registry.found(caller.tenant, model)
    if config is None:
        raise ModelUnknown(f"There is no model {model!r} among the models of your key.")
    _check_preconditions(request, config)
    with engine_errors(), _revisions(), reports_kept(config):
        await connection.registry.delete(config, with_reports=query.reports == "delete")
    return Response(status_code=204)


async def _document(
    request: Request, ingest: IngestService, types: tuple[str, ...]
) -> dict[str, Any]:
    with ingest.admission.hold() as hold:
        limit = min(MAX_SETTINGS_BYTES, ingest.settings.max_body_bytes)
        small = {"max_body_bytes": limit, "max_decoded_bytes": limit}
        settings = ingest.settings.model_copy(update=small)
        body = await read_body(request, settings, hold, types)
        return object_of(read_json(body.data, MAX_SETTINGS_OBJECTS))


def _networks(ingest: IngestService) -> tuple[Network, ...]:
    """Return where receivers of alarms may be, in addition to the public internet."""
    return networks_of(ingest.settings.webhook_networks or "")


def _tells_receivers(caller: Caller) -> bool:
    """Return whether a caller may read the receivers of alarms, as in the log of deliveries."""
    return "admin" in caller.scopes


def etag_of(
    config: ModelConfig,
    records: dict[str, int] | None = None,
    with_full_urls: bool = True,
) -> str:
    """Return the strong ETag of a model's version, of its counts if returned, and of URLs that are shortened."""
    by_host = not with_full_urls and bool(config.alarm.get("webhooks"))
    if not records and not by_host:
        return f'"{config.generation}.{config.revision}"'
    content: Any = [records, "by host"] if by_host else records
    digest = blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=6).hexdigest()
    return f'"{config.generation}.{config.revision}.{digest}"'


def _without_tallies(tags: list[str] | None) -> list[str] | None:
    """Return the tags of versions alone: a change is of what is declared, not of what was counted."""
    if tags is None:
        return None
    return [tag if tag.count(".") < 2 else tag.rpartition(".")[0] + '"' for tag in tags]


def _check_preconditions(request: Request, current: ModelConfig | None) -> None:
    """Reject a request for another version than the stored one."""
    required = _without_tallies(entity_tags(request, "if-match"))
    excluded = entity_tags(request, "if-none-match")
    if required is not None and (current is None or not names(required, etag_of(current))):
        raise PreconditionFailed()
    if current is not None and names(excluded, etag_of(current)):
        raise PreconditionFailed()


async def _put(
    request: Request, ingest: IngestService, current: ModelConfig | None, change: SettingsChange
) -> Response:
    """Write what is wanted over `current`; the same again needs neither a write nor If-Match."""
    wanted = change.config
    if current is None:
        await ingest.check_new_model(wanted.tenant)
        with _revisions():
            made = await ingest.registry.put(wanted, None)
        location = f"/v1/models/{made.model}"
        return _response(made, status=201, disclosed=change.disclosed, Location=location)
    if declared(current) == declared(wanted):
        await ingest.registry.confirm(current)
        return _response(current)
    audit_of(request).details = {"changed": changes_between(current, wanted)}
    if "if-match" not in request.headers:
        raise PreconditionRequired()
    with _revisions():
        written = await ingest.registry.put(wanted, current.revision)
    return _response(written, disclosed=change.disclosed)


@contextmanager
def _revisions() -> Iterator[None]:
    """Translate what the registry raises about versions and about what cannot be changed."""
    try:
        yield
    except RevisionConflict as error:
        raise (ModelUnknown() if error.current is None else PreconditionFailed()) from error
    except FixedProperty as error:
        raise fixed(error.names) from error


def _headers(config: ModelConfig) -> dict[str, str]:
    return {"ETag": etag_of(config), "Cache-Control": "no-cache"}


def _response(
    config: ModelConfig,
    records: dict[str, int] | None = None,
    status: int = 200,
    disclosed: frozenset[str] = frozenset(),
    with_full_urls: bool = True,
    **headers: str,
) -> Response:
    document = shown(config, disclosed, with_full_urls)
    if records:
        document["records"] = records
    body = orjson.dumps(document)
    return Response(body, status, {**_headers(config), **headers}, JSON)
