"""Bulk jobs: each task counts once, in any order, whenever it is repeated, whatever is killed."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from calibrant_server.workers.ingest.entries import JobTask
from calibrant_server.workers.ingest.errors import (
    BacklogFullError,
    JobClosedError,
    ModelMismatchError,
    TaskRangeError,
    UnknownJobError,
)
from calibrant_server.workers.store import jobs
from calibrant_server.workers.store.frozen_maps import NoSuchModel
from calibrant_server.workers.store.jobs import (
    JobsFull,
    NoSuchJob,
    OtherJob,
    member_of,
    missing_ranges,
    n_tasks,
)
from calibrant_server.workers.store.registry import Registry
from tests.waiting import eventually
from tests.workers.driving import MODEL, delivery
from tests.workers.ledger import pane_of


def task(number, numbers=None, job="j", batch_id=None):
    """The batch of a task; without a batch id, each attempt has another."""
    batch_id = batch_id or f"{job}-{number}-{time.monotonic_ns()}"
    return delivery(batch_id, numbers or [number + 1], origin=JobTask(job, number))


def put(bench, name="j", tasks=4):
    return bench.run(bench.inbox.jobs.put(MODEL, name, tasks))


def job_of(bench, name="j"):
    return bench.run(bench.inbox.jobs.get(MODEL, name))


def test_tasks_in_any_order_count_once_however_long_ago_they_were_accepted(bench):
    """The records of the batch ids are gone, as after a day; nothing else is forgotten."""
    bench.put_model()
    assert put(bench)
    keys = bench.store.keys.of_model(MODEL.key)
    for receipt in bench.deliver(task(3), task(0)):
        record = keys.record(MODEL.key, MODEL.generation, receipt.batch_id)
        assert bench.client.delete(record) == 1
    again, other, new = bench.deliver(task(3), task(0, [99]), task(1))
    assert again.duplicate and again.duplicate_reason == "task_accepted" and again.is_final
    assert other.duplicate and not new.duplicate
    bench.engine()
    eventually(lambda: not job_of(bench)[0].in_queue)
    assert bench.pane().numbers == pane_of([4, 1, 2]).numbers
    job, bits = job_of(bench)
    assert (job.tasks, job.accepted, job.closed_ms) == (4, 3, None)
    assert missing_ranges(bits, job.tasks) == ([(2, 3)], None)


def test_expired_ids_are_repeated_and_count_once(bench):
    """The same with ids that the store itself forgets after a second."""
    bench.put_model()
    put(bench)
    bench.inbox._appender._settings = bench.settings.replace(idempotency_ttl_s=1)
    bench.deliver(*(task(number, batch_id=f"b{number}") for number in range(4)))
    keys = bench.store.keys.of_model(MODEL.key)
    name = keys.record(MODEL.key, MODEL.generation, "b2")
    eventually(lambda: not bench.client.exists(name))
    again = bench.deliver(*(task(number, batch_id=f"b{number}") for number in range(4)))
    assert all(each.duplicate_reason == "task_accepted" for each in again)
    bench.engine()
    eventually(lambda: not job_of(bench)[0].in_queue)
    assert bench.pane().numbers == pane_of([1, 2, 3, 4]).numbers


def test_batches_of_one_script_see_each_other(bench):
    """Batches with and without a task have different numbers of keys."""
    bench.put_model()
    put(bench, tasks=9)
    receipts = bench.deliver(
        delivery("plain-1", [50]), task(8), task(8), delivery("plain-2", [60]), task(2)
    )
    assert [each.duplicate for each in receipts] == [False, False, True, False, False]
    bench.engine()
    bench.merged("plain-2")
    eventually(lambda: not job_of(bench)[0].in_queue)
    assert bench.pane().numbers == pane_of([50, 9, 60, 3]).numbers


def test_what_a_job_does_not_take(bench):
    bench.put_model()
    with pytest.raises(UnknownJobError):
        bench.deliver(task(0))
    put(bench, tasks=2)
    with pytest.raises(TaskRangeError, match="expected 0 to 1"):
        bench.deliver(task(2))
    with pytest.raises(TaskRangeError):
        bench.deliver(task(2**40))
    bench.deliver(task(1))
    bench.run(bench.inbox.jobs.close(MODEL, "j"))
    with pytest.raises(JobClosedError):
        bench.deliver(task(0))
    [again] = bench.deliver(task(1))
    assert again.duplicate
    with pytest.raises(TaskRangeError):
        bench.deliver(task(2))
    with pytest.raises(NoSuchJob):
        job_of(bench, "other")
    with pytest.raises(NoSuchJob):
        bench.run(bench.inbox.jobs.close(MODEL, "other"))


def test_a_rejected_batch_accepts_no_task(bench):
    bench.put_model()
    put(bench)
    bench.inbox._appender._settings = bench.settings.replace(backlog_bytes=1)
    bench.deliver(task(0))
    with pytest.raises(BacklogFullError):
        bench.deliver(task(1))
    bench.inbox._appender._settings = bench.settings
    assert missing_ranges(job_of(bench)[1], 4)[0] == [(1, 4)]
    [accepted] = bench.deliver(task(1))
    assert not accepted.duplicate


def test_the_last_task_closes_the_job_which_expires(bench, monkeypatch):
    monkeypatch.setattr(jobs, "RETENTION_S", 1.0)
    bench.put_model()
    put(bench, tasks=2)
    bench.deliver(task(1))
    assert job_of(bench)[0].closed_ms is None
    bench.deliver(task(0))
    job, bits = job_of(bench)
    assert job.accepted == 2 and n_tasks(bits) == 2
    assert job.expires_ms == job.closed_ms + 1000
    keys = bench.store.keys.of_model(MODEL.key)
    of = (MODEL.key, MODEL.generation)
    names = [keys.job(*of, "j"), keys.job_tasks(*of, "j")]
    eventually(lambda: not bench.client.exists(*names))
    assert bench.run(bench.inbox.jobs.listed(MODEL)) == []
    assert put(bench, "other") and bench.client.zcard(keys.jobs(*of)) == 1


def test_a_job_is_made_once_and_closed_once(bench):
    bench.put_model()
    assert put(bench) and not put(bench)
    with pytest.raises(OtherJob) as other:
        put(bench, tasks=5)
    assert other.value.tasks == 4
    bench.run(bench.inbox.jobs.close(MODEL, "j"))
    closed = job_of(bench)[0]
    assert closed.expires_ms == closed.closed_ms + 30 * 86_400_000
    bench.run(bench.inbox.jobs.close(MODEL, "j"))
    assert job_of(bench)[0] == closed and not put(bench)
    with pytest.raises(NoSuchModel):
        bench.run(bench.inbox.jobs.put(replace(MODEL, generation="g2"), "j", 4))
    with pytest.raises(ModelMismatchError):
        bench.deliver(delivery("b", [1], model=replace(MODEL, generation="g2"), origin=JobTask("j", 0)))  # fmt: skip


def test_jobs_are_bounded(bench, monkeypatch):
    bench.put_model()
    monkeypatch.setattr(jobs, "MAX_OPEN", 2)
    put(bench, "a"), put(bench, "b")
    with pytest.raises(JobsFull) as full:
        put(bench, "c")
    assert full.value.is_open
    assert not put(bench, "b")
    bench.run(bench.inbox.jobs.close(MODEL, "a"))
    assert put(bench, "c")
    bench.run(bench.inbox.jobs.close(MODEL, "c"))
    monkeypatch.setattr(jobs, "MAX_JOBS", 3)
    with pytest.raises(JobsFull) as full:
        put(bench, "d")
    assert not full.value.is_open
    monkeypatch.setattr(jobs, "MAX_JOBS", 1000)
    monkeypatch.setattr(jobs, "MAX_TASKS_OF_MODEL", 15)
    with pytest.raises(JobsFull):
        put(bench, "d", 4)
    assert put(bench, "d", 3)


def test_a_deleted_model_leaves_no_job(bench):
    bench.put_model()
    put(bench, "a"), put(bench, "b", 2)
    bench.deliver(task(1, job="a"), task(0, job="b"), task(1, job="b"))
    keys, of = bench.store.keys.of_model(MODEL.key), (MODEL.key, MODEL.generation)
    names = [each(*of, name) for each in (keys.job, keys.job_tasks) for name in "ab"]
    names.append(keys.jobs(*of))
    assert bench.client.exists(*names) == 5
    bench.engine()
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    bench.run(registry.delete(bench.run(registry.found("default", "m"))))
    eventually(lambda: not bench.client.exists(*names))


def test_missing_ranges_equal_those_of_a_loop():
    rng = np.random.default_rng(3)
    for tasks in (1, 7, 8, 9, 64, 1000):
        accepted = rng.random(tasks) < 0.5
        bits = np.packbits(accepted).tobytes().rstrip(b"\0")
        for first in (0, tasks // 2, tasks):
            expected = [at for at in range(first, tasks) if not accepted[at]]
            ranges, following = missing_ranges(bits, tasks, first)
            assert [at for pair in ranges for at in range(*pair)] == expected
            assert following is None
            found, at = [], first
            while at is not None:
                some, at = missing_ranges(bits, tasks, at, limit=2)
                found += [each for pair in some for each in range(*pair)]
            assert found == expected
    assert member_of("a:b", 3) == "3:a:b"
