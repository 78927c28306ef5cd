"""The gain of the procedure that made a frozen map, cross-fitted on the labels of its own window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from calibrant.calibrators.map_comparison import procedure_gain
from calibrant.core.documents import Result
from calibrant.results.calibration_map import calibration_map
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import Query, query_for

LEVEL = 0.95


class MapProcedureQuery(Query):
    """The fit as it was requested; without `current`, its gain over the unmapped probabilities."""

    kind: ClassVar[str] = "map_procedure"

    fit: dict[str, Any]
    current: dict[str, Any] | None = None


def accumulators(query: MapProcedureQuery) -> Iterable[str]:
    """Counts, plain histograms and the stored sample: maps are fitted to its rows."""
    return ("counts", "histograms", "sample")


def is_slow(query: MapProcedureQuery) -> bool:
    """Five fits, each to rows that are filled again."""
    return True


def compute(query: MapProcedureQuery, inputs: Inputs) -> Result:
    """Whether maps of the procedure beat `current`, with the gain and its interval."""
    # The rule of a promotion is one level, whatever level the intervals of the fit have.
    requested = replace(query_for(calibration_map, **query.fit).plain(), ci=LEVEL)
    view, options = requested.view_of(inputs.pane)
    return procedure_gain(query.current, requested.slug, options, view)


KIND = ResultKind(MapProcedureQuery, compute, accumulators, is_slow=is_slow)
