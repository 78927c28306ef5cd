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
from calibrant.results.reads import SAMPLE, SAMPLE_OF_FEW
from calibrant.results.temperature import temperature as declared_temperature
from calibrant_server.workers.memory import return_freed
from calibrant_server.workers.queries.kind import Inputs, ResultKind, kind_of
from calibrant_server.workers.queries.kinds import metrics, reliability
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.kinds.reliability import ReliabilityQuery
from calibrant_server.workers.queries.metric_work import metric_work
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.windows import rfc3339

TEMPERATURE = kind_of(declared_temperature)
MAX_BYTES = 8 << 20
# Units of the metrics (`metric_work`), about 2 ms each.
QUICK_WORK = 50
# A pane of `MAX_BYTES` in Base64, and its results. The next request of the same report needs them; later ones do not.
CACHED_BYTES, CACHED_S = 12 << 20, 300


class SliceReportQuery(Query):
    """The queries of the results, resolved; those of a subgroup are the metrics alone."""

    kind: ClassVar[str] = "slice_report"

    metrics: MetricsQuery
    reliability: ReliabilityQuery | None = None
    temperature: TEMPERATURE.query | None = None  # type: ignore[name-defined]

    def each(self) -> Iterator[tuple[ResultKind[Any], Query]]:
        """Yield the queries with their kinds."""
        yield metrics.KIND, self.metrics
        if self.reliability is not None:
            yield reliability.KIND, self.reliability
        if self.temperature is not None:
            yield TEMPERATURE, self.temperature


def is_slow(query: SliceReportQuery) -> bool:
    """Return whether the results take long after many panes were read."""
    work = metric_work(query.metrics.listed, query.metrics.bins)
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
