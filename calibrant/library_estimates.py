"""Metrics of arrays without a report. The first call of a metric's function imports this and what it needs, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.library_arguments import (
    DATA,
    QUERY,
    accepted_options,
    filled_view,
    reject_unused_edges,
    slugs_of,
)
from calibrant.metrics import estimates
from calibrant.metrics.estimate import Estimate


def estimate_of(slug: str, arguments: dict[str, Any]) -> Estimate:
    """Return one metric of the arguments of a call of `evaluate`, without what only a report has."""
    options = {name: arguments[name] for name in arguments if name not in (*DATA, *QUERY)}
    pane_query, slugs = query_of(arguments, options, slugs_of([slug], options))
    return estimates_of(filled_view(arguments, pane_query, slugs), slugs)[slugs[0]]


def query_of(
    arguments: dict[str, Any], options: dict[str, Any], slugs: list[str]
) -> tuple[PaneQuery, list[str]]:
    """Return the query of a call, and its metrics with classes by index."""
    scope = arguments.get("scope")
    if arguments.get("classes") is not None:
        from calibrant.results.metric_requests import scopes_by_index

        scope, slugs = scopes_by_index(scope, slugs, arguments["classes"])
    given = {name: arguments[name] for name in QUERY if name in arguments} | {"scope": scope}
    pane_query = PaneQuery(**given, options=accepted_options(options, slugs))
    reject_unused_edges(pane_query, slugs)
    return pane_query, slugs


def estimates_of(view: View, slugs: Sequence[str]) -> dict[str, Estimate]:
    """Return metrics by their canonical keys, each with what was altered as the rows were read."""
    return {
        key: replace(each, extra=view.notes.added_to(dict(each.extra)))
        for key, each in estimates(view, slugs).items()
    }
