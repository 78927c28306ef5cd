"""Counts of a window."""

from __future__ import annotations

from typing import ClassVar

from calibrant.core.documents import Result
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import Query


class CountsQuery(Query):
    """A query without parameters."""

    kind: ClassVar[str] = "counts"


def compute(query: CountsQuery, inputs: Inputs) -> Result:
    """Numbers of predictions, ratings and units."""
    return dict(inputs.pane.counts)


KIND = ResultKind(CountsQuery, compute, accumulators=lambda query: ["counts"])
