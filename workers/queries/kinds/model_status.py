"""Status of a model for an overview: its metrics and its temperature as one result, so that a page of many models waits for few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.results.temperature import temperature
from calibrant_server.workers.queries.kind import Inputs, ResultKind, kind_of
from calibrant_server.workers.queries.kinds import metrics
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.model_config import ModelConfig

TEMPERATURE = kind_of(temperature)


class ModelStatusQuery(Query):
    """The queries that the result is taken from."""

    kind: ClassVar[str] = "model_status"

    metrics: MetricsQuery = MetricsQuery(metrics="ece")
    temperature: TEMPERATURE.query = TEMPERATURE.query()  # type: ignore[name-defined]

    def resolved(self, config: ModelConfig) -> Query:
        return self.own(
            metrics=self.metrics.resolved(config), temperature=self.temperature.resolved(config)
        )


def accumulators(query: ModelStatusQuery) -> Iterable[str]:
    """Return what both queries read."""
    return {
        *metrics.accumulators(query.metrics),
        *(TEMPERATURE.accumulators(query.temperature) or ()),
    }


def compute(query: ModelStatusQuery, inputs: Inputs) -> Result:
    """Calibration error, share of labelled predictions, and the temperature that fits the labels."""
    found = metrics.compute(query.metrics, inputs)
    return {
        "error": found["metrics"]["ece"],
        "label_coverage": found["label_coverage"]["coverage"],
        "temperature": TEMPERATURE.compute(query.temperature, inputs)["temperature"],
    }


KIND = ResultKind(ModelStatusQuery, compute, accumulators)
