"""The registry: the settings of each model, changed one version at a time."""

from hashlib import blake2b
from typing import Any

import orjson
from fastapi import Request, Response

from calibrant_server.service.http.bodies import JSON, MERGE_PATCH, read_body
from calibrant_server.service.http.json_bodies import read_json, response_or_unchanged
from calibrant_server.service.http.lists import page_of
from calibrant_server.service.http.parameters import (
    entity_tags,
    names,
)
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.http.problems import (
    PreconditionFailed,
    PreconditionRequired,
)
from calibrant_server.service.ingest.parsed_batch import object_of, reject_unknown
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.archived_reports import DeletionQuery
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.fleet import indexed_statuses
from calibrant_server.service.reads.model_documents import (
    SettingsChange,
    change_of,
    changes_between,
    declared,
    patched,
    shown,
)
from calibrant_server.service.reads.model_list import (
    ModelListQuery,
    ModelQuery,
    ModelResponse,
    ModelsResponse,
    has_tag,
    row_of,
)
from calibrant_server.service.reads.model_settings import (
    ModelPatch,
    ModelSettings,
    ReasonOfChange,
    settings_of,
)
from calibrant_server.service.reads.operations import Access, Admin, Operations, Page, Reader
from calibrant_server.service.security.audit import audit_of
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.alarm.url_guard import Network, networks_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import RevisionConflict

router = Operations("models")

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


@MODELS.lists()
async def list_models(access: Access) -> Page:
    """List the models of your key, sorted by id; `view=status` adds the status of each."""
    caller, query, state = access.caller, access.query, access.request.app.state
    found = await access.connection.registry.list(caller.tenant)
    configs = [each for each in found if caller.may_use(each.model) and has_tag(each, query.tag)]
    page, following = page_of(configs, lambda each: [each.model], query)
    models = [shown(each, with_full_urls=_tells_receivers(caller)) for each in page]
    if query.view == "status":
        statuses = await indexed_statuses(state.reads, page)
        flags = await state.fleet.flags(caller.tenant, found, query.false_flags)
        details = query.include is not None
        models = [
            row_of(model, status | {"flagged": flags.get(config.key, [])}, details)
            for model, status, config in zip(models, statuses, page, strict=True)
        ]
    return {"models": models}, following


@router.operation(
    "GET /v1/models/{model}",
    Reader,
    success(ModelResponse, "The model", ETag="Its version."),
    query=ModelQuery,
    headers=("if_none_match",),
)
async def get_model(access: Access) -> Response:
    """Return the settings of a model."""
    config = await access.config()
    records = await access.inbox.tallies(config)
    with_full_urls = _tells_receivers(access.caller)
    document = shown(config, with_full_urls=with_full_urls)
    body = orjson.dumps(document | ({"records": records} if records else {}))
    headers = {**_headers(config), "ETag": etag_of(config, records, with_full_urls)}
    return response_or_unchanged(access.request, body, headers)


@router.operation(
    "PUT /v1/models/{model}",
    Admin,
    {
        200: success(ModelResponse, "The model existed", ETag="Its version."),
        201: success(
            ModelResponse, "The model was created", ETag="Its version.", Location="The model."
        ),
    },
    409,
    headers=("if_match", "if_none_match"),
    takes_=takes("Settings", {JSON: ModelSettings}),
)
async def put_model(access: Access) -> Response:
    """Create a model, or replace its settings."""
    settings = settings_of(await _document(access, (JSON,)))
    current = await access.ingest.registry.get(access.caller.tenant, access.model)
    change = change_of(settings, access.caller, access.model, current, _networks(access))
    _check_preconditions(access.request, current)
    return await _put(access, current, change)


@router.operation(
    "PATCH /v1/models/{model}",
    Admin,
    success(ModelResponse, "The model as it is now", ETag="Its version."),
    409,
    headers=("if_match",),
    takes_=takes("Changes; null resets", {JSON: ModelPatch, MERGE_PATCH: ModelPatch}),
)
async def patch_model(access: Access) -> Response:
    """Change some settings of a model (RFC 7396)."""
    document = await _document(access, (JSON, MERGE_PATCH))
    reject_unknown(document, ModelPatch.model_fields)
    reason = validated(ReasonOfChange, {"reason": document.pop("reason", None)}).reason
    current = await access.config()
    _check_preconditions(access.request, current)
    settings = settings_of(patched(declared(current), document))
    change = change_of(settings, access.caller, access.model, current, _networks(access), reason)
    return await _put(access, current, change)


@router.operation(
    "DELETE /v1/models/{model}",
    Admin,
    {204: {"description": "The model is deleted"}},
    409,
    query=DeletionQuery,
    headers=("if_match",),
)
async def delete_model(access: Access) -> None:
    """Delete a model with all its data. Archived reports are deleted only with `reports=delete`."""
    registry, model = access.connection.registry, access.model
    config = await registry.found(access.caller.tenant, model)
    if config is None:
        raise access.caller.unknown(model)
    _check_preconditions(access.request, config)
    await registry.delete(config, with_reports=access.query.reports == "delete")


async def _document(access: Access, types: tuple[str, ...]) -> dict[str, Any]:
    limit = min(MAX_SETTINGS_BYTES, access.settings.max_body_bytes)
    small = {"max_body_bytes": limit, "max_decoded_bytes": limit}
    settings = access.settings.model_copy(update=small)
    with access.ingest.admission.hold() as hold:
        body = await read_body(access.request, settings, hold, types)
        return object_of(read_json(body.data, MAX_SETTINGS_OBJECTS))


def _networks(access: Access) -> tuple[Network, ...]:
    """Return where receivers of alarms may be, in addition to the public internet."""
    return networks_of(access.settings.webhook_networks or "")


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


async def _put(access: Access, current: ModelConfig | None, change: SettingsChange) -> Response:
    """Write what is wanted over `current`; the same again needs neither a write nor If-Match."""
    wanted, registry = change.config, access.ingest.registry
    if current is None:
        await access.ingest.check_new_model(wanted.tenant)
        try:
            made = await registry.put(wanted, None)
        except RevisionConflict as first:
            if first.current is None:
                raise
            # Another request was first, such as an attempt of this one whose response was lost.
            _check_preconditions(access.request, first.current)
            return await _put(access, first.current, change)
        location = f"/v1/models/{made.model}"
        return _response(made, status=201, disclosed=change.disclosed, Location=location)
    if declared(current) == declared(wanted):
        await registry.confirm(current)
        return _response(current)
    audit_of(access.request).details = {"changed": changes_between(current, wanted)}
    if "if-match" not in access.request.headers:
        raise PreconditionRequired()
    written = await registry.put(wanted, current.revision)
    return _response(written, disclosed=change.disclosed)


def _headers(config: ModelConfig) -> dict[str, str]:
    return {"ETag": etag_of(config), "Cache-Control": "no-cache"}


def _response(
    config: ModelConfig, status: int = 200, disclosed: frozenset[str] = frozenset(), **headers: str
) -> Response:
    body = orjson.dumps(shown(config, disclosed))
    return Response(body, status, {**_headers(config), **headers}, JSON)
