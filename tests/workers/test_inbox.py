"""What the inbox tells the door."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from calibrant.core.errors import Violation
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.inbox_errors import (
    BacklogFullError,
    BatchConflictError,
    IdsFullError,
    ModelMismatchError,
    StoreUnavailableError,
    UnknownBatchError,
)
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, delivery
from tests.workers.ledger import pane_of


def test_a_batch_is_accepted_then_merged(bench):
    bench.put_model()
    (receipt,) = bench.deliver(
        delivery("b1", [1, 2, 3], violations=[Violation("/x", "r", "wrong")])
    )
    assert (receipt.status, receipt.duplicate, receipt.accepted, receipt.rejected) == (
        "accepted",
        False,
        3,
        1,
    )
    assert receipt.durability == "everysec"
    bench.engine()
    merged = bench.merged("b1")
    assert merged.status == "merged" and merged.errors == [
        {"pointer": "/x", "rule": "r", "detail": "wrong"}
    ]
    assert bench.pane().numbers == pane_of([1, 2, 3]).numbers


def test_a_repeat_is_a_duplicate_before_and_after_the_merge(bench):
    bench.put_model()
    bench.deliver(delivery("b1", [7]))
    assert bench.deliver(delivery("b1", [7]))[0].duplicate
    assert bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 1
    bench.engine()
    bench.merged("b1")
    (again,) = bench.deliver(delivery("b1", [7]))
    assert again.duplicate and again.status == "merged"
    assert bench.pane().count == 1


def test_other_content_under_the_same_id_is_a_conflict(bench):
    bench.put_model()
    bench.deliver(delivery("b1", [7]))
    with pytest.raises(BatchConflictError):
        bench.deliver(delivery("b1", [8]))


def test_the_same_id_many_times_at_once_counts_once(bench):
    bench.put_model()
    bench.engine()
    receipts = bench.deliver(*(delivery(f"b{i % 5}", [i % 5]) for i in range(60)))
    assert sum(not receipt.duplicate for receipt in receipts) == 5
    for i in range(5):
        bench.merged(f"b{i}")
    assert bench.pane().numbers == pane_of(range(5)).numbers


def test_of_two_contents_at_once_one_counts_and_the_other_conflicts(bench):
    bench.put_model()

    async def both():
        tasks = (bench.inbox.enqueue(delivery("b1", [n])) for n in (1, 2))
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = bench.run(both())
    assert sorted(type(result).__name__ for result in results) == [
        "BatchConflictError",
        "BatchReceipt",
    ]
    bench.engine()
    bench.merged("b1")
    kept = next(
        n for n, result in zip((1, 2), results, strict=True) if not isinstance(result, Exception)
    )
    assert bench.pane().numbers == pane_of([kept]).numbers


def test_the_first_batches_make_the_model_once(bench):
    new = replace(MODEL, generation="", revision=0)
    bench.engine()
    bench.deliver(*(delivery(f"b{i}", [i], model=new, create=True) for i in range(20)))
    stored = bench.run(bench.inbox.record(MODEL.key, "b0"))
    assert stored is not None
    for i in range(20):
        assert bench.merged(f"b{i}").status == "merged"


def test_a_model_that_is_not_there_or_is_another_one_is_reported(bench):
    with pytest.raises(ModelMismatchError) as none:
        bench.deliver(delivery("b1"))
    assert none.value.current is None
    bench.put_model(replace(MODEL, generation="g2", n_classes=5))
    with pytest.raises(ModelMismatchError) as other:
        bench.deliver(delivery("b1"))
    assert other.value.current.generation == "g2"
    with pytest.raises(ModelMismatchError):
        bench.deliver(delivery("b1", create=True))


def test_a_full_backlog_is_rejected_with_a_time_and_drains(bench):
    bench.put_model()
    small = bench.settings.replace(backlog_bytes=2000)
    inbox = Inbox(small)

    async def fill():
        for i in range(100):
            await inbox.enqueue(delivery(f"b{i}", range(20)))

    with pytest.raises(BacklogFullError) as full:
        bench.run(fill())
    assert 1 <= full.value.retry_after_s <= 60
    bench.engine()
    bench.merged("b0")
    bench.run(inbox.enqueue(delivery("later")))
    bench.run(inbox.close())


def test_ids_are_rejected_rather_than_forgotten(bench):
    bench.put_model()
    inbox = Inbox(bench.settings.replace(idempotency_bytes=1500))

    async def fill():
        for i in range(100):
            await inbox.enqueue(delivery(f"b{i}"))

    with pytest.raises(IdsFullError) as full:
        bench.run(fill())
    # The id that was just recorded is the only one, and is remembered for a day.
    assert 86_400 <= full.value.retry_after_s <= 86_400 + 3_601
    assert bench.run(inbox.enqueue(delivery("b0"))).duplicate
    bench.run(inbox.close())


def test_a_lost_reply_is_not_a_duplicate(bench, monkeypatch):
    """The first attempt goes through and its reply is lost: the second finds its own record."""
    bench.put_model()
    append, calls = bench.inbox._appender._append_in_room, []

    async def losing(*args):
        result = await append(*args)
        calls.append(args)
        if len(calls) == 1:
            raise ConnectionError("lost")
        return result

    monkeypatch.setattr(bench.inbox._appender, "_append_in_room", losing)
    (receipt,) = bench.deliver(delivery("b1"))
    assert len(calls) == 2 and not receipt.duplicate
    assert bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 1


def test_nothing_is_handed_over_behind_the_deletion_of_its_model(bench, monkeypatch):
    """The model goes between the check of the batch and the step that appends: no key of it is left."""
    bench.put_model()
    late = delivery("late")
    bench.run(Registry(bench.inbox.client, bench.inbox.keys).delete(MODEL))
    with pytest.raises(ModelMismatchError):
        bench.deliver(late)
    bench.loop().step()
    assert bench.keys_of() == []
    assert bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 0


def test_an_id_that_no_user_knows(bench):
    bench.put_model()
    assert bench.run(bench.inbox.record(MODEL.key, "nobody")) is None
    with pytest.raises(UnknownBatchError):
        bench.merged("nobody", seconds=0.1)


def test_waiting_ends_with_what_is_known(bench):
    bench.put_model()
    bench.deliver(delivery("b1"))
    assert bench.merged("b1", seconds=0.1).status == "accepted"


def test_a_store_that_is_away_is_reported_within_the_deadline(tmp_path):
    settings = EngineSettings(redis_url=f"unix://{tmp_path}/nobody")

    async def enqueue():
        inbox = Inbox(settings, ingest_deadline_s=0.2)
        with pytest.raises(StoreUnavailableError) as away:
            await inbox.enqueue(delivery("b1"))
        await inbox.close()
        return away.value.retry_after_s

    assert asyncio.run(enqueue()) >= 1


def test_the_entry_weighs_the_same_for_both_sides(bench):
    bench.put_model()
    bench.engine()
    bench.deliver(*(delivery(f"b{i}", range(i)) for i in range(10)))
    for i in range(10):
        bench.merged(f"b{i}")
    keys = bench.store.keys.of_model(MODEL.key)
    assert int(bench.client.get(keys.bytes_in)) == int(bench.cursor()["out"])
    assert bench.cursor()["n"] == "10"
