"""The current calibration map: the frozen version that clients should use, and its replacement.

The complete map is in one field of the store, so clients may poll it at any rate: an unchanged map is 304 after two
small reads. `stale-if-error` lets a client continue with its copy while the service is unavailable.
"""

from datetime import UTC, datetime
from typing import NotRequired, TypedDict

import orjson
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.calibrators.map_comparison import PROCEDURE
from calibrant.core.documents import Result
from calibrant.core.errors import Violation
from calibrant.core.time_texts import day_of, period_text
from calibrant.figures.numbers import counted
from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.json_bodies import response_or_unchanged
from calibrant_server.service.http.parameters import (
    entity_tags,
    names,
)
from calibrant_server.service.http.problems import (
    MapNotBetter,
    MapUnknown,
    PreconditionFailed,
    PreconditionRequired,
)
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.frozen_maps import (
    MAX_VERSION,
    MapVersion,
    PromotionRecord,
    formula_of,
    reject_observed,
    who_is,
)
from calibrant_server.service.reads.operations import Access, Admin, MapReader, Operations
from calibrant_server.service.reads.promotion_warnings import reject_map_of_slice, warnings_of
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.queries.kinds.map_comparison import MapComparisonQuery
from calibrant_server.workers.queries.kinds.map_procedure import MapProcedureQuery
from calibrant_server.workers.store.frozen_maps import FrozenMap, PromotedMap
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.windows import Window, rfc3339

router = Operations("maps")

# Reasons for which later labels decide nothing.
TOO_FEW = ("no_labels", "few_units")
LIMITS = "Neither later labels nor cross-fitting test the map on another scanner or site."
STALE_IF_ERROR_S = 86_400
CURRENT_HEADERS = {
    "Cache-Control": f"private, max-age=0, stale-if-error={STALE_IF_ERROR_S}",
    "Vary": "Authorization",
}


class MapEvidence(TypedDict):
    """What a map gains over the current one: the result of `calibrant/calibrators/map_comparison.py`, and how it was found."""

    beats: bool
    reason: str | None
    detail: str | None
    gain: NotRequired[Result | None]
    n_units: NotRequired[int]
    window: NotRequired[dict[str, str]]
    evidence_of: NotRequired[str]
    later_labels: NotRequired[str | None]
    result: NotRequired[str]
    limits: NotRequired[str]


class Promotion(BaseModel):
    """Which version becomes current, and the reason."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = Field(ge=1, le=MAX_VERSION)
    reason: str = Field(min_length=1, max_length=2000, description="Recorded with the promotion.")
    override: bool = Field(
        False, description="Promote it even if it was not shown to beat the current map."
    )


class CurrentMapResponse(MapVersion):
    """The current map with its promotion."""

    promotion: PromotionRecord


@router.operation(
    "GET /v1/models/{model}/maps/current",
    MapReader,
    success(
        CurrentMapResponse,
        "The current map",
        ETag="Changes with each promotion.",
        Cache_Control="How long it may be used while the service is unavailable.",
    ),
    409,
    headers=("if_none_match",),
)
async def get_current_map(access: Access) -> Response:
    """Return the current map, which clients should use."""
    config = await access.config()
    reject_observed(access.settings, config)
    current = await access.inbox.maps.current(config)
    if current is None:
        raise MapUnknown("No map of this model was promoted yet.")
    headers = {**CURRENT_HEADERS, "ETag": current.etag}
    return response_or_unchanged(access.request, current.body, headers)


@router.operation(
    "PUT /v1/models/{model}/maps/current",
    Admin,
    success(CurrentMapResponse, "The current map", ETag="Changes with each promotion."),
    409,
    headers=("if_match", "if_none_match"),
    body=("The version and the reason", Promotion),
)
async def promote_map(access: Access) -> Response:
    """Make a version the current map; the same call returns to an earlier one."""
    wanted, config, maps = access.body, await access.config(), access.inbox.maps
    reject_observed(access.settings, config)
    now = await maps.current(config)
    _check_preconditions(access.request, now)
    version = await maps.version(config, wanted.version)
    before: FrozenMap | None = None if now is None else orjson.loads(now.body)
    if now is not None and before is not None and before["version"] == wanted.version:
        return _current(now)
    if not wanted.override:
        reject_map_of_slice(config, version)
    evidence = await _evidence(access.reads, config, before, version)
    if not evidence["beats"] and not wanted.override:
        raise _not_better(wanted, before, evidence)
    record = {
        "version": wanted.version,
        "previous": None if before is None else before["version"],
        "promoted_at": rfc3339(datetime.now(UTC)),
        "promoted_by": who_is(access.caller),
        "promoted_role": access.caller.role or None,
        "reason": wanted.reason,
        "override": wanted.override,
        "evidence": evidence,
        "warnings": await warnings_of(access.connection, access.reads, config, before, version),
    }
    promotion = 1 if now is None else now.promotion + 1
    body = {**version, "promotion": {"promotion": promotion, **record}}
    new = PromotedMap(config.generation, promotion, orjson.dumps(body))
    await maps.promote(config, wanted.version, new, orjson.dumps(record))
    return _current(new)


def _current(current: PromotedMap) -> Response:
    return Response(current.body, 200, {**CURRENT_HEADERS, "ETag": current.etag}, JSON)


def _check_preconditions(request: Request, now: PromotedMap | None) -> None:
    """Reject a promotion that does not say which one it follows, or follows another one."""
    required = entity_tags(request, "if-match")
    is_first = entity_tags(request, "if-none-match") == ["*"]
    if required is None and not is_first:
        raise PreconditionRequired(
            "Received no precondition. Send If-Match with the ETag of the current map, or If-None-Match: * if there is none."
        )
    if now is None and required is not None:
        raise PreconditionFailed(
            "No map is current yet, but If-Match was received. Send If-None-Match: * instead."
        )
    if now is not None and (is_first or not names(required, now.etag)):
        raise PreconditionFailed(
            "Received the ETag of another map than the current one. Read the current map again, and send its ETag."
        )


async def _evidence(
    reads: ReadService,
    config: ModelConfig,
    before: FrozenMap | None,
    version: FrozenMap,
) -> MapEvidence:
    """Return what the version gains over the current map, or over the probabilities as sent.

    By panes after the windows of both; of a model with a label horizon by its sealed cohorts. Where these have too few labels, by
    cross-fitting in the version's own window. The later window has a slice only if both maps were fitted to it: the current map is for
    every prediction of the model.
    """
    later = await _later_labels(reads, config, before, version)
    found = later
    if later["reason"] in TOO_FEW and version.get("fit"):
        procedure = await _procedure(reads, config, before, version)
        found = {**procedure, "later_labels": later["reason"]}
    return {**found, "result": "shown" if found["beats"] else "not_shown", "limits": LIMITS}


async def _procedure(
    reads: ReadService,
    config: ModelConfig,
    before: FrozenMap | None,
    version: FrozenMap,
) -> MapEvidence:
    """Return what maps of the version's procedure gain, cross-fitted by unit in its own window."""
    current = None if before is None else formula_of(before)
    window = {name: version["window"][name] for name in ("from", "to")}
    view = ClockQuery.model_validate(
        {**window, "slice": version.get("slice"), "clock": version.get("clock", "event")}
    )
    read_query = ReadQuery(MapProcedureQuery(current=current, fit=version["fit"]), config, view)
    return await _evidence_of(reads, read_query)


