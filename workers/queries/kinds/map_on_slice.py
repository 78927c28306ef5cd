"""Whether a frozen map makes the predictions of one slice worse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.stability.before_and_after import map_on_slice
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.kinds.map_comparison import MapComparisonQuery


class MapOnSliceQuery(MapComparisonQuery):
    """The maps as plain numbers; without `current`, the unmapped probabilities."""

    kind: ClassVar[str] = "map_on_slice"


def accumulators(query: MapOnSliceQuery) -> Iterable[str]:
    """Counts, the stored sample, to whose rows the maps are applied, and the profile that compares two temperatures."""
    return ("counts", "sample", "temperature")


def compute(query: MapOnSliceQuery, inputs: Inputs) -> Result:
    """Return whether `candidate` is worse than `current`, with the calibration errors of both."""
    return map_on_slice(query.current, query.candidate, inputs.pane, query.raters, query.ci)


KIND = ResultKind(MapOnSliceQuery, compute, accumulators)
