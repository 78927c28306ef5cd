"""Two tenants on one store: what one may use of each shared bound, and where the other stands in each queue."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from calibrant_server.workers.alarm.alarm_state import AlarmReader
from calibrant_server.workers.alarm.deliveries import delivery_of
from calibrant_server.workers.alarm.webhook_sender import (
    MAX_PENDING_OF_TENANT,
    WebhookSender,
    in_turn,
)
from calibrant_server.workers.ingest import append
from calibrant_server.workers.ingest.inbox_errors import (
    BacklogFullError,
    IdsFullError,
    RecordsFullError,
)
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries import ask, query_queue
from calibrant_server.workers.queries.ask import QueryRequest, ResultTimeoutError, Side
from calibrant_server.workers.store.rate_limits import LEASE_S, MAX_OF_TENANT, RateLeases
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.test_record_limits import predictions

SHARE = 0.5


def model_of(tenant: str, bench: Bench, name: str = "m", like=None):
    """A declared model of a tenant, in the partition of another model."""
    keys = bench.store.keys
    for i in range(1000):
        model = replace(MODEL, tenant=tenant, model=f"{name}{i}")
        if like is None or keys.partition_of(model.key) == keys.partition_of(like.key):
            return bench.put_model(model)
    raise AssertionError


def small(bench: Bench, **bounds) -> Bench:
    """The bench with smaller bounds."""
    settings = bench.settings.model_copy(update=bounds)
    bench.inbox._appender._settings = settings
    return bench


def shared(batch_id: str, model, n: int = 40):
    return replace(delivery(batch_id, range(n), model=model), share=SHARE)


def accepted_until(bench: Bench, error: type[Exception], batches) -> int:
    """Deliver batches until one is rejected; return how many were accepted."""
    for n, batch in enumerate(batches):
        try:
            bench.deliver(batch)
        except error:
            return n
    raise AssertionError("never rejected")


@pytest.fixture
def tenants(bench):
    mine = model_of("a", bench)
    return mine, model_of("b", bench, like=mine)


def usage(bench: Bench, tenant: str):
    found = bench.run(bench.inbox.usage.by_partition(tenant))
    return max(found, key=lambda each: (each.records, each.backlog_bytes))


def test_the_backlog_of_one_tenant_leaves_room_for_the_other(bench, tenants):
    a, b = tenants
    weight = shared("x", a).n_bytes
    small(bench, backlog_bytes=weight * 20)
    n = accepted_until(bench, BacklogFullError, (shared(f"a{i}", a) for i in range(100)))
    assert n in (9, 10), "half of twenty"
    assert n == accepted_until(bench, BacklogFullError, (shared(f"b{i}", b) for i in range(100)))
    assert usage(bench, "a").backlog_bytes <= weight * 20 * SHARE
    loop = bench.loop(model=a)
    while bench.client.xlen(loop.keys.stream):
        loop.step()
    assert [usage(bench, each).backlog_bytes for each in "ab"] == [0, 0]
    bench.deliver(shared("again", a))


def test_a_first_batch_larger_than_the_share_is_accepted(bench, tenants):
    a, _ = tenants
    small(bench, backlog_bytes=shared("x", a).n_bytes)
    bench.deliver(shared("a1", a))
    with pytest.raises(BacklogFullError):
        bench.deliver(shared("a2", a))


def test_a_repeat_is_recognised_above_the_share(bench, tenants):
    a, _ = tenants
    small(bench, backlog_bytes=shared("x", a).n_bytes)
    bench.deliver(shared("a1", a))
    [receipt] = bench.deliver(shared("a1", a))
    assert receipt.duplicate


def test_the_retained_records_of_one_tenant_leave_room_for_the_other(bench, tenants):
    a, b = tenants
    bench.numerics = Numerics()
    small(bench, retained_records=20)

    def of(model, i):
        return replace(
            predictions(f"{i}x", f"{i}y", batch_id=f"r{i}"),
            model=model.key, config=model, share=SHARE,
        )  # fmt: skip

    assert accepted_until(bench, RecordsFullError, (of(a, i) for i in range(100))) == 5
    loop = bench.loop(model=a)
    while bench.client.xlen(loop.keys.stream):
        loop.step()
    found = usage(bench, "a")
    assert found.records == 10 and found.record_bytes > 0
    with pytest.raises(RecordsFullError):
        bench.deliver(of(a, 77))
    assert accepted_until(bench, RecordsFullError, (of(b, i) for i in range(100))) == 5


def test_the_batch_ids_of_one_tenant_leave_room_for_the_other(bench, tenants):
    a, b = tenants
    small(bench, idempotency_bytes=20_000)
    n = accepted_until(bench, IdsFullError, (shared(f"a{i}", a, 1) for i in range(1000)))
    assert n > 5
    m = accepted_until(bench, IdsFullError, (shared(f"b{i}", b, 1) for i in range(1000)))
    assert abs(n - m) <= 1


def test_batch_ids_of_a_tenant_that_are_over_make_room(bench, tenants, monkeypatch):
    a, _ = tenants
    small(bench, idempotency_bytes=20_000)
    accepted_until(bench, IdsFullError, (shared(f"a{i}", a, 1) for i in range(1000)))
    now = time.time()
    monkeypatch.setattr(append.time, "time", lambda: now + 2 * 86_400)  # type: ignore[attr-defined]
    bench.deliver(shared("later", a, 1))


class TestRates:
    """Leases of tokens."""

    def leases(self, bench: Bench) -> RateLeases:
        return RateLeases(bench.inbox.client, bench.inbox.keys)

    def test_a_full_bucket_is_granted_once(self, bench):
        mine = self.leases(bench)
        assert bench.run(mine.renew("t:a", 0.001, 0)) == pytest.approx(0.001 * LEASE_S)
        assert bench.run(mine.renew("t:b", 100, 0)) == 100
        assert bench.run(mine.renew("t:b", 100, 0)) == 100, "nothing was spent"

    def test_processes_share_a_bucket(self, bench):
        mine, theirs = self.leases(bench), self.leases(bench)
        bench.run(mine.renew("t:a", 100, 0))
        assert bench.run(theirs.renew("t:a", 100, 0)) == pytest.approx(50)
        assert bench.run(mine.renew("t:a", 100, 0)) == pytest.approx(50)

    def test_what_was_spent_too_much_is_paid_back(self, bench):
        rate = 0.01  # so slow that the time of the test refills nothing
        mine = self.leases(bench)
        bench.run(mine.renew("t:a", rate, 0))
        assert bench.run(mine.renew("t:a", rate, 5)) == 0
        level = float(bench.client.hget(bench.store.keys.rate("t:a"), "level"))
        assert level == pytest.approx(rate - 5, abs=1)

    @pytest.mark.parametrize("spent", [60, 100])
    def test_who_spends_at_most_the_rate_is_granted_the_rate(self, bench, spent):
        mine, bucket = self.leases(bench), bench.store.keys.rate("t:a")
        assert bench.run(mine.renew("t:a", 100, 0)) == 100
        for _ in range(3):
            bench.client.hincrbyfloat(bucket, "at", -LEASE_S)  # the last report was a lease ago
            assert bench.run(mine.renew("t:a", 100, spent)) == pytest.approx(100, abs=1e-3)

    def test_who_spends_more_than_the_rate_is_granted_less(self, bench):
        rate = 0.01
        mine, bucket = self.leases(bench), bench.store.keys.rate("t:a")
        bench.run(mine.renew("t:a", rate, 0))
        bench.client.hincrbyfloat(bucket, "at", -LEASE_S)
        assert bench.run(mine.renew("t:a", rate, 1.5 * rate)) == pytest.approx(rate / 2, rel=0.1)

    def test_buckets_do_not_stay(self, bench):
        bench.run(self.leases(bench).renew("t:a", 1, 0))
        assert 0 < bench.client.ttl(bench.store.keys.rate("t:a")) <= 60


def test_webhook_tests_are_one_per_model_and_ten_per_tenant(bench):
    turns = bench.inbox.webhook_test_limit
    assert bench.run(turns.wait_s("a/m0")) == 0
    assert 0 < bench.run(turns.wait_s("a/m0")) <= 60
    waits = [bench.run(turns.wait_s(f"a/m{i}")) for i in range(1, MAX_OF_TENANT + 2)]
    assert waits[: MAX_OF_TENANT - 2] == [0] * (MAX_OF_TENANT - 2) and waits[-1] > 0
    assert bench.run(turns.wait_s("b/m0")) == 0


def test_queries_of_one_tenant_leave_the_queue_to_the_other(bench, monkeypatch):
    """At most so many of a tenant are in the workers' queues, however many it asks; another tenant's is next."""
    monkeypatch.setattr(ask, "REASK_S", 60.0)
    client = bench.inbox._queries

    def pane_query(tenant: str, i: int) -> QueryRequest:
        side = Side(f"{tenant}/m", "", (0, 1))
        return QueryRequest(f"{tenant}{i}", "metrics", {}, side, "nobody", 3.0)

    queue = bench.store.keys.queries

    async def filled(size: int) -> None:
        async with asyncio.timeout(2.5):
            while await bench.inbox.client.zcard(queue) < size:
                await asyncio.sleep(0.02)

    async def scene() -> tuple[int, list[bytes]]:
        asked = [asyncio.create_task(client._until_computed(pane_query("a", i))) for i in range(60)]
        await filled(query_queue.MAX_QUEUED_OF_TENANT)
        await asyncio.sleep(0.2)
        n = await bench.inbox.client.zcard(queue)
        asked += [asyncio.create_task(client._until_computed(pane_query("b", i))) for i in range(2)]
        await filled(n + 2)
        waiting = await bench.inbox.client.zrange(queue, 0, -1)
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, ResultTimeoutError) for each in outcomes)
        return n, waiting

    n, waiting = bench.run(scene())
    assert n == query_queue.MAX_QUEUED_OF_TENANT
    places = [at for at, each in enumerate(waiting) if b'"b/m"' in each]
    # Queries of one process go over several connections, so two of them may arrive in the other order.
    assert len(waiting) == n + 2 and places[0] in (1, 2) and places[1] in (3, 4), (
        "tenants take turns"
    )
    assert not client.turns._n_queued


def test_all_streams_of_a_process_share_a_read(bench, monkeypatch):
    n_reads, read = [], AlarmReader.numbers

    async def counted(reader: AlarmReader) -> list[int]:
        n_reads.append(1)
        return await read(reader)

    monkeypatch.setattr(AlarmReader, "numbers", counted)

    async def streams(age_s: float) -> list[list[int]]:
        # As a request: each asks the inbox for its reader.
        return await asyncio.gather(*(bench.inbox.alarms.recent_numbers(age_s) for _ in range(40)))

    found = bench.run(streams(60.0))
    assert len(n_reads) == 1
    assert found == [bench.run(read(bench.inbox.alarms))] * 40
    bench.run(bench.inbox.alarms.recent_numbers(0.0))
    assert len(n_reads) == 2


def message(tenant: str, i: int):
    return delivery_of(f"{tenant}/m", "g", "https://x.example.org", "t", f"{i}", {}, 1.0 + i)


def test_webhooks_of_tenants_take_turns():
    due = [message("a", i) for i in range(5)] + [message("b", 9)]
    assert [each.model[0] for each in in_turn(due)] == ["a", "b", "a", "a", "a", "a"]
    assert [each.due_s for each in in_turn(due)[2:]] == sorted(each.due_s for each in due[1:5])


def test_slow_receivers_of_one_tenant_hold_few_places(bench):
    sender = WebhookSender(bench.store, lambda: ())
    taken = [sender._takes(message("a", i), 0.0) for i in range(100)]
    assert sum(taken) == MAX_PENDING_OF_TENANT
    assert sender._takes(message("b", 0), 0.0)
    released = threading.Event()
    sender._attempted = lambda *args: (released.set(), (None, "x"))[1]
    sender._deliver(0, message("a", 0))
    assert released.is_set() and sender._takes(message("a", 99), 0.0)
