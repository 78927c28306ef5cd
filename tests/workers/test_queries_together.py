"""Many queries of a tenant at once: the results of each, whatever is lost."""

from __future__ import annotations

import asyncio
import json

import pytest

from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.queries.ask import ResultTimeoutError
from calibrant_server.workers.queries.query_queue import (
    MAX_QUERIES,
    MAX_QUEUED_OF_TENANT,
)
from calibrant_server.workers.store.windows import Window
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.test_compute import KINDS, SumsQuery

pytestmark = pytest.mark.one_server
EVER = Window(0, 1 << 32)
N_QUERIES = 3 * MAX_QUEUED_OF_TENANT + 2


@pytest.fixture
def version(bench: Bench) -> str:
    """State of a model with three predictions."""
    bench.put_model()
    bench.deliver(delivery("one", [1, 2, 3]))
    bench.loop().step()
    return bench.run(bench.inbox.state_version(MODEL, "", EVER))


def queries(numbers: range, **changes: bool) -> list[SumsQuery]:
    return [SumsQuery(n=n, **changes) for n in numbers]


async def results(bench: Bench, version: str, some: list[SumsQuery], wait_s: float = PATIENCE_S):
    """The result of each query, or its error."""
    asked = (bench.inbox.ask(each, MODEL, EVER, wait_s, version=version) for each in some)
    return await asyncio.gather(*asked, return_exceptions=True)


def queued(bench: Bench) -> int:
    keys = bench.store.keys
    return bench.client.zcard(keys.queries)


async def turns_given_back(bench: Bench) -> None:
    """Wait for the tasks of queries, which end with the time of their callers, or shortly after."""
    while bench.inbox._queries.turns._n_queued:
        await asyncio.sleep(0.01)


def test_each_query_has_its_result(bench, version):
    bench.engine(kinds=KINDS)
    asked = queries(range(N_QUERIES)) + queries(range(1), reject=True)
    *found, rejected, repeated = bench.run(results(bench, version, [*asked, asked[3]]))
    assert isinstance(rejected, CalibrationInputError)
    assert [json.loads(each.body)["total"] for each in found] == [6] * N_QUERIES
    # The same as each alone, which finds it cached.
    alone = bench.run(bench.inbox.ask(asked[3], MODEL, EVER, version=version))
    assert found[3].body == repeated.body == alone.body
    assert bench.inbox._queries.turns._n_queued == {}
    assert bench.inbox._queries.queue._waiting == {}


def test_what_is_lost_is_sent_again(bench, version):
    async def lose_then_serve():
        asking = asyncio.create_task(results(bench, version, queries(range(5))))
        while queued(bench) < 5:
            await asyncio.sleep(0.01)
        bench.client.delete(bench.store.keys.queries)
        await asyncio.to_thread(bench.engine, kinds=KINDS)
        return await asking

    assert [json.loads(each.body)["total"] for each in bench.run(lose_then_serve())] == [6] * 5


def test_queries_of_the_tenant_leave_the_queues_to_others_and_turns_are_given_back(bench, version):
    """Without a worker, all wait until the time is over; one alone waits for its turn meanwhile, and gets it afterwards."""

    async def scene():
        asking = asyncio.create_task(results(bench, version, queries(range(N_QUERIES)), 1.0))
        while not queued(bench):
            await asyncio.sleep(0.01)
        n = queued(bench)
        alone = asyncio.create_task(
            bench.inbox.ask(SumsQuery(n=999), MODEL, EVER, version=version, deadline_s=PATIENCE_S)
        )
        missing = await asking
        await asyncio.to_thread(bench.engine, kinds=KINDS)
        return n, missing, await alone

    n, missing, alone = bench.run(scene())
    assert n <= MAX_QUEUED_OF_TENANT
    assert {type(each) for each in missing} == {ResultTimeoutError}
    assert json.loads(alone.body)["total"] == 6
    assert bench.inbox._queries.turns._n_queued == {}


def test_a_query_that_also_waits_alone_has_one_result(bench, version):
    async def both():
        alone = asyncio.create_task(
            bench.inbox.ask(SumsQuery(n=1), MODEL, EVER, version=version, deadline_s=PATIENCE_S)
        )
        together = asyncio.create_task(results(bench, version, queries(range(3))))
        while queued(bench) < 3:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(bench.engine, kinds=KINDS)
        return await alone, await together

    alone, together = bench.run(both())
    assert alone.body == together[1].body


def test_in_a_full_queue_there_is_no_result(bench, version):
    bench.client.zadd(bench.store.keys.queries, {f"x{i}": i for i in range(MAX_QUERIES - 2)})
    found = bench.run(results(bench, version, queries(range(9)), 0.2))
    assert {type(each) for each in found} == {ResultTimeoutError}
    assert queued(bench) == MAX_QUERIES
    bench.run(asyncio.wait_for(turns_given_back(bench), PATIENCE_S))
