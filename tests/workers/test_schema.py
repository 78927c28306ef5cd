"""A running process of an old version stops writing when a newer one advances the store's layout."""

from __future__ import annotations

import threading

import pytest
from redis.exceptions import ResponseError

from calibrant_server.workers import main
from calibrant_server.workers.ingest.inbox_errors import StoreRejectedError
from calibrant_server.workers.store.key_names import SCHEMA
from calibrant_server.workers.store.properties import StoreMismatch
from tests.workers.driving import delivery, eventually
from tests.workers.ledger import ledger_ground, pane_of


def advance(bench, marks=True):
    """As a newer version does at its start."""
    bench.client.hset(bench.store.keys.configuration, "schema", SCHEMA + 1)
    for number in range(2 if marks else 0):
        bench.client.hset(bench.store.keys.partition(number).cursor, "schema", SCHEMA + 1)


def test_a_prepared_commit_is_rejected_and_decides_nothing(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b1", [1]))
    loop.step()
    bench.deliver(delivery("b2", [2]))
    advance(bench)
    before = bench.cursor()
    with pytest.raises(ResponseError, match="SCHEMA"):
        loop.step()
    for _ in range(15):
        loop._stop.set()  # no pauses
        loop._step_or_reload()
    assert bench.pane().numbers == pane_of([1]).numbers and bench.cursor() == before
    assert bench.dead_letters() == [] and bench.client.xlen(loop.keys.stream) == 1


def test_ingest_of_a_running_service_is_refused_at_once(bench):
    bench.put_model()
    advance(bench)
    with pytest.raises(StoreRejectedError, match=f"layout {SCHEMA + 1}"):
        bench.deliver(delivery("b1", [1]))
    with pytest.raises(StoreRejectedError, match=f"layout {SCHEMA + 1}"):
        bench.run(bench.inbox.check_writable())
    assert not bench.client.xlen(bench.store.keys.of_model("default/m").stream)


def test_workers_end_within_a_heartbeat(bench, settings):
    """Even if no partition is marked yet."""
    stop, ended = threading.Event(), []

    def run():
        try:
            main.run(settings, stop, numbers=ledger_ground())
        except StoreMismatch as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: bench.client.zcard(bench.store.keys.workers))
        advance(bench, marks=False)
        thread.join(60)
        assert ended and "newer version" in str(ended[0])
    finally:
        stop.set()
        thread.join()


def test_a_start_marks_every_partition_once_and_never_back(bench):
    keys, client = bench.store.keys, bench.client
    bench.store.fix_properties()
    marks = [client.hget(keys.partition(number).cursor, "schema") for number in range(2)]
    assert marks == [b"%d" % SCHEMA] * 2
    client.hset(keys.partition(1).cursor, "schema", SCHEMA + 1)
    with pytest.raises(StoreMismatch):
        bench.store.fix_properties()
    assert client.hget(keys.partition(1).cursor, "schema") == b"%d" % (SCHEMA + 1)


def test_the_cursor_has_the_time_of_its_progress(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b1", [1]))
    seconds, microseconds = bench.client.time()
    loop.step()
    assert 0 <= int(bench.cursor()["at"]) - (seconds * 1000 + microseconds // 1000) < 60_000
