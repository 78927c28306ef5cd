"""Status of a model for an overview: its metrics and its temperature as one result, so that a page of many models waits for few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.results.metrics import metrics
from calibrant.results.temperature import temperature
from calibrant_server.workers.queries.kind import Inputs, ResultKind, kind_of
from calibrant_server.workers.queries.query import Query, declared_query, query_for
from calibrant_server.workers.store.model_config import ModelConfig

METRICS, TEMPERATURE = kind_of(metrics), kind_of(temperature)
MetricsQuery, TemperatureQuery = declared_query(metrics), declared_query(temperature)


class ModelStatusQuery(Query):
    """The queries that the result is taken from."""

    kind: ClassVar[str] = "model_status"

    metrics: MetricsQuery = query_for(metrics, metrics="ece")  # type: ignore[valid-type]
    temperature: TemperatureQuery = TemperatureQuery()  # type: ignore[valid-type]

    def resolved(self, config: ModelConfig) -> Query:
        queries: dict[str, Query] = {"metrics": self.metrics, "temperature": self.temperature}
        return self.own(**{name: each.resolved(config) for name, each in queries.items()})


def accumulators(query: ModelStatusQuery) -> Iterable[str]:
    """Return what both queries read."""
    return {
        *(METRICS.accumulators(query.metrics) or ()),
        *(TEMPERATURE.accumulators(query.temperature) or ()),
    }


def compute(query: ModelStatusQuery, inputs: Inputs) -> Result:
    """Calibration error, share of labelled predictions, and the temperature that fits the labels."""
    found = METRICS.compute(query.metrics, inputs)
    return {
        "error": found["metrics"]["ece"],
        "label_coverage": found["label_coverage"]["coverage"],
        "temperature": TEMPERATURE.compute(query.temperature, inputs)["temperature"],
    }


KIND = ResultKind(ModelStatusQuery, compute, accumulators)
