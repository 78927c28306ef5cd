"""Calibration maps in the API: queries, response models, authors, observe mode, and what a promoted map changed.

In observe mode, the maps of a model, or of all models, are advice; none is promoted, returned as current or applied.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from calibrant.results.calibration_map import CalibrationMap, calibration_map
from calibrant.results.map_query import MapFitQuery
from calibrant_server.service.http.problems import (
    ObserveOnly,
    ProblemError,
)
from calibrant_server.service.reads.parts import require_label
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.representations import part_of
from calibrant_server.service.security.keys import Caller
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.kinds.map_effect import MapEffectQuery
from calibrant_server.workers.queries.query import declared_query, query_class
from calibrant_server.workers.store.model_config import OBSERVE, ModelConfig
from calibrant_server.workers.store.windows import rfc3339

MAX_VERSION = 1_000_000
MapNumber = Annotated[int, Path(ge=1, le=MAX_VERSION, description="Number of the version.")]


# A map to apply has no weights.
_FIT = query_class(MapFitQuery)
_FIT.kind = calibration_map.name


class MapParameters(ClockQuery, declared_query(calibration_map)):  # type: ignore[misc]
    """Which map, fitted to what."""


class ApplyFit(ClockQuery, _FIT):  # type: ignore[misc,valid-type]
    """Which map, fitted to what, to map rows with."""


class MapResponse(part_of(CalibrationMap, "MapResponse")):  # type: ignore[misc]
    """A map as plain numbers, from which any client can compute it."""


def map_read_query(parameters: MapParameters, config: ModelConfig) -> ReadQuery:
    """Return the query for a map; a class is named by its index from here on.

    Raises
    ------
    CalibrationInputError
        The query does not suit the model.
    """
    require_label(config, parameters.slice)
    return ReadQuery(parameters.resolved(config), config, parameters)


def formula_of(fitted: Mapping[str, object]) -> dict[str, Any]:
    """Return what a map is applied by."""
    return {name: fitted.get(name) for name in ("method", "scope", "class", "parameters")}


class MapVersion(MapResponse):
    """A frozen map: the result of the fit, which never changes."""

    model: str
    version: int
    created_at: str
    created_by: str
    note: str | None = None
    window: dict[str, str]
    state_version: str


class PromotionRecord(BaseModel):
    """One promotion: version, user, time, reason and evidence."""

    model_config = ConfigDict(extra="allow")

    promotion: int
    version: int
    previous: int | None
    promoted_at: str
    promoted_by: str
    promoted_role: str | None = Field(None, description="Role of that person, if known.")
    reason: str
    override: bool
    evidence: dict[str, Any] | None
    warnings: list[ProblemError] = Field([], description="Side effects of the promotion.")


def who_is(caller: Caller) -> str:
    """Return the name of the caller's key or its id; without keys, the tenant."""
    return caller.name or caller.key_id or caller.tenant


def is_observed(settings: Settings, config: ModelConfig) -> bool:
    """Return whether maps of this model are only advice."""
    return OBSERVE in (settings.mode, config.mode)


def reject_observed(settings: Settings, config: ModelConfig) -> None:
    """Reject what would change the probabilities that a model's users see.

    Raises
    ------
    ObserveOnly
    """
    if settings.mode == OBSERVE:
        raise ObserveOnly(
            "The service runs in observe mode (CALIBRANT_MODE): maps are advice, and none is promoted or applied. "
            "Read GET calibration-map, or the frozen versions in GET maps."
        )
    if config.mode == OBSERVE:
        raise ObserveOnly(
            f"The model {config.model!r} is in observe mode: maps are advice, and none is promoted or applied. "
            "Set its `mode` to serve to use them."
        )


_NO_EFFECT: dict[str, Any] = {"n": 0, "before": None, "after": None, "reason": "no_labels"}


def effect_query(fitted: dict[str, Any], config: ModelConfig) -> ReadQuery | None:
    """Return the query of a promoted map's effect; None if no prediction can be recent enough."""
    since = first_slice_after(fitted, config)
    if since >= datetime.now(UTC):
        return None
    query = MapEffectQuery(fitted=formula_of(fitted), raters=fitted.get("raters", "pooled"))
    return ReadQuery(query, config, ClockQuery.model_validate({"from": rfc3339(since)}))


def effect_document(
    found: dict[str, Any] | None, fitted: dict[str, Any], config: ModelConfig
) -> dict[str, Any]:
    """Return the effect with the map and the time that it is about."""
    since = rfc3339(first_slice_after(fitted, config))
    about = {"model": config.model, "version": fitted["version"], "since": since}
    return (_NO_EFFECT if found is None else found) | about


def first_slice_after(fitted: dict[str, Any], config: ModelConfig) -> datetime:
    """Return the start of the first time slice after the promotion of a map and after the window that it was fitted to."""
    times = (fitted["promotion"]["promoted_at"], fitted["window"]["to"])
    last_s = max(datetime.fromisoformat(each).timestamp() for each in times)
    return datetime.fromtimestamp(-(-last_s // config.pane_s) * config.pane_s, UTC)
