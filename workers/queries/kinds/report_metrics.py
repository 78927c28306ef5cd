"""The metrics of a report. Their query reads for the other queries of the report too.

A report is several queries of one window. The first reads what all of them need, and leaves merges of the panes in the store. The others
find these merges, so that each pane of a window is read once and not once per query.
"""

from __future__ import annotations

from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.results.reads import SAMPLE, SAMPLE_OF_FEW
from calibrant.results.temperature import TemperatureQuery
from calibrant.results.temperature import temperature as declared_temperature
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.kinds import drift, metrics, reliability
from calibrant_server.workers.queries.kinds.drift import DriftQuery
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.kinds.reliability import ReliabilityQuery


class ReportMetricsQuery(MetricsQuery):
    """The same as of `GET metrics`."""

    kind: ClassVar[str] = "report_metrics"


def accumulators(query: ReportMetricsQuery) -> frozenset[str]:
    """Return what the metrics, reliability, temperature and drift of a report read, without samples that only others read."""
    others = {
        *reliability.accumulators(ReliabilityQuery(scope=query.scope)),
        *declared_temperature.accumulators(TemperatureQuery()),
        *drift.accumulators(DriftQuery()),
    }
    # A sample is stored by day, and no merge has it.
    return metrics.accumulators(query) | (others - {SAMPLE, SAMPLE_OF_FEW})


def compute(query: ReportMetricsQuery, inputs: Inputs) -> Result:
    """The result of `metrics`."""
    return metrics.compute(query, inputs)


KIND = ResultKind(ReportMetricsQuery, compute, accumulators, is_slow=metrics.is_slow)
