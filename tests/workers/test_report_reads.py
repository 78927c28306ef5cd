"""Each pane of a report is read once: its other queries find what the first has merged. Each has the result that it has alone."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from calibrant.calibrators.temperature.fit import MAX_EXACT_ROWS
from calibrant.core.pane import Pane
from calibrant.metrics import DEFAULT_METRICS, METRICS
from calibrant_server.service.reads.queries import resolved_query
from calibrant_server.service.reads.reports import ReportParameters, queries
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries import pane_reader, window_panes
from calibrant_server.workers.queries.ask import REJECTED, QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.kinds.window_pane import WindowPaneQuery
from calibrant_server.workers.queries.pane_reader import PANES_A_RUN
from calibrant_server.workers.queries.pane_rows import RowReader
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
        without_merges(filled)
        for name, result in found.items():
            assert Reader(filled).result(asked[name], slice_, window) == result, (slice_, name)


def test_each_metric_alone_is_that_of_a_merge_with_all_accumulators(filled: Any) -> None:
    """A metric declares all accumulators that it reads: others are not in the part of the merge that it gets."""
    start_s = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    window = (start_s, start_s + 2 * HOUR_S)
    reader, every = Reader(filled), resolved_query(MetricsQuery(metrics=",".join(METRICS)), MODEL)
    first = reader.result(every, "", window)["metrics"]
    for name in METRICS:
        query = resolved_query(MetricsQuery(metrics=name), MODEL)
        found = reader.result(query, "", window)
        assert found["metrics"] == {name: first[name]}
        assert found == Reader(filled).result(query, "", window), name
    assert reader.n_read == 2


def test_a_query_with_more_accumulators_than_the_last_reads_its_own(filled: Any) -> None:
    reader = Reader(filled)
    for metrics in ("ece", "ece,nll", "classwise_ece"):
        query = resolved_query(MetricsQuery(metrics=metrics), MODEL)
        n_before = reader.n_read
        result = reader.result(query)
        assert reader.n_read > n_before
        assert Reader(filled).result(query) == result


@pytest.mark.parametrize("n_hours", [2, HOURS])
def test_results_of_an_archived_report_are_of_its_pane(filled: Any, n_hours: int) -> None:
    """After the complete pane of a slice, its results read nothing: with and without a sample, which only few rows need."""
    parameters = ReportParameters(metrics=EVERY)
    queried = {name: each.query for name, each in queries(parameters, MODEL, [], ()).items()}
    drift, temperature = queried.pop("drift"), queried["temperature"]
    queried["unit"] = temperature.model_copy(update={"weights": "unit"})
    start_s = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    window = (start_s, start_s + n_hours * HOUR_S)
    for slice_ in ("", "site:A"):
        reader = Reader(filled)
        pane = Pane.from_bytes(b64decode(reader.result(WindowPaneQuery(), slice_, window)["packed"]))  # fmt: skip
        assert (pane.counts["n_labelled"] > MAX_EXACT_ROWS) == (n_hours == HOURS and not slice_)
        assert reader.n_read == n_hours
        found = {name: reader.result(each, slice_, window) for name, each in queried.items()}
        assert reader.n_read == n_hours
        found["drift"] = reader.result(drift, slice_, window)
        for name, query in (queried | {"drift": drift}).items():
            assert Reader(filled).result(query, slice_, window) == found[name], (slice_, name)
        assert reader.result(WindowPaneQuery(), slice_, window)["digest"] == pane.digest()


def test_a_changed_window_is_not_that_of_the_complete_pane(filled: Any) -> None:
    reader, query = Reader(filled), MetricsQuery(metrics="ece")
    n = reader.result(WindowPaneQuery()) and reader.result(query)["n_predictions"]
    loop = loop_of_rows(filled)
    more = {"probabilities": [[0.2, 0.3, 0.5]], "labels": [1], "event_times": ["2026-01-02T03:10:00Z"]}  # fmt: skip
    filled.deliver(predictions(MODEL, "more", more))
    drained(filled, loop)
    assert reader.result(query)["n_predictions"] == n + 1


def test_a_window_with_too_many_complete_panes_is_rejected_before_they_are_read(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_panes, "MAX_COMPLETE", HOURS - 1)
    reader = Reader(filled)
    side = Side(MODEL.key, "", (0, 1 << 32))
    reply = reader.compute.reply(QueryRequest("d", "window_pane", {}, side, "r", 1e6))
    [violation] = json.loads(reply.body)["violations"]
    assert (reply.status, violation["rule"]) == (REJECTED, "too_many_panes")
    assert violation["pointer"] == "/window" and f"has {HOURS} panes" in violation["detail"]
    assert reader.n_read == 0
    monkeypatch.setattr(window_panes, "MAX_COMPLETE", HOURS)
    assert reader.result(WindowPaneQuery())["packed"]
    # What is read once serves further windows of the same state.
    monkeypatch.setattr(window_panes, "MAX_COMPLETE", 0)
    assert reader.result(WindowPaneQuery())["packed"]


def test_runs_of_small_panes_are_unpacked_together_up_to_a_bound(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    read_ahead = RowReader.read_ahead

    def counting(self: RowReader, tails: Any) -> None:
        tails = list(tails)
        sizes.append(len(tails))
        read_ahead(self, tails)

    monkeypatch.setattr(RowReader, "read_ahead", counting)
    query = resolved_query(MetricsQuery(metrics=EVERY), MODEL)
    together = Reader(filled).result(query)
    assert sizes == [HOURS - HOURS % PANES_A_RUN, HOURS % PANES_A_RUN]

    for bounds in ({"_SMALL_BYTES": 0}, {"_MAX_TOGETHER": PANES_A_RUN}):
        sizes.clear()
        without_merges(filled)
        with monkeypatch.context() as bounded:
            for name, bound in bounds.items():
                bounded.setattr(pane_reader, name, bound)
            assert Reader(filled).result(query) == together
        assert max(sizes) == PANES_A_RUN and sum(sizes) == HOURS


@pytest.mark.parametrize(
    ("n", "at_most", "found"),
    [
        (17, None, 16),
        (32, None, 16),
        (33, None, 32),
        (100, 40, 48),
        (100, 32, 32),
        (100, 0, 16),
        (20, 500, 16),
    ],
)
def test_full_runs_leave_the_last_one_to_be_read_with_the_state(
    n: int, at_most: int | None, found: int
) -> None:
    assert window_panes._full_runs(list(range(n)), at_most) == list(range(found))
