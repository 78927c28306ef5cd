"""Each pane of a report is read once: its other queries find what the first has merged in memory. Each has the result that it has alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from calibrant.metrics import DEFAULT_METRICS, METRICS
from calibrant.results.metrics import metrics as declared
from calibrant_server.service.reads.queries import resolved_query
from calibrant_server.service.reads.reports import ReportParameters, queries
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries import window_panes
from calibrant_server.workers.queries.ask import CHANGING, QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.query import query_for
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

    def result(
        self, query: Any, slice_: str = "", window: tuple[int, int] = (0, 1 << 32)
    ) -> dict[str, Any]:
        side = Side(MODEL.key, slice_, window)
        request = QueryRequest("d", query.kind, query.to_dict(), side, "r", 1e6)
        reply = self.compute.reply(request)
        assert reply.status == "ok", reply.body
        found: dict[str, Any] = json.loads(reply.body)
        return found


@pytest.mark.parametrize("metrics", [",".join(DEFAULT_METRICS), EVERY])
def test_each_pane_is_read_once_and_each_result_is_that_of_the_query_alone(
    filled: Any, metrics: str
) -> None:
    parameters = ReportParameters(metrics=metrics)
    asked = {name: each.query for name, each in queries(parameters, MODEL, [], ()).items()}
    reader = Reader(filled)
    found, n_read = {}, {}
    for name, query in asked.items():
        found[name], n_read[name] = reader.result(query), reader.n_read
    first, classes = ["metrics", "reliability", "temperature"], ["class 0", "class 1", "class 2"]
    assert list(asked) == [*first, "drift", "raters", *classes, "series"]
    assert {n_read[name] for name in first} == {HOURS}
    assert n_read["class 2"] == n_read["raters"]

    plain = query_for(declared, metrics=metrics, tolerance=1.0)
    alone = asked | {"metrics": resolved_query(plain, MODEL)}
    for name, query in alone.items():
        reader = Reader(filled)
        assert reader.result(query) == found[name], name
        # The raters are in the records, not in the panes; drift reads them again only to recommend an update.
        assert reader.n_read == HOURS or name in ("raters", "drift"), name


@pytest.mark.parametrize("n_hours", [2, HOURS])
def test_one_worker_reads_and_fills_the_newest_pane_once_for_a_report(
    filled: Any, n_hours: int
) -> None:
    """Its rows are not in a merge of the store. With few rows the temperature needs a sample too."""
    asked = {name: each.query for name, each in queries(ReportParameters(), MODEL, [], ()).items()}
    asked["unit"] = asked["temperature"].model_copy(update={"weights": "unit"})
    start_s = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    window = (start_s, start_s + n_hours * HOUR_S)
    for slice_ in ("", "site:A"):
        reader = Reader(filled)
        found = {}
        for name in ("metrics", "reliability", "temperature", "unit"):
            found[name] = reader.result(asked[name], slice_, window)
            assert reader.n_read == n_hours, name
        for name, result in found.items():
            assert Reader(filled).result(asked[name], slice_, window) == result, (slice_, name)


def test_each_metric_alone_is_that_of_a_merge_with_all_accumulators(filled: Any) -> None:
    """A metric declares all accumulators that it reads: others are not in the part of the merge that it gets."""
    start_s = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    window = (start_s, start_s + 2 * HOUR_S)
    reader, every = (
        Reader(filled),
        resolved_query(query_for(declared, metrics=",".join(METRICS)), MODEL),
    )
    first = reader.result(every, "", window)["metrics"]
    for name in METRICS:
        query = resolved_query(query_for(declared, metrics=name), MODEL)
        found = reader.result(query, "", window)
        assert found["metrics"] == {name: first[name]}
        assert found == Reader(filled).result(query, "", window), name
    assert reader.n_read == 2


def test_a_query_with_more_accumulators_than_the_last_reads_its_own(filled: Any) -> None:
    reader = Reader(filled)
    for metrics in ("ece", "ece,nll", "classwise_ece"):
        query = resolved_query(query_for(declared, metrics=metrics), MODEL)
        n_before = reader.n_read
        result = reader.result(query)
        assert reader.n_read > n_before
        assert Reader(filled).result(query) == result


def test_a_window_that_changes_too_often_is_read_by_a_later_request(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_panes, "_TRIES", 0)
    side = Side(MODEL.key, "", (0, 1 << 32))
    reply = Reader(filled).compute.reply(QueryRequest("d", "counts", {}, side, "r", 1e6))
    assert reply.status == CHANGING and b"changed faster" in reply.body
