"""Reliability before and after a frozen map on a window's labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from calibrant.core.documents import Result
from calibrant.results.reads import Raters
from calibrant.stability.before_and_after import map_effect
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import RATERS, Query


class MapEffectQuery(Query):
    """The map as plain numbers."""

    kind: ClassVar[str] = "map_effect"

    fitted: dict[str, Any]
    raters: Raters = RATERS


def accumulators(query: MapEffectQuery) -> Iterable[str]:
    """Counts, and the stored sample, to whose rows the map is applied."""
    return ("counts", "sample")


def compute(query: MapEffectQuery, inputs: Inputs) -> Result:
    """Return the reliability of the window's sample before and after the map."""
    return map_effect(query.fitted, inputs.pane, query.raters)


KIND = ResultKind(MapEffectQuery, compute, accumulators)
