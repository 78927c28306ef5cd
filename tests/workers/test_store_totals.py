"""Bounds are totals of the store: one partition may use almost all of one, all partitions together no more than it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.inbox_errors import (
    BacklogFullError,
    IdsFullError,
    RecordsFullError,
)
from calibrant_server.workers.ingest.store_totals import StoreTotals
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery, eventually

N = 16


@pytest.fixture
def many(settings):
    """A store of many partitions, without a worker: what is appended stays in the streams."""
    with Bench(settings.replace(partitions=N)) as bench:
        yield bench


@pytest.fixture
def models(many):
    """A model on each of three partitions."""
    found = {}
    for i in range(1000):
        model = replace(MODEL, model=f"m{i}")
        found.setdefault(many.store.keys.partition_of(model.key), model)
    return [many.put_model(each) for each in list(found.values())[:3]]


class Bounded:
    """An inbox with other bounds."""

    def __init__(self, bench, **bounds):
        self.bench = bench
        self.inbox = Inbox(bench.settings.replace(**bounds), ingest_deadline_s=PATIENCE_S)

    def until_full(self, model, error, **changes):
        """Send batches of a model until one is rejected; their number."""
        for n in range(200):
            try:
                batch = replace(delivery(f"b{n}", [n], model), **changes)
                self.bench.run(self.inbox.enqueue(batch))
            except error:
                return n
        raise AssertionError("never full")

    def __enter__(self):
        self.bench.run(self.inbox.open())
        return self

    def __exit__(self, *exc):
        self.bench.run(self.inbox.close())


def backlog(bench):
    keys = [bench.store.keys.partition(number).bytes_in for number in range(N)]
    return sum(int(n or 0) for n in bench.client.mget(keys))


def test_one_model_may_use_the_whole_backlog_and_then_none_may_add(many, models):
    one = delivery("b", [1]).n_bytes
    with Bounded(many, backlog_bytes=20 * one) as bounded:
        first = bounded.until_full(models[0], BacklogFullError)
        assert first >= 18, "a sixteenth of the bound is little more than one batch"
        # A tenant may always send one batch to a partition where none of its waits.
        assert bounded.until_full(models[1], BacklogFullError) <= 1
        assert backlog(many) < 22 * one


def test_several_models_together_use_no_more_than_the_backlog(many, models):
    one = delivery("b", [1]).n_bytes
    with Bounded(many, backlog_bytes=30 * one) as bounded:
        for model in models[:2]:
            for n in range(10):
                many.run(bounded.inbox.enqueue(delivery(f"b{n}", [n], model)))
        assert 8 <= bounded.until_full(models[2], BacklogFullError) <= 12


def test_room_that_workers_make_is_used(many, models):
    one = delivery("b", [1]).n_bytes
    with Bounded(many, backlog_bytes=10 * one) as bounded:
        bounded.until_full(models[0], BacklogFullError)
        many.engine()
        assert many.merged("b0", models[0]).status == "merged"
        eventually(lambda: many.client.xlen(many.store.keys.of_model(models[0].key).stream) == 0)
        # Not within the moment for which a rejection stands.
        time.sleep(0.2)
        many.run(bounded.inbox.enqueue(delivery("later", [1], models[1])))


def test_batch_ids_are_bounded_in_total(many, models):
    with Bounded(many, idempotency_bytes=6_000) as bounded:
        first = bounded.until_full(models[0], IdsFullError)
        assert first >= 10
        assert bounded.until_full(models[1], IdsFullError) == 0


def test_retained_records_are_bounded_in_total(many, models):
    """A batch gets what is free although a part of it would not do."""
    changes = {"n_records": 3}
    with Bounded(many, retained_records=30) as bounded:
        assert bounded.until_full(models[0], RecordsFullError, **changes) == 10
        assert bounded.until_full(models[1], RecordsFullError, **changes) == 0


def test_a_tenant_has_its_share_of_the_total_over_all_partitions(many, models):
    changes = {"n_records": 3, "share": 0.5}
    with Bounded(many, retained_records=60) as bounded:
        assert bounded.until_full(models[0], RecordsFullError, **changes) == 10
        assert bounded.until_full(models[1], RecordsFullError, **changes) == 0
        other = many.put_model(replace(models[1], tenant="other"))
        assert bounded.until_full(other, RecordsFullError, **changes) == 10


def n_reads(bench):
    """Number of HMGET; appending a batch takes some of them too."""
    return bench.client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"]


def test_what_is_used_is_read_seldom_while_there_is_room(many, models):
    with Bounded(many) as bounded:
        many.run(bounded.inbox.enqueue(delivery("first", [1], models[0])))
        before = n_reads(many)
        for n in range(20):
            many.run(bounded.inbox.enqueue(delivery(f"b{n}", [n], models[n % 3])))
        spent = n_reads(many) - before
        # Each look reads all partitions, of all tenants and of this one.
        assert spent < 20 + 6 * N


def test_numbers_that_cannot_be_read_stop_no_batch(many, models, monkeypatch):
    """One of several servers may be away, and this partition's be there."""
    with Bounded(many) as bounded:

        async def away(self, tenant):
            raise ConnectionError("away")

        monkeypatch.setattr(StoreTotals, "_read_once", away)
        many.run(bounded.inbox.enqueue(delivery("first", [1], models[0])))
