"""Movers and workers that are killed, interrupted or overtaken: nothing lost, nothing twice."""

from __future__ import annotations

import itertools
import socket
import threading
from dataclasses import replace

import pytest
import redis

from calibrant_server.workers import health
from calibrant_server.workers.health import read_health
from calibrant_server.workers.ingest.errors import StoreUnavailableError
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.lifecycle.model_copy import ModelCopy, OvertakenMove
from calibrant_server.workers.lifecycle.model_move import MoveRejected
from calibrant_server.workers.store import unfinished_moves
from calibrant_server.workers.store.commit import Commit, StaleTokenError
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, FreeLeases, delivery, eventually
from tests.workers.ledger import pane_of
from tests.workers.model_move.moving import Killed, config_at, keys_at, mover, placed

one_server = pytest.mark.one_server
STEPS = ("wait", "begin", "drain", "copy", "hand over", "arrive", "name", "leave")


@one_server
@pytest.mark.parametrize("step", STEPS)
def test_a_mover_that_is_killed_is_continued(bench, moved, step):
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    assert bench.merged("b1").status == "merged"

    def kill(name):
        if name == step:
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    # Readers find the model all the time, once; a batch waits for the move, or is accepted.
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    assert [each.model for each in bench.run(registry.list("default"))] == ["m"]
    assert bench.pane(model=placed(bench)).numbers == pane_of([1]).numbers
    assert mover(bench).run(to).to == to
    now = placed(bench)
    assert (now.partition, now.moves) == (to, 1)
    bench.deliver(delivery("b2", [2]), delivery("b1", [1]))
    assert bench.merged("b2", now).status == "merged"
    assert bench.pane(model=now).numbers == pane_of([1, 2]).numbers
    eventually(lambda: keys_at(bench, 1 - to) == [] and config_at(bench, 1 - to) is None)
    assert bench.pane(model=now).numbers == pane_of([1, 2]).numbers


@one_server
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_copy_that_is_interrupted_begins_again(bench, moved, after, monkeypatch):
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1], slices={"site": ["a"]}))
    assert bench.merged("b1").status == "merged"
    write, n_written = ModelCopy._write, itertools.count()

    def interrupted(self, writes):
        if next(n_written) > after:
            raise Killed
        write(self, writes)

    monkeypatch.setattr(ModelCopy, "_write", interrupted)
    with pytest.raises(Killed):
        mover(bench).run(to)
    monkeypatch.setattr(ModelCopy, "_write", write)
    # Left by an attempt that the source has forgotten.
    stray = bench.store.keys.partition(to).baselines(MODEL.key, MODEL.generation)
    bench.client.hset(stray, "old", "{}")
    mover(bench).run(to)
    assert not bench.client.exists(stray)
    assert bench.pane(model=placed(bench)).numbers == pane_of([1]).numbers


@one_server
@pytest.mark.parametrize("step", ["drain", "copy"])
def test_an_interrupted_move_is_cancelled_before_all_is_copied(bench, moved, step):
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))

    def kill(name):
        if name == step:
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    with pytest.raises(StoreUnavailableError) as waits:
        bench.run(_soon(bench, delivery("b2", [2])))
    assert waits.value.retry_after_s == 5
    assert mover(bench).cancel()
    assert not mover(bench).cancel()
    assert placed(bench) == MODEL and keys_at(bench, to) == []
    bench.deliver(delivery("b2", [2]))
    assert bench.merged("b2").status == "merged"
    assert bench.pane().numbers == pane_of([1, 2]).numbers
    # The entry of the cancelled move is consumed by now, and does not end the next one early.
    mover(bench).run(to)
    assert bench.pane(model=placed(bench)).numbers == pane_of([1, 2]).numbers


async def _soon(bench, batch):
    async with Inbox(bench.settings, ingest_deadline_s=0.1) as inbox:
        return await inbox.enqueue(batch)


@one_server
def test_a_move_that_has_handed_over_is_not_cancelled(bench, moved):
    _, to = moved
    bench.engine()

    def kill(name):
        if name == "arrive":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    with pytest.raises(MoveRejected):
        mover(bench).cancel()
    assert mover(bench).run(to).to == to


@one_server
def test_two_movers_at_once_move_the_model_once(bench, moved):
    """The second takes over and completes the move; the first finds it done. What it has not written yet it cannot write."""
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    results = []

    def overtaken(name):
        if name == "hand over" and not results:
            results.append(mover(bench).run(to))
            bench.deliver(delivery("b2", [2]))

    results.append(mover(bench, on_step=overtaken).run(to))
    assert [each.to for each in results] == [to, to]
    now = placed(bench)
    assert now.moves == 1 and bench.merged("b2", now).status == "merged"
    former, there = (bench.store.keys.partition(n) for n in (1 - to, to))
    state = bench.client.hget(there.moves, MODEL.key).replace(b"in ", b"copying ") + b" x"
    late = ModelCopy(bench.store, former, there, MODEL.key, "g1", state)
    with pytest.raises(OvertakenMove):
        late.clear()
    assert bench.pane(model=now).numbers == pane_of([1, 2]).numbers


