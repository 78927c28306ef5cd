"""The first query of a report reads each pane, the others find what it has merged; each has the result that it has alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from calibrant.metrics import DEFAULT_METRICS
from calibrant_server.service.reads.queries import resolved_query
from calibrant_server.service.reads.reports import ReportParameters, queries
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries.ask import QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.store.connection import Store
from tests.workers.driving import MODEL
from tests.workers.test_tails import drained, loop_of_rows, predictions

pytestmark = pytest.mark.one_server

DAYS, HOUR_S = 3, 3600
HOURS = 24 * DAYS
EVERY = ",".join((*DEFAULT_METRICS, "auc", "skce", "smooth_ece"))


@pytest.fixture
def filled(bench: Any) -> Iterator[Any]:
    loop = loop_of_rows(bench)
    rng = np.random.default_rng(2)
    n = 25 * HOURS
    hours = np.sort(rng.integers(0, HOURS, n))
    columns = {
        "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
        "labels": rng.integers(0, 3, n).tolist(),
        "event_times": [f"2026-01-{1 + h // 24:02}T{h % 24:02}:10:00Z" for h in hours],
        "slices": {"site": ["AB"[i % 2] for i in range(n)]},
    }
    for number, some in enumerate(np.array_split(np.arange(n), 6)):
        part = {
            name: {key: [each[i] for i in some] for key, each in value.items()}
            if isinstance(value, dict)
            else [value[i] for i in some]
            for name, value in columns.items()
        }
        bench.deliver(predictions(MODEL, f"b{number}", part))
    drained(bench, loop)
    return bench


class Reader:
    """A worker that has just started, with the number of panes that it reads."""

    def __init__(self, bench: Any) -> None:
        self.compute = Compute(Store(bench.settings), Numerics())
        self.n_read = 0
        reader = self.compute._panes._reader
        decode = reader.decode

        def counting(*given: Any) -> Any:
            self.n_read += 1
            return decode(*given)

        reader.decode = counting  # type: ignore[method-assign]

    def result(self, query: Any, slice_: str = "") -> dict[str, Any]:
        request = QueryRequest(
            "d", query.kind, query.to_dict(), Side(MODEL.key, slice_, (0, 1 << 32)), "r", 1e6
        )
        reply = self.compute.reply(request)
        assert reply.status == "ok", reply.body
        found: dict[str, Any] = json.loads(reply.body)
        return found


def without_merges(bench: Any) -> None:
    tag = bench.store.keys.of_model(MODEL.key).tag
    for name in bench.client.keys(f"{tag}:g*"):
        bench.client.delete(name)


@pytest.mark.parametrize("metrics", [",".join(DEFAULT_METRICS), EVERY])
def test_each_pane_is_read_once_and_each_result_is_that_of_the_query_alone(
    filled: Any, metrics: str
) -> None:
    parameters = ReportParameters(metrics=metrics)
    asked = {name: each.query for name, each in queries(parameters, MODEL, [], ()).items()}
    found, n_read = {}, {}
    for name, query in asked.items():
        reader = Reader(filled)
        found[name], n_read[name] = reader.result(query), reader.n_read
    assert list(asked) == ["metrics", "reliability", "temperature", "drift"]
    # The newest pane changes, so that no merge has it.
    assert n_read == {"metrics": HOURS, "reliability": 1, "temperature": 1, "drift": 1}

    plain = MetricsQuery(metrics=metrics, tolerance=1.0)
    alone = asked | {"metrics": resolved_query(plain, MODEL)}
    for name, query in alone.items():
        without_merges(filled)
        reader = Reader(filled)
        assert reader.result(query) == found[name], name
        assert reader.n_read == HOURS, name
