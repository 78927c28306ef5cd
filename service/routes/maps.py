"""Calibration maps: frozen versions of a fit, which never change, and maps applied to a posted batch."""

from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import orjson
from fastapi import Response
from pydantic import BaseModel, Field

from calibrant import calibrators as maps
from calibrant.core.errors import Violation
from calibrant.figures.reasons import reason_words
from calibrant.results.map_query import PARTS
from calibrant_server.service.http.bodies import JSON, NDJSON, Body, read_body
from calibrant_server.service.http.json_bodies import response_or_unchanged
from calibrant_server.service.http.lists import ListPage
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.http.problems import MapUnknown, ProblemError
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.ingest.model_rules import checked_batch, reject_too_many
from calibrant_server.service.ingest.schemas import PredictionRecord, PredictionsBody, RecordsBody
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.frozen_maps import (
    MAX_VERSION,
    ApplyFit,
    MapNumber,
    MapParameters,
    MapVersion,
    PromotionRecord,
    map_read_query,
    reject_observed,
    who_is,
)
from calibrant_server.service.reads.operations import (
    Access,
    Admin,
    Created,
    MapReader,
    Operations,
    Page,
)
from calibrant_server.service.reads.parts import require_label
from calibrant_server.service.reads.queries import resolved_query, unanswerable
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.store.frozen_maps import FrozenMap
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import rfc3339

router = Operations("maps")

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
    NewMap,
    "The fit to freeze",
    Admin,
    {
        200: success(MapVersion, "The same fit was frozen before", Location="The version."),
        201: success(MapVersion, "The version", Location="The version."),
    },
    409,
)
async def create_map(access: Access) -> Created:
    """Fit a calibration map and freeze it as a version."""
    config, maps = await access.config(), access.connection.inbox.maps
    wanted = access.body.model_copy(update={"include": ",".join(PARTS)})
    read_query = map_read_query(wanted, config)
    fitted = orjson.loads((await access.reads.result(read_query)).body)
    if fitted.get("parameters") is None:
        detail = f"There is no map to freeze: {reason_words(fitted.get('reason'), 'no data')}."
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


@MAPS.lists()
async def list_maps(access: Access) -> Page:
    """List the frozen maps of a model and their promotions."""
    config = await access.config()
    versions, promotions = await access.connection.inbox.maps.listed(config)
    page, following = MAPS.paged(access, versions, lambda each: [each["version"]])
    current = promotions[-1]["version"] if promotions else None
    listed = promotions if access.query.cursor is None else []
    return {"model": config.model, "current": current, **page, "promotions": listed}, following


@router.operation(
    "GET /v1/models/{model}/maps/{version}",
    MapReader,
    success(MapVersion, "The version", ETag="A version never changes."),
    id=("version", MapNumber),
    headers=("if_none_match",),
)
async def get_map(access: Access) -> Response:
    """Return a frozen map."""
    config = await access.config()
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


@router.operation(
    "POST /v1/models/{model}/calibration-map/apply",
    MapReader,
    success(ApplyResponse, "The recalibrated batch"),
    409,
    query=ApplyParameters,
    takes_=takes("Predictions", {JSON: (PredictionsBody, RecordsBody), NDJSON: PredictionRecord}),
)
async def apply_calibration_map(access: Access) -> Response:
    """Recalibrate the probabilities of a posted batch by a fit or a frozen map; nothing is stored."""
    query, settings = access.query, access.settings
    if query.is_frozen:
        query.check_frozen()
    config = await access.usable_config()
    reject_observed(settings, config)
    with access.ingest.admission.hold() as hold:
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
