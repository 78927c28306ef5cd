"""The metrics of a report. Their query reads for the other queries of the report too.

A report is several queries of one window. The first reads what all of them need; its worker finds it in memory for the others, so that each
pane of a window is read once and not once per query.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from calibrant.results.metrics import metrics
from calibrant.results.reads import SAMPLE, SAMPLE_OF_FEW
from calibrant.results.reliability import ReliabilityQuery, reliability
from calibrant.results.temperature import TemperatureQuery, temperature
from calibrant_server.workers.queries.kind import ResultKind, kind_of
from calibrant_server.workers.queries.kinds import drift
from calibrant_server.workers.queries.query import Declared, declared_query

METRICS = kind_of(metrics)


class ReportMetricsQuery(declared_query(metrics)):  # type: ignore[misc]
    """The same as of `GET metrics`."""

    kind: ClassVar[str] = "report_metrics"


def accumulators(query: Declared) -> Iterable[str]:
    """Return what the metrics, reliability, temperature and drift of a report read, without samples that only others read."""
    others = {
        *reliability.accumulators(ReliabilityQuery(scope=query.plain().scope)),
        *temperature.accumulators(TemperatureQuery()),
        *drift.accumulators(drift.DriftQuery()),
    }
    # A sample is stored by day, apart from the panes.
    return {*metrics.accumulators(query.plain()), *(others - {SAMPLE, SAMPLE_OF_FEW})}


KIND = ResultKind(ReportMetricsQuery, METRICS.compute, accumulators, is_slow=METRICS.is_slow)
