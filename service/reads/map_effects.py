"""The query of what a promoted map changed: the labels of predictions since its promotion."""

from datetime import UTC, datetime
from typing import Any

from calibrant_server.service.reads.frozen_maps import formula_of
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.workers.queries.kinds.map_effect import MapEffectQuery
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import rfc3339

NOTHING: dict[str, Any] = {"n": 0, "before": None, "after": None, "reason": "no_labels"}


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
    return (NOTHING if found is None else found) | about


def first_slice_after(fitted: dict[str, Any], config: ModelConfig) -> datetime:
    """Return the start of the first time slice after the promotion of a map and after the window that it was fitted to."""
    times = (fitted["promotion"]["promoted_at"], fitted["window"]["to"])
    last_s = max(datetime.fromisoformat(each).timestamp() for each in times)
    return datetime.fromtimestamp(-(-last_s // config.pane_s) * config.pane_s, UTC)