async def _later_labels(
    reads: ReadService,
    config: ModelConfig,
    before: FrozenMap | None,
    version: FrozenMap,
) -> MapEvidence:
    fits = [each for each in (before, version) if each is not None]
    since = max(each["window"]["to"] for each in fits)
    query = MapComparisonQuery(
        current=None if before is None else formula_of(before),
        candidate=formula_of(version),
        raters=version.get("raters", "pooled"),
    )
    slices = {each.get("slice") for each in fits}
    shared = slices.pop() if len(slices) == 1 else None
    if datetime.fromisoformat(since) >= await _matured_to(reads, config):
        return {"beats": False, "reason": "no_labels", "detail": "no later labels have come"}
    clock = "event" if config.label_horizon_s is None else "sealed"
    view = ClockQuery.model_validate({"from": since, "slice": shared, "clock": clock})
    read_query = ReadQuery(query, config, view)
    return await _evidence_of(reads, read_query)


async def _evidence_of(reads: ReadService, read_query: ReadQuery) -> MapEvidence:
    """Return a result without the name of the model."""
    found = orjson.loads((await reads.result(read_query)).body)
    found.pop("model", None)
    evidence: MapEvidence = found
    return evidence


async def _matured_to(reads: ReadService, config: ModelConfig) -> datetime:
    """Return the end of what later labels there can be: now, or that of the last sealed cohort."""
    if config.label_horizon_s is None:
        return datetime.now(UTC)
    marks = await reads.inbox.marks(config, sealed_slice(""))
    return Window(0, marks.sealed_to).to_at


def _not_better(wanted: Promotion, before: FrozenMap | None, evidence: MapEvidence) -> MapNotBetter:
    gain = (evidence.get("gain") or {}).get("nll") or {}
    measured = ""
    if gain.get("value") is not None and gain.get("interval"):
        low, high = gain["interval"]
        measured = f" Gain in NLL {gain['value']:.4g}, interval {low:.4g} to {high:.4g}."
    other = "the probabilities as sent" if before is None else f"version {before['version']}"
    is_procedure = evidence.get("evidence_of") == PROCEDURE
    where = "when cross-fitted by unit" if is_procedure else "on later labels"
    reason = evidence["reason"] or "not_better"
    detail = (
        f"Version {wanted.version} was not shown to beat {other} {where}: "
        f"{evidence['detail']}.{_labels_used(evidence)}{measured}{_waiting(evidence)} Send override: true to promote it anyway."
    )
    return MapNotBetter(detail, errors=[Violation("/version", reason, detail)])


def _labels_used(evidence: MapEvidence) -> str:
    """Return how many labelled units of which days were compared."""
    window = evidence.get("window")
    if window is None or evidence.get("n_units") is None:
        return ""
    start, end = (int(datetime.fromisoformat(window[name]).timestamp()) for name in ("from", "to"))
    n = counted(evidence["n_units"], "unit")
    days = period_text((start, max(end, start + 1))) if start else f" up to {day_of(end)}"
    return f" Compared: {n} with labels{days}."


def _waiting(evidence: MapEvidence) -> str:
    """Return that later labels may decide; nothing if those that came exclude a gain."""
    gain = (evidence.get("gain") or {}).get("nll") or {}
    interval = gain.get("interval")
    if interval is not None and interval[1] <= 0.0:
        return ""
    return " Wait for more labels, and promote it again."
