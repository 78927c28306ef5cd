"""Questions and answers: one state, computed once, kept under its version."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.ingest.entries import PREDICTIONS
from calibrant_server.workers.ingest.inbox import IngestBatch
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries.ask import (
    MAX_QUESTIONS,
    AnswerFailed,
    AnswerTimeout,
    UnknownQuestion,
)
from calibrant_server.workers.queries.compute import ANSWERS, AnswerFunction
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.windows import Window
from tests.engine.driving import MODEL, Bench, delivery

EVER = Window(0, 1 << 32)
HOUR_US = 3_600_000_000
calls = []


def sums(pane, config, params, seed):
    calls.append(seed)
    if params.get("pause"):
        time.sleep(params["pause"])
    if params.get("refuse"):
        raise CalibrationInputError.at("/bins", "range", "too many")
    if params.get("fail"):
        raise ZeroDivisionError("by zero")
    if params.get("nan"):
        return {"value": float("nan")}
    return {"count": pane.count, "total": pane.total, "cells": len(pane.cells), "seed": seed}


def by_pane(panes, config, params, seed):
    return {
        "starts": [each.start_s for each in panes],
        "totals": [each.pane.total for each in panes],
    }


FUNCTIONS = {
    "sums": AnswerFunction(sums),
    "only_sums": AnswerFunction(sums, parts=lambda params: ["sums"]),
    "by_pane": AnswerFunction(by_pane, by_pane=True),
    "slow": AnswerFunction(sums, is_slow=lambda params: True),
}


@pytest.fixture(autouse=True)
def forget_calls():
    calls.clear()


@pytest.fixture
def asked(bench):
    bench.put_model()
    bench.engine(functions=FUNCTIONS)
    bench.deliver(delivery("b1", [1, 2, 3], event_times=np.array([0, 1, 5]) * HOUR_US))
    bench.merged("b1")

    def ask(kind="sums", params=None, window=EVER, **more):
        return bench.run(bench.inbox.ask(kind, MODEL, params or {}, window, **more))

    return ask


def test_a_window_is_the_merge_of_its_panes(asked):
    assert json.loads(asked().body)["total"] == 6
    assert json.loads(asked(window=Window(3600, 18000)).body)["total"] == 2
    assert json.loads(asked(window=Window(7200, 10800)).body)["count"] == 0


def test_only_the_parts_that_an_answer_reads_are_read(asked):
    told = json.loads(asked("only_sums").body)
    assert (told["total"], told["cells"]) == (6, 0)
    assert json.loads(asked("sums").body)["cells"] == 3


def test_panes_one_by_one(asked):
    told = json.loads(asked("by_pane").body)
    assert (told["starts"], told["totals"]) == ([0, 3600, 18000], [1, 2, 3])


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
        asks = (bench.inbox.ask("sums", MODEL, {"pause": 0.2}, EVER) for _ in range(20))
        return await asyncio.gather(*asks)

    answers = bench.run(many())
    assert len({answer.body for answer in answers}) == 1 and len(calls) == 1


def test_errors_are_answers(asked):
    with pytest.raises(CalibrationInputError) as refused:
        asked(params={"refuse": True})
    assert refused.value.violations[0].pointer == "/bins"
    with pytest.raises(AnswerFailed, match="by zero"):
        asked(params={"fail": True})
    with pytest.raises(AnswerFailed):
        asked(params={"nan": True})
    with pytest.raises(UnknownQuestion):
        asked("nothing")
    assert json.loads(asked().body)["total"] == 6


def test_without_a_worker_the_deadline_ends_it(bench):
    bench.put_model()
    with pytest.raises(AnswerTimeout):
        bench.run(bench.inbox.ask("sums", MODEL, {}, EVER, deadline_s=0.3))


def test_a_lost_question_is_asked_again(bench):
    bench.put_model()

    async def lose_then_serve():
        asking = asyncio.create_task(bench.inbox.ask("sums", MODEL, {}, EVER, deadline_s=5))
        while not await bench.inbox.client.rpop(bench.store.keys.questions):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(bench.engine, functions=FUNCTIONS)
        return await asking

    assert json.loads(bench.run(lose_then_serve()).body)["count"] == 0


def test_a_queue_that_is_full_is_told_at_once(bench):
    bench.put_model()
    bench.client.rpush(bench.store.keys.questions, *["x"] * MAX_QUESTIONS)
    with pytest.raises(AnswerTimeout, match="too many"):
        bench.run(bench.inbox.ask("sums", MODEL, {}, EVER, deadline_s=5))


def test_quick_answers_do_not_wait_behind_slow_ones(bench, asked):
    slow_before = len(calls)

    async def both():
        slow = asyncio.create_task(bench.inbox.ask("slow", MODEL, {"pause": 1.0}, EVER))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        quick = [await bench.inbox.ask("sums", MODEL, {"n": i}, EVER) for i in range(5)]
        passed_s = time.monotonic() - started
        assert not slow.done()
        return quick, passed_s, await slow

    quick, passed_s, slow = bench.run(both())
    assert {json.loads(each.body)["total"] for each in (*quick, slow)} == {6}
    assert passed_s < 0.6 and len(calls) == slow_before + 6


def test_who_cannot_wait_for_a_slow_answer_finds_it_kept(bench, asked):
    """It is worked out once, however often it is asked for meanwhile."""
    for _ in range(3):
        with pytest.raises(AnswerTimeout):
            bench.run(bench.inbox.ask("slow", MODEL, {"pause": 1.0}, EVER, deadline_s=0.2))
    deadline = time.monotonic() + 5
    while bench.store.client.exists(*bench.store.client.keys("*:doing:*") or ["none"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    started = time.monotonic()
    assert (
        json.loads(bench.run(bench.inbox.ask("slow", MODEL, {"pause": 1.0}, EVER)).body)["total"]
        == 6
    )
    assert time.monotonic() - started < 0.5 and len(calls) == 1


def test_a_window_read_during_commits_is_one_state(bench):
    """Both slices of every batch change in one commit; a reader must never see one without the other."""
    bench.put_model()
    loop = bench.loop()
    panes = WindowPanes(Store(bench.settings), bench.ground)
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
    """Of many panes only those are read again that stand beside one that changed, and once that is known only that one."""
    hours = np.arange(64)
    bench.deliver(delivery("many", [1] * 64, event_times=hours * HOUR_US))
    bench.merged("many")
    panes = WindowPanes(Store(bench.settings), bench.ground)
    read: list[int] = []
    decode = panes._decode
    panes._decode = lambda place, reply: read.append(1) or decode(place, reply)  # type: ignore[method-assign]

    def total(window=EVER) -> tuple[int, int]:
        read.clear()
        merged = panes.merged(MODEL, "", window, None).merged
        expected = sum(each.pane.total for each in WindowPanes(panes._store, bench.ground).each(
            MODEL, "", window, None).panes)  # fmt: skip
        assert merged.total == expected
        return merged.total, len(read)

    def change(batch_id: str, hour: int) -> None:
        bench.deliver(delivery(batch_id, [1], event_times=np.array([hour * HOUR_US])))
        bench.merged(batch_id)

    assert total() == (70, 64)
    assert total() == (70, 0)
    change("c1", 3)
    assert total() == (71, 8)
    change("c2", 5)
    assert total() == (72, 1)
    change("c3", 63)
    assert total() == (73, 1)
    assert total(Window(8 * 3600, 64 * 3600))[1] == 0
    assert total(Window(10 * 3600, 64 * 3600))[1] == 6


def test_the_ground_floor_end_to_end(bench):
    """The real classes: several batches in one run equal the panes of each, whatever units they name."""
    bench.put_model()
    ground = Numerics()
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
    bench.engine(ground=ground)
    for i in range(12):
        assert bench.merged(f"b{i}").status == "merged"
    one_by_one = ground.pane(MODEL.spec())
    for batch in batches:
        one_by_one.fill_batch(batch)
    answer = bench.run(bench.inbox.ask("counts", MODEL, {}, EVER))
    assert json.loads(answer.body).items() >= one_by_one.counts.items()
    assert one_by_one.counts["n_units"] == 4 * 4 + 8 * 20
    assert "counts" in ANSWERS