@one_server
def test_a_mover_that_was_overtaken_stops(bench, moved):
    """Another one has begun to copy, and has not ended: what is there is not complete."""
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    n_overtaken = itertools.count()

    def kill(name):
        if name == "hand over":
            raise Killed

    def overtaken(name):
        if name == "hand over" and not next(n_overtaken):
            with pytest.raises(Killed):
                mover(bench, on_step=kill).run(to)

    with pytest.raises(OvertakenMove):
        mover(bench, on_step=overtaken).run(to)
    assert config_at(bench, to) is None
    mover(bench).run(to)
    assert bench.pane(model=placed(bench)).numbers == pane_of([1]).numbers
    assert placed(bench).moves == 1


@one_server
def test_a_stale_worker_of_the_former_partition_writes_nothing(bench, moved):
    """It has read the model, and is paused; another one consumes the entry that ends the model there."""
    _, to = moved
    stale, loop = bench.loop(), bench.loop()
    bench.deliver(delivery("b1", [1]))
    assert stale.step()
    loop._fencing.reload()

    def kill(name):
        if name == "drain":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    bench.client.xadd(loop.keys.stream, delivery("b9", [9]).to_fields())  # behind the end
    stale._fencing.cursor = replace(stale._fencing.cursor)
    assert loop.step()
    commit = Commit(stale.keys)
    commit.set_fields(stale.keys.marks(MODEL.key, MODEL.generation), {"x": "1"})
    with pytest.raises(StaleTokenError):
        stale._fencing.send(commit, stale._fencing.new_token())
    assert not loop._housekeeping._configs()
    stale._store.close()
    loop._store.close()


@one_server
@pytest.mark.parametrize("op", ["move_out", "move_in"])
def test_a_commit_of_a_move_whose_reply_is_lost_is_one(bench, moved, op):
    """The worker dies after the commit that ends the model, or that brings it, and another one continues."""
    _, to = moved
    bench.deliver(delivery("b1", [1]))
    partition = bench.store.keys.partition_of(MODEL.key) if op == "move_out" else to
    lost = []

    class Losing(Store):
        def run(self, number, script, names, args=()):
            reply = super().run(number, script, names, args)
            is_end = any(_bytes(each).startswith((b"out ", b"in ")) for each in args)
            if script == "commit" and not lost and is_end and number == partition:
                lost.append(number)
                raise redis.ConnectionError("the reply is lost")
            return reply

    stores = [Losing(bench.settings) for _ in range(2)]
    loops = [
        PartitionLoop(store, number, bench.numerics, FreeLeases(), threading.Event())
        for number, store in enumerate(stores)
    ]
    result = []
    thread = threading.Thread(target=lambda: result.append(mover(bench).run(to)))
    thread.start()
    while thread.is_alive():
        for loop in loops:
            loop._step_or_reload()
            loop._resume_at = 0.0
    thread.join()
    assert lost == [partition] and result[0].to == to
    now = placed(bench)
    bench.deliver(delivery("b2", [2], now), delivery("b1", [1], now))
    while bench.run(bench.inbox.record(MODEL.key, "b2")).status != "merged":
        loops[to]._step_or_reload()
    assert bench.pane(model=now).numbers == pane_of([1, 2]).numbers
    for store in stores:
        store.close()


def _bytes(value):
    return value if isinstance(value, bytes) else str(value).encode()


@one_server
def test_the_health_names_a_model_whose_mover_has_died(bench, moved, monkeypatch):
    _, to = moved
    bench.engine()

    def kill(name):
        if name == "copy":
            raise Killed

    host = socket.gethostname()
    assert read_health(bench.store, host).moving_models == []
    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    found = read_health(bench.store, host)
    assert (found.moving_models, found.interrupted_moves) == ([MODEL.key], [])
    monkeypatch.setattr(health, "MOVE_S", -5)
    found = read_health(bench.store, host)
    assert found.interrupted_moves == [MODEL.key] and found.is_red
    assert bench.run(bench.inbox.troubles()).interrupted_moves == 0
    monkeypatch.setattr(unfinished_moves, "MOVE_S", -5)
    assert bench.run(bench.inbox.troubles()).interrupted_moves == 1
    mover(bench).run(to)
    assert bench.run(bench.inbox.troubles()).interrupted_moves == 0
    assert read_health(bench.store, host).moving_models == []
