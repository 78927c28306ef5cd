"""The report of a model: its subgroups, its queries, and the contents that their results give."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from calibrant.quality_report import ReportContents
from calibrant_server.service.reads.frozen_maps import effect_query, is_observed
from calibrant_server.service.reads.known_slices import KnownSlices
from calibrant_server.service.reads.operations import Access
from calibrant_server.service.reads.queries import unanswerable
from calibrant_server.service.reads.read_query import ReadQuery, resolved
from calibrant_server.service.reads.report_change import since_change, since_change_query
from calibrant_server.service.reads.report_classes import scored_classes
from calibrant_server.service.reads.reports import (
    EFFECT,
    ReportParameters,
    contents_of,
    queries,
    subgroup_query,
    work_of,
)
from calibrant_server.workers.queries.versions import panes_in
from calibrant_server.workers.store.model_config import ModelConfig

MAX_SUBGROUPS = 40
# Units of work of a report: its metrics, the panes of the window, and each subgroup with as many panes. On a core that needs half a
# millisecond for a pane, a unit is about a millisecond.
MAX_WORK = 720
OF_A_METRIC_UNIT, OF_A_SUBGROUP = 2, 18
# The panes of the window are read first. Those of a subgroup are of the same rows.
PANES_OF_A_UNIT, SUBGROUP_PANES_OF_A_UNIT = 2.5, 4.0
# A pane of a merged day has sums, which take longer to read than a few rows.
PANES_OF_A_DAY = 2


@dataclass(frozen=True)
class PreparedReport:
    """Queries of a report, and what makes its contents of their results.

    Attributes
    ----------
    map_etag : of the promoted map, empty for none
    contents : from the results by name of the query
    """

    config: ModelConfig
    queries: dict[str, ReadQuery]
    map_etag: str
    contents: Callable[[Mapping[str, Any]], ReportContents]


async def prepared(read: Access, query: ReportParameters) -> PreparedReport:
    """Return what a report of the model is computed from."""
    config = await read.config()
    query = query.of_model(config)
    current = await read.connection.inbox.maps.current(config)
    listed, left_out = await subgroups_of(read, query, config)
    observed = is_observed(read.request.app.state.settings, config)
    map_etag = "" if current is None else current.etag
    active_map = None if current is None else orjson.loads(current.body)

    def contents(results: Mapping[str, Any]) -> ReportContents:
        found = contents_of(query, config, results, active_map, left_out, observed)
        return replace(found, since_change=since_change(results))

    shown = (map_etag, str(query.tolerance_of(config)), str(observed), *left_out)
    found = queries(query, config, listed, shown)
    effect = None if active_map is None or observed else effect_query(active_map, config)
    if effect is not None:
        found[EFFECT] = effect
    found |= await since_change_query(read, query, config)
    return PreparedReport(config, found, map_etag, contents)


async def subgroups_of(
    read: Access, parameters: ReportParameters, config: ModelConfig
) -> tuple[list[str], list[str]]:
    """Return the subgroups of a report, sorted, and those that are left out: the requested ones, else the declared ones and those with data."""
    work = work_of(parameters, config)
    if parameters.slice is not None and parameters.subgroups is not None:
        detail = "Received slice and subgroups; a report of one slice has no subgroups. Leave one of them out."
        raise unanswerable("/subgroups", "subgroups_of_slice", detail)
    known = await KnownSlices.of(read.connection.inbox, config)
    if parameters.slice is not None:
        known.reject_others([parameters.slice])
        return [], []
    wanted = parameters.subgroup_names
    if wanted is not None:
        known.reject_others(wanted, "/subgroups")
        wanted = list(dict.fromkeys(wanted))
    else:
        sizes = await read.connection.inbox.n_panes(config, known.names)
        by_size = sorted(zip(known.names, sizes, strict=True), key=lambda each: (-each[1], each[0]))
        wanted = [name for name, _ in by_size]
    n_panes = await _n_panes(read, parameters, config) if wanted else 0
    n_classes = len(scored_classes(parameters.scope, config))
    n = n_listed(work, n_panes, n_classes) if wanted else 0
    return sorted(wanted[:n]), wanted[n:]


def n_listed(work: int, n_panes: int, n_classes: int = 0) -> int:
    """Return how many subgroups one report may list, at least one.

    Parameters
    ----------
    work : units of the metrics
    n_panes : of the window; a subgroup has at most as many
    n_classes : with an error of their own, which takes as long as a subgroup

    >>> n_listed(40, 24), n_listed(40, 24, 3)
    (26, 23)
    """
    left = MAX_WORK - OF_A_METRIC_UNIT * work - n_panes / PANES_OF_A_UNIT
    of_each = OF_A_SUBGROUP + n_panes / SUBGROUP_PANES_OF_A_UNIT
    return max(1, min(MAX_SUBGROUPS, int(left // of_each) - n_classes))


async def _n_panes(read: Access, parameters: ReportParameters, config: ModelConfig) -> int:
    """Return how many panes of the window a report reads; those of merged days count twice."""
    query = subgroup_query(parameters, config, "")
    state = await read.connection.inbox.state(config, query.slice_name, query.query.needs)
    panes = panes_in(state.panes, resolved(query, state.marks))
    n_days = sum(state.marks.length(start, config.pane_s) > config.pane_s for start in panes)
    return len(panes) + (PANES_OF_A_DAY - 1) * n_days
