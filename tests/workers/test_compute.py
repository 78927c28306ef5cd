"""Questions and answers: one state, computed once, kept under its version."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries import compute, window_panes
from calibrant_server.workers.queries.ask import (
    Other,
    QueryRequest,
    ResultFailedError,
    ResultTimeoutError,
    Side,
    UnknownQueryError,
    result_digest,
)
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.kind import Against, ResultKind
from calibrant_server.workers.queries.kinds.counts import CountsQuery
from calibrant_server.workers.queries.query import Needs, Query
from calibrant_server.workers.queries.query_queue import MAX_QUERIES
from calibrant_server.workers.queries.serve import QueryServer
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.windows import Window
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery, eventually

EVER = Window(0, 1 << 32)
# Not everything: merges of complete panes are not kept. Merges with a sample are kept in memory only.
SOME = ("cells", "sample", "sums")
HOUR_US = 3_600_000_000
calls = []
gate = threading.Event()


class SumsQuery(Query):
    kind = "sums"

    gated: bool = False
    reject: bool = False
    fail: bool = False
    nan: bool = False
    n: int = 0


class OnlySumsQuery(SumsQuery):
    kind = "only_sums"


class SlowQuery(SumsQuery):
    kind = "slow"


class ByPaneQuery(Query):
    kind = "by_pane"
    needs = Needs(panes="each")


def sums(query, inputs):
    pane = inputs.pane
    calls.append(inputs.seed)
    if query.gated:
        assert gate.wait(PATIENCE_S)
    if query.reject:
        raise CalibrationInputError.at("/bins", "range", "too many")
    if query.fail:
        raise ZeroDivisionError("by zero")
    if query.nan:
        return {"value": float("nan")}
    return {"count": pane.count, "total": pane.total, "cells": len(pane.cells), "seed": inputs.seed}


def by_pane(query, inputs):
    return {
        "starts": [each.start_s for each in inputs.panes],
        "totals": [each.pane.total for each in inputs.panes],
    }


class UnknownQuery(Query):
    kind = "nothing"


QUERIES = {
    each.kind: each for each in (SumsQuery, OnlySumsQuery, SlowQuery, ByPaneQuery, UnknownQuery)
}
KINDS = {
    "sums": ResultKind(SumsQuery, sums),
    "only_sums": ResultKind(OnlySumsQuery, sums, accumulators=lambda query: ["sums"]),
    "by_pane": ResultKind(ByPaneQuery, by_pane),
    "slow": ResultKind(SlowQuery, sums, is_slow=lambda query: True),
}


@pytest.fixture(autouse=True)
def forget_calls():
    calls.clear()
    gate.clear()
    yield
    gate.set()


@pytest.fixture
def asked(bench):
    bench.put_model()
    bench.engine(kinds=KINDS)
    bench.deliver(delivery("b1", [1, 2, 3], event_times=np.array([0, 1, 5]) * HOUR_US))
    bench.merged("b1")

    def ask(kind="sums", params=None, window=EVER, **more):
        return bench.run(bench.inbox.ask(QUERIES[kind](**(params or {})), MODEL, window, **more))

    return ask


def test_a_window_is_the_merge_of_its_panes(asked):
    assert json.loads(asked().body)["total"] == 6
    assert json.loads(asked(window=Window(3600, 18000)).body)["total"] == 2
    assert json.loads(asked(window=Window(7200, 10800)).body)["count"] == 0


def test_only_the_parts_that_an_answer_reads_are_read(asked):
    result = json.loads(asked("only_sums").body)
    assert (result["total"], result["cells"]) == (6, 0)
    assert json.loads(asked("sums").body)["cells"] == 3


def test_a_result_of_other_code_has_another_etag(asked, monkeypatch):
    """During an upgrade a worker of another version may compute it: its result must not confirm that nothing has changed."""
    reply = Compute.reply
    with monkeypatch.context() as patched:
        patched.setattr(
            Compute, "reply", lambda *given: replace(reply(*given), code_version="former")
        )
        theirs = asked(params={"n": 1})
    own = asked(params={"n": 2})
    assert theirs.state_version == own.state_version
    version, sent = theirs.state_version, SumsQuery(n=1).to_dict()
    assert theirs.etag == result_digest(version, "sums", sent, None, "former")
    assert own.etag == result_digest(version, "sums", SumsQuery(n=2).to_dict(), None)


def test_panes_one_by_one(asked):
    result = json.loads(asked("by_pane").body)
    assert (result["starts"], result["totals"]) == ([0, 3600, 18000], [1, 2, 3])


def test_the_same_question_is_answered_once_a_state(bench, asked):
    first = asked()
    assert asked() == first and len(calls) == 1
    bench.deliver(delivery("b2", [10], event_times=np.array([0])))
    bench.merged("b2")
    second = asked()
    assert json.loads(second.body)["total"] == 16
    assert second.etag != first.etag and second.state_version != first.state_version
    assert len(calls) == 2 and calls[0] == calls[1]


def test_a_change_elsewhere_leaves_the_version(bench, asked):
    early = Window(0, 3600)
    before = bench.run(bench.inbox.state_version(MODEL, "", early))
    bench.deliver(delivery("b2", [10], event_times=np.array([9 * HOUR_US])))
    bench.merged("b2")
    assert bench.run(bench.inbox.state_version(MODEL, "", early)) == before
    assert bench.run(bench.inbox.state_version(MODEL, "site:A", early)) != before
    assert bench.run(bench.inbox.state_version(replace(MODEL, revision=2), "", early)) != before


def test_identical_questions_at_once_share_an_answer(bench, asked):
    async def many():
        asks = [
            asyncio.create_task(bench.inbox.ask(SumsQuery(gated=True), MODEL, EVER))
            for _ in range(20)
        ]
        while not calls:
            await asyncio.sleep(0.01)
        gate.set()
        return await asyncio.gather(*asks)

    answers = bench.run(many())
    assert len({answer.body for answer in answers}) == 1 and len(calls) == 1


def test_errors_are_answers(asked):
    with pytest.raises(CalibrationInputError) as rejected:
        asked(params={"reject": True})
    assert rejected.value.violations[0].pointer == "/bins"
    with pytest.raises(ResultFailedError, match="by zero"):
        asked(params={"fail": True})
    with pytest.raises(ResultFailedError):
        asked(params={"nan": True})
    with pytest.raises(UnknownQueryError):
        asked("nothing")
    assert json.loads(asked().body)["total"] == 6


def test_without_a_worker_the_deadline_ends_it(bench):
    bench.put_model()
    with pytest.raises(ResultTimeoutError):
        bench.run(bench.inbox.ask(SumsQuery(), MODEL, EVER, deadline_s=0.3))


def test_a_lost_question_is_asked_again(bench):
    bench.put_model()

    async def lose_then_serve():
        asking = asyncio.create_task(
            bench.inbox.ask(SumsQuery(), MODEL, EVER, deadline_s=PATIENCE_S)
        )
        while not await bench.inbox.client.zpopmin(bench.store.keys.queries):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(bench.engine, kinds=KINDS)
        return await asking

    assert json.loads(bench.run(lose_then_serve()).body)["count"] == 0


def test_a_queue_that_is_full_is_reported_at_once(bench):
    bench.put_model()
    queue = {f"x{i}": i for i in range(MAX_QUERIES)}
    bench.client.zadd(bench.store.keys.queries, queue)
    with pytest.raises(ResultTimeoutError, match="too many"):
        bench.run(bench.inbox.ask(SumsQuery(), MODEL, EVER, deadline_s=PATIENCE_S))


@pytest.mark.parametrize(("pushed_s_ago", "n_computed"), [(7200, 0), (-7200, 1), (0, 1)])
def test_the_age_of_a_query_is_by_the_clock_of_the_store(
    bench, monkeypatch, pushed_s_ago, n_computed
):
    """A query whose client has left is dropped. Clocks of services and workers do not count; that of the store may be set back."""
    bench.put_model()
    monkeypatch.setattr("time.time", lambda: 1e6)
    n_before, side = len(calls), Side(MODEL.key, "", (0, 1 << 32))
    query = QueryRequest("d", "sums", SumsQuery().to_dict(), side, "replies", wait_s=5.0)
    seconds, microseconds = bench.client.time()
    element = b"%010d%06d " % (seconds - pushed_s_ago, microseconds) + query.to_json()
    server = QueryServer(
        Store(bench.settings), Compute(Store(bench.settings), bench.numerics, KINDS)
    )
    server._serve(element, server._quick)
    assert len(calls) - n_before == n_computed
    assert bench.client.delete("replies") == n_computed


def test_a_query_that_is_sent_again_is_not_computed_twice(bench):
    """A service sends a query again after seconds; on a busy machine the first one may still be computed by another thread."""
    bench.put_model()
    store = Store(bench.settings)
    server = QueryServer(store, Compute(store, bench.numerics, KINDS))
    side = Side(MODEL.key, "", (0, 1 << 32))
    query = QueryRequest("d", "sums", SumsQuery(gated=True).to_dict(), side, "replies", 5.0)
    first = threading.Thread(target=server._quick, args=(query,), daemon=True)
    first.start()
    eventually(lambda: len(calls) == 1)
    server._quick(query)
    assert len(calls) == 1 and bench.client.llen("replies") == 0
    other = threading.Thread(
        target=server._quick, args=(replace(query, reply_to="others"),), daemon=True
    )
    other.start()
    eventually(lambda: len(calls) == 2)
    gate.set()
    first.join(PATIENCE_S)
    other.join(PATIENCE_S)
    assert [bench.client.llen(name) for name in ("replies", "others")] == [1, 1]
    server._quick(query)
    assert len(calls) == 3 and bench.client.llen("replies") == 2


def test_quick_answers_do_not_wait_behind_slow_ones(bench, asked):
    slow_before = len(calls)

    async def both():
        slow = asyncio.create_task(bench.inbox.ask(SlowQuery(gated=True), MODEL, EVER))
        while len(calls) == slow_before:
            await asyncio.sleep(0.01)
        quick = [await bench.inbox.ask(SumsQuery(n=i), MODEL, EVER) for i in range(5)]
        assert not slow.done()
        gate.set()
        return quick, await slow

    quick, slow = bench.run(both())
    assert {json.loads(each.body)["total"] for each in (*quick, slow)} == {6}
    assert len(calls) == slow_before + 6


def test_who_cannot_wait_for_a_slow_answer_finds_it_kept(bench, asked):
    """It is worked out once, however often it is asked for meanwhile."""
    for _ in range(3):
        with pytest.raises(ResultTimeoutError):
            bench.run(bench.inbox.ask(SlowQuery(gated=True), MODEL, EVER, deadline_s=0.2))
    gate.set()
    eventually(
        lambda: calls and not bench.client.exists(*bench.client.keys("*:doing:*") or ["none"])
    )
    assert (
        json.loads(bench.run(bench.inbox.ask(SlowQuery(gated=True), MODEL, EVER)).body)["total"]
        == 6
    )
    assert len(calls) == 1


def test_a_window_of_many_panes_is_read_in_one_query_up_to_a_bound(bench, asked, monkeypatch):
    """Beyond it, the error names a window that is accepted."""
    bench.deliver(delivery("many", [1] * 100, event_times=np.arange(100) * HOUR_US))
    bench.merged("many")
    assert json.loads(asked("only_sums").body)["total"] == 106
    monkeypatch.setattr(window_panes, "MAX_PANES", 48)
    monkeypatch.setattr(window_panes, "MAX_COMPLETE", 48)
    for kind in ("only_sums", "by_pane"):
        with pytest.raises(CalibrationInputError) as caught:
            asked(kind, params={"n": 1} if kind == "only_sums" else None, window=Window(1, 1 << 32))
        [violation] = caught.value.violations
        assert (violation.pointer, violation.rule) == ("/window", "too_many_panes")
        assert "may begin at 1970-01-03T04:00:00Z" in violation.detail
    accepted = asked("only_sums", window=Window(52 * 3600, 1 << 32))
    assert json.loads(accepted.body)["total"] == 48


def test_a_window_read_during_commits_is_one_state(bench):
    """Both slices of every batch change in one commit; a reader must never see one without the other."""
    bench.put_model()
    loop = bench.loop()
    panes = WindowPanes(Store(bench.settings), bench.numerics)
    stop = threading.Event()

    def feed():
        for i in range(150):
            times = np.array([0, HOUR_US])
            bench_deliver(delivery(f"b{i}", [1, 1], event_times=times))
            loop._step_or_reload()
        stop.set()

    other = Bench(bench.settings)
    with other:
        bench_deliver = other.deliver
        thread = threading.Thread(target=feed)
        thread.start()
        seen = set()
        while not stop.is_set():
            counts = [each.pane.count for each in panes.each(MODEL, "", EVER, None).panes]
            assert len(set(counts)) <= 1
            assert panes.merged(MODEL, "", EVER, None).merged.count % 2 == 0
            seen.add(tuple(counts))
        thread.join()
    assert len(seen) > 3


def test_merges_of_neighbours_are_used_again(bench, asked):
    """Of many panes only those of the day are read again in which one changed, and once that is known only that one."""
    hours = np.arange(64)
    bench.deliver(delivery("many", [1] * 64, event_times=hours * HOUR_US))
    bench.merged("many")
    panes = WindowPanes(Store(bench.settings), bench.numerics)
    read: list[int] = []
    decode = panes._reader.decode
    panes._reader.decode = lambda *given: read.append(1) or decode(*given)  # type: ignore[method-assign]

    def total(window=EVER) -> tuple[int, int]:
        read.clear()
        merged = panes.merged(MODEL, "", window, SOME).merged
        expected = sum(each.pane.total for each in WindowPanes(panes._store, bench.numerics).each(
            MODEL, "", window, None).panes)  # fmt: skip
        assert merged.total == expected
        return merged.total, len(read)

    def change(batch_id: str, hour: int) -> None:
        bench.deliver(delivery(batch_id, [1], event_times=np.array([hour * HOUR_US])))
        bench.merged(batch_id)

    assert total() == (70, 64)
    assert total() == (70, 0)
    change("c1", 3)
    assert total() == (71, 24)
    change("c2", 5)
    assert total() == (72, 1)
    change("c3", 63)
    assert total() == (73, 1)
    assert total(Window(6 * 3600, 64 * 3600))[1] == 0
    assert total(Window(8 * 3600, 64 * 3600))[1] == 4


def test_the_ground_floor_end_to_end(bench):
    """The real classes: several batches in one run equal the panes of each, whatever units they name."""
    bench.put_model()
    numerics = Numerics()
    chance = np.random.default_rng(1)
    batches = []
    for i in range(12):
        probabilities = chance.dirichlet(np.ones(3), 20)
        columns = {"probabilities": probabilities, "labels": chance.integers(0, 3, 20).tolist()}
        if i % 3 == 0:
            columns["units"] = [f"u{n % 4}" for n in range(20)]
        batches.append(Batch.from_columns(columns).batch)
    bench.deliver(
        *(
            IngestBatch.of(MODEL, f"b{i}", PREDICTIONS, batch.pack(), batch.digest(), batch.n)
            for i, batch in enumerate(batches)
        )
    )
    bench.engine(numerics=numerics)
    for i in range(12):
        assert bench.merged(f"b{i}").status == "merged"
    one_by_one = numerics.pane(MODEL.spec())
    for batch in batches:
        one_by_one.fill_batch(batch)
    answer = bench.run(bench.inbox.ask(CountsQuery(), MODEL, EVER))
    assert json.loads(answer.body).items() >= one_by_one.counts.items()
    assert one_by_one.counts["n_units"] == 4 * 4 + 8 * 20


def test_every_kind_is_declared_in_a_file_of_its_name():
    assert set(compute.KINDS) >= {"counts", "metrics", "reliability", "temperature", "drift"}
    for name, kind in compute.KINDS.items():
        assert kind.name == name and kind.query.model_config["frozen"]


def test_a_query_that_this_worker_cannot_read_fails_alone(bench, asked):
    class NewerQuery(Query):
        kind = "sums"
        more: int = 1

    with pytest.raises(ResultFailedError, match="Extra inputs"):
        bench.run(bench.inbox.ask(NewerQuery(), MODEL, EVER))
    assert json.loads(asked().body)["total"] == 6


def test_a_comparison_is_of_two_states(bench):
    def compare(query, inputs, other, against):
        return {"totals": [inputs.pane.total, other.pane.total], "against": str(against)}

    bench.put_model()
    bench.engine(
        kinds={"sums": ResultKind(SumsQuery, sums, compare=compare), "by_pane": KINDS["by_pane"]}
    )
    bench.deliver(delivery("b1", [1, 2, 3], event_times=np.array([0, 1, 5]) * HOUR_US))
    bench.merged("b1")
    early = Other(Against("window", "PT2H"), MODEL, "", Window(0, 7200))
    found = bench.run(bench.inbox.ask(SumsQuery(), MODEL, Window(7200, 1 << 32), against=early))
    result = json.loads(found.body)
    assert (result["totals"], result["against"]) == ([3, 3], "window:PT2H")
    plain = bench.run(bench.inbox.ask(SumsQuery(), MODEL, Window(7200, 1 << 32)))
    assert (
        plain.etag != found.etag
        and result["state_version"] == found.state_version != plain.state_version
    )
    with pytest.raises(CalibrationInputError, match="by_pane, which is not compared"):
        bench.run(bench.inbox.ask(ByPaneQuery(), MODEL, EVER, against=early))
