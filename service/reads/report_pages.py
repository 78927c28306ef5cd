"""The report of a model: its queries, and the contents that their results give."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from calibrant.quality_report import ReportContents
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.reads.frozen_maps import is_observed
from calibrant_server.service.reads.operations import Access
from calibrant_server.service.reads.report_subgroups import subgroups_of
from calibrant_server.service.reads.reports import (
    ReportParameters,
    contents_of,
    queries,
)
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.workers.store.model_config import ModelConfig


@dataclass(frozen=True)
class PreparedReport:
    """Queries of a report, and what makes its contents of their results.

    Attributes
    ----------
    subgroups : slices that the report lists
    map_etag : of the promoted map, empty for none
    contents : from the results by name of the query
    """

    config: ModelConfig
    queries: dict[str, ReadQuery]
    subgroups: tuple[str, ...]
    map_etag: str
    contents: Callable[[Mapping[str, Any]], ReportContents]


async def prepared(read: Access, query: ReportParameters) -> PreparedReport:
    """Return what a report of the model is computed from."""
    config = await read.config()
    with engine_errors():
        current = await read.connection.inbox.maps.current(config)
    subgroups = await subgroups_of(read, query, config)
    observed = is_observed(read.request.app.state.settings, config)
    map_etag = "" if current is None else current.etag
    active_map = None if current is None else orjson.loads(current.body)

    def contents(results: Mapping[str, Any]) -> ReportContents:
        return contents_of(query, config, results, active_map, subgroups.left_out, observed)

    shown = (map_etag, str(query.tolerance_of(config)), str(observed), *subgroups.left_out)
    return PreparedReport(
        config,
        queries(query, config, subgroups.listed, shown),
        subgroups.listed,
        map_etag,
        contents,
    )
