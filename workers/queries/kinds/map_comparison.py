"""The gain of one frozen map over another on a window's labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from calibrant.calibrators.map_comparison import compare as compare_maps
from calibrant.core.documents import Result
from calibrant.results.reads import Raters
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import CI, RATERS, Query


class MapComparisonQuery(Query):
    """The maps as plain numbers; without `current`, the unmapped probabilities."""

    kind: ClassVar[str] = "map_comparison"

    candidate: dict[str, Any]
    current: dict[str, Any] | None = None
    raters: Raters = RATERS
    ci: float = CI


def accumulators(query: MapComparisonQuery) -> Iterable[str]:
    """Counts, the stored sample, and the profile that compares two temperatures."""
    return ("counts", "sample", "temperature")


def compute(query: MapComparisonQuery, inputs: Inputs) -> Result:
    """Whether `candidate` beats `current`, with the gain and its interval."""
    return compare_maps(
        query.current, query.candidate, inputs.pane, raters=query.raters, ci=query.ci
    )


KIND = ResultKind(MapComparisonQuery, compute, accumulators)
