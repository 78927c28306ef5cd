"""Decision thresholds of a report since a change that is open: days before it hide what is true now."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from calibrant.metrics.requests import split
from calibrant.results.metrics import metrics
from calibrant.results.queries import DETAILS
from calibrant_server.service.reads.operations import Access
from calibrant_server.service.reads.queries import resolved_query
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.reports import OF_ANOTHER_VERDICT, ReportParameters
from calibrant_server.workers.queries.query import query_for
from calibrant_server.workers.store.model_config import ModelConfig

SINCE_CHANGE = "since_change"


async def since_change_query(
    read: Access, parameters: ReportParameters, config: ModelConfig
) -> dict[str, ReadQuery]:
    """Return the query of the net benefits since the open change of the model or slice; none without one."""
    named = [each for each in split(parameters.metrics) if each.startswith("net_benefit")]
    if not named or parameters.model_fields_set & OF_ANOTHER_VERDICT:
        return {}
    mine = (config.model, config.generation, parameters.slice or "", "open")
    starts = [
        each.start_of_change
        for each in await read.connection.inbox.alarms.episodes(config.tenant)
        if (each.model, each.generation, each.slice, each.status) == mine
    ]
    if not starts or starts[0] is None:
        return {}
    given = parameters.given("scope", "raters", "ci")
    query = query_for(metrics, metrics=",".join(named), include=DETAILS, **given)
    since = parameters.model_copy(update={"from_": datetime.fromtimestamp(starts[0], UTC)})
    return {SINCE_CHANGE: ReadQuery(resolved_query(query, config), config, since)}


def since_change(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the net benefits since the change with its start; None if the words do not show one now."""
    found = results.get(SINCE_CHANGE)
    if found is None:
        return None
    start = change_start(results["drift"])
    return None if start is None else {**found, "start": start}


def change_start(drift: Mapping[str, Any]) -> str | None:
    """Return when the open change of a drift report began; None without one."""
    change = drift.get("change") or {}
    return change.get("start") if change.get("word") == "changed" else None
