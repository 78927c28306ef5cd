"""One recommendation for a model: reads of its current state that recommend something return that of `GET drift`.

A read of a certain window, clock or label policy, and a comparison, recommend by the labels that they name.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calibrant.results.drift import drift
from calibrant.results.queries import parts_of
from calibrant_server.service.reads.queries import WindowQuery, resolved_query
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.workers.queries.query import query_for

ADVICE = "recommendation"
_OTHER_LABELS = ("from_", "to", "window", "clock", "raters", "weights")


def with_current_advice(read_query: ReadQuery) -> dict[str, ReadQuery] | None:
    """Return the queries of a read that recommends something about the current state of a model with an alarm; else None."""
    query, config, view = read_query.query, read_query.config, read_query.view
    included = parts_of(getattr(query, "include", None))
    is_other = read_query.comparison is not None or view.model_fields_set & {*_OTHER_LABELS}
    if ADVICE not in included or is_other or config.label_horizon_s is None:
        return None
    rest = ",".join(each for each in included if each != ADVICE) or None
    own = replace(read_query, query=query.model_copy(update={"include": rest}))
    current = ReadQuery(
        resolved_query(query_for(drift), config), config, WindowQuery(slice=view.slice)
    )
    return {"own": own, "drift": current}


def joined(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the read's document with the recommendation of `GET drift`."""
    return {**found["own"], ADVICE: found["drift"][ADVICE]}
