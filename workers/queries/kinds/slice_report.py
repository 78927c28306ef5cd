"""What an archived report has of one slice: its results, and the packed pane that all of them are computed from.

From the pane the same numbers can be computed later. They are one result, and so of one state, however often the state changes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from calibrant.calibrators.temperature.fit import MAX_EXACT_ROWS
from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.results.metric_work import metric_work
from calibrant.results.metrics import metrics
from calibrant.results.reads import SAMPLE, SAMPLE_OF_FEW, Read
from calibrant.results.reliability import reliability
from calibrant.results.temperature import temperature
from calibrant_server.workers.memory import return_freed
from calibrant_server.workers.queries.declared import declared_query
from calibrant_server.workers.queries.kind import Inputs, ResultKind, kind_of
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.windows import rfc3339

READS: tuple[Read[Any, Any], ...] = (metrics, reliability, temperature)
MetricsQuery, ReliabilityQuery, TemperatureQuery = map(declared_query, READS)
MAX_BYTES = 8 << 20
# Units of the metrics (`metric_work`), about 2 ms each.
QUICK_WORK = 50
# A pane of `MAX_BYTES` in Base64, and its results. The next request of the same report needs them; later ones do not.
CACHED_BYTES, CACHED_S = 12 << 20, 300


class SliceReportQuery(Query):
    """The queries of the results, resolved; those of a subgroup are the metrics alone."""

    kind: ClassVar[str] = "slice_report"

    metrics: MetricsQuery  # type: ignore[valid-type]
    reliability: ReliabilityQuery | None = None  # type: ignore[valid-type]
    temperature: TemperatureQuery | None = None  # type: ignore[valid-type]

    def each(self) -> Iterator[tuple[ResultKind[Any], Query]]:
        """Yield the queries with their kinds."""
        for read in READS:
            query = getattr(self, read.name)
            if query is not None:
                yield kind_of(read), query


def is_slow(query: SliceReportQuery) -> bool:
    """Return whether the results take long after many panes were read."""
    requested: Any = query.metrics
    work = metric_work(requested.plain().listed, requested.bins)
    return work > QUICK_WORK or any(kind.is_slow(each) for kind, each in query.each())


def compute(query: SliceReportQuery, inputs: Inputs) -> Result:
    """The pane as `calibrant.Pane.from_bytes` reads it, its digest, the model's generation and revision, the time, and the results by kind.

    A pane of more than `MAX_BYTES` has no results: it is null, with the reason and its size.
    """
    # Reading complete panes took several times the memory of their merge. The next query may be computed by another thread.
    return_freed()
    pane = inputs.pane
    packed = pane.pack()
    if len(packed) > MAX_BYTES:
        return {"packed": None, "reason": "too_large", "n_bytes": len(packed), "results": {}}
    return {
        "packed": base64.b64encode(packed).decode(),
        "digest": pane.digest(),
        "of": [inputs.config.generation, inputs.config.revision],
        "at": rfc3339(datetime.now(UTC).replace(microsecond=0)),
        "results": {
            kind.name: kind.compute(each, replace(inputs, merged=_restricted(pane, kind, each)))
            for kind, each in query.each()
        },
    }


def _restricted(pane: Pane, kind: ResultKind[Any], query: Query) -> Pane:
    """Return the accumulators that a result reads, and no others: some results depend on whether there is a sample."""
    wanted = {*(kind.reads(query, False) or pane.names)}
    if SAMPLE_OF_FEW in wanted and pane.counts["n_labelled"] <= MAX_EXACT_ROWS:
        wanted.add(SAMPLE)
    return pane.restricted(wanted)


KIND = ResultKind(
    SliceReportQuery,
    compute,
    is_slow=is_slow,
    has_results=True,
    cached_bytes=CACHED_BYTES,
    cached_s=CACHED_S,
)
