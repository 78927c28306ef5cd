"""Moves of models between partitions: nothing lost, nothing twice, whoever is killed when."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import re
import socket
import threading
from contextlib import closing
from dataclasses import replace

import pytest
import redis

from calibrant_server.workers import health, move
from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.health import read_health
from calibrant_server.workers.ingest.dead_letters import dead_letters, discard
from calibrant_server.workers.ingest.entries import move_order
from calibrant_server.workers.ingest.errors import ModelMismatchError, StoreUnavailableError
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.lifecycle import housekeeping, model_copy, model_move, move_keys
from calibrant_server.workers.lifecycle.model_copy import ModelCopy, OvertakenMove
from calibrant_server.workers.lifecycle.model_move import ModelMove, MoveInterrupted, MoveRejected
from calibrant_server.workers.lifecycle.move_states import leaving
from calibrant_server.workers.store import connection, unfinished_moves
from calibrant_server.workers.store import keys as key_names
from calibrant_server.workers.store.commit import Commit, StaleTokenError
from calibrant_server.workers.store.connection import NotReplicated, Store
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.registry import ConfigReader, ModelConfig, Registry
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, FreeLeases, delivery, eventually
from tests.workers.ledger import pane_of
from tests.workers.test_cluster import cluster_of

# Two tests use both server programs; the scripts are the same for the others.
one_server = pytest.mark.one_server
STEPS = ("wait", "begin", "drain", "copy", "hand over", "arrive", "name", "leave")
KINDS = (
    move_keys.COPIED, move_keys.CACHES, move_keys.SHARED, move_keys.COUNTED, move_keys.OF_PARTITION, move_keys.LETTERS,
)  # fmt: skip
# Values of the arguments of the methods that name keys.
_ARGUMENTS = {"key": PaneKey("t/m", "g", "", 0), "shard": 0, "start_s": 0}


@pytest.fixture(autouse=True)
def _removed_at_once(monkeypatch):
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 0)
    monkeypatch.setattr(connection, "FLUSHED_S", 0.0)


@pytest.fixture
def moved(bench, settings):
    """A model at home in a store with a worker, and the other partition."""
    bench.settings = settings.replace(housekeeping_s=0.1)
    return bench.put_model(), 1 - bench.store.keys.partition_of(MODEL.key)


def mover(bench, **parts):
    return ModelMove(bench.store, MODEL.key, PATIENCE_S, **parts)


def config_at(bench, number):
    text = bench.client.hget(bench.store.keys.partition(number).models, MODEL.key)
    return None if text is None else ModelConfig.from_json(text)


def keys_at(bench, number):
    """The keys of the model in a partition."""
    tag = bench.store.keys.partition(number).tag
    found = bench.client.scan_iter(match=f"{tag}:*{MODEL.key}|{MODEL.generation}*", count=1000)
    return sorted(name.decode().removeprefix(tag) for name in found)


def placed(bench):
    return bench.run(Registry(bench.inbox.client, bench.inbox.keys).get("default", "m"))


def key_kinds():
    """The kinds of keys that `PartitionKeys` names."""
    keys, found = PartitionKeys("ns", 0), set()
    for name, member in inspect.getmembers(PartitionKeys):
        if name.startswith("_") or name in ("tag", "files", "namespace", "partition"):
            continue
        value = getattr(keys, name)
        if callable(value):
            parameters = list(inspect.signature(member).parameters)[1:]
            value = value(*(_ARGUMENTS.get(each, "x") for each in parameters))
        found.add(move_keys.kind_of(keys.tag, value))
    return found


def test_each_kind_of_key_has_one_rule():
    ruled = [kind for kinds in KINDS for kind in kinds]
    assert sorted(ruled) == sorted(key_kinds()), "give a new kind of key a rule in move_keys.py"
    documented = set(re.findall(r"^T:(\w+)", key_names.__doc__, re.MULTILINE))
    assert documented == set(ruled)


def test_a_model_moves_and_everything_goes_on(bench, moved):
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1, 2], slices={"site": ["a", "b"]}), delivery("b2", [3]))
    assert {bench.merged(name).status for name in ("b1", "b2")} == {"merged"}
    versions = bench.store.keys.of_model(MODEL.key).versions(MODEL.key, MODEL.generation, "")
    before = bench.client.hgetall(versions)
    result = mover(bench).run(to)
    assert (result.to, result.former, result.n_keys > 3) == (to, 1 - to, True)
    now = placed(bench)
    assert (now.partition, now.moves, now.moving) == (to, 1, None)
    assert bench.pane(model=now).numbers == pane_of([1, 2, 3]).numbers
    # The same state: results that were computed before the move are still valid.
    there = bench.store.keys.of(now).versions(MODEL.key, MODEL.generation, "")
    assert bench.client.hgetall(there) == before
    # Repeats of ids from before are repeats, with the configuration of before too.
    for model in (now, MODEL):
        [again] = bench.deliver(delivery("b1", [1, 2], model, slices={"site": ["a", "b"]}))
        assert (again.duplicate, again.status) == (True, "merged")
    bench.deliver(delivery("b3", [4], now))
    assert bench.merged("b3", now).status == "merged"
    assert bench.pane(model=now).numbers == pane_of([1, 2, 3, 4]).numbers
    # A mover that was stopped before it named the place says so too late.
    home = bench.store.keys.of_model(MODEL.key)
    late = [MODEL.key, 1 - to, 1]
    assert bench.store.run(home.partition, "set_place", [home.places], late) == 0
    assert placed(bench) == now
    # Nothing is left, and it may return.
    eventually(lambda: keys_at(bench, 1 - to) == [] and config_at(bench, 1 - to) is None)
    mover(bench).run(1 - to)
    back = placed(bench)
    assert (back.partition, back.moves) == (1 - to, 2)
    bench.deliver(delivery("b4", [5], back))
    assert bench.merged("b4", back).status == "merged"
    assert bench.pane(model=back).numbers == pane_of([1, 2, 3, 4, 5]).numbers
    assert bench.dead_letters(now) == bench.dead_letters(back) == []


@one_server
def test_an_empty_model_moves(bench, moved):
    _, to = moved
    bench.engine()
    assert mover(bench).run(to).n_keys == 0
    assert mover(bench).run(to).former == to  # it is there
    assert placed(bench).partition == to


class Client(threading.Thread):
    """Posts batches with the configuration that it read once, again under their id until they are accepted."""

    def __init__(self, settings, name):
        super().__init__()
        self.settings, self.label = settings, name
        self.sent, self.has_ended, self.error = [], threading.Event(), None

    def run(self):
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.error = error

    async def _run(self):
        async with Inbox(self.settings, ingest_deadline_s=0.2) as inbox:
            config = MODEL
            for number in itertools.count():
                batch_id = f"{self.label}{number}"
                while True:
                    try:
                        await inbox.enqueue(delivery(batch_id, [number], config))
                        break
                    except StoreUnavailableError:
                        await asyncio.sleep(0.01)
                    except ModelMismatchError:
                        config = await Registry(inbox.client, inbox.keys).get("default", "m")
                self.sent.append((batch_id, number))
                if self.has_ended.is_set():
                    return


@one_server
def test_each_batch_counts_once_while_clients_post(bench, moved):
    _, to = moved
    bench.engine()
    clients = [Client(bench.settings, name) for name in "xy"]
    for each in clients:
        each.start()
    try:
        for target in (to, 1 - to, to):
            eventually(lambda: all(len(each.sent) > 20 for each in clients))
            eventually(lambda target=target: config_at(bench, target) is None)
            mover(bench).run(target)
    finally:
        for each in clients:
            each.has_ended.set()
            each.join()
    assert [each.error for each in clients] == [None, None]
    now = placed(bench)
    sent = [pair for each in clients for pair in each.sent]
    assert {bench.merged(name, now).status for name, _ in sent} == {"merged"}
    assert bench.pane(model=now).numbers == pane_of([number for _, number in sent]).numbers
    assert bench.dead_letters(now) == []
    assert now.partition == to and now.moves == 3


class Killed(BaseException):
    """The mover ends here."""


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
    # Left by an attempt of which the source has nothing any more.
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
def test_without_a_worker_the_move_is_given_up(bench, moved):
    _, to = moved
    with pytest.raises(MoveInterrupted, match="no worker"):
        ModelMove(bench.store, MODEL.key, patience_s=0.05).run(to)
    assert placed(bench) == MODEL
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    assert bench.merged("b1").status == "merged"


@one_server
@pytest.mark.parametrize("n_confirmed", [0, 1])
def test_a_copy_is_replicated_before_the_former_data_are_given_up(
    bench, moved, n_confirmed, monkeypatch
):
    """Without a replica the move stops: where the model is frozen, then where it is live."""
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    with closing(Store(bench.settings.replace(durability="replicated"))) as store:
        await_replica, n_waited = store.await_replica, itertools.count()

        def confirmed(partition):
            if next(n_waited) >= n_confirmed:
                await_replica(partition)

        monkeypatch.setattr(store, "await_replica", confirmed)
        with pytest.raises(NotReplicated):
            ModelMove(store, MODEL.key, PATIENCE_S).run(to)
    assert config_at(bench, 1 - to).moving is not None
    assert (config_at(bench, to) is not None) == bool(n_confirmed)
    assert mover(bench).run(to).to == to
    assert bench.pane(model=placed(bench)).numbers == pane_of([1]).numbers


@one_server
def test_a_former_partition_that_has_lost_the_move_is_reported(bench, moved):
    """A server was replaced by a replica that did not know of the move."""
    model, to = moved
    bench.engine()

    def lose(name):
        if name == "name":
            keys = bench.store.keys.partition(1 - to)
            bench.client.hset(keys.models, MODEL.key, model.to_json())

    with pytest.raises(MoveInterrupted, match="lost writes"):
        mover(bench, on_step=lose).run(to)
    assert placed(bench) == model


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
def test_a_second_entry_that_brings_the_model_changes_nothing(bench, moved):
    """Such as one of a store that was restored: its model has changed since, or was deleted."""
    _, to = moved
    bench.engine()
    mover(bench).run(to)
    now = placed(bench)
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    changed = bench.run(registry.put(replace(now, retention_s=86_400 * 400), now.revision))
    keys = bench.store.keys.partition(to)
    state = bench.client.hget(keys.moves, MODEL.key).decode()
    order = {"op": "move_in", "move": state.removeprefix("in "), "config": now.to_json().decode()}
    entry = move_order(MODEL.key, MODEL.generation, order)
    bench.client.xadd(keys.stream, entry.to_fields())
    eventually(lambda: bench.client.xlen(keys.stream) == 0)
    assert placed(bench) == changed
    assert bench.client.xlen(keys.dead_letters) == 0


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
def test_an_alarm_of_the_model_goes_along(bench, moved):
    """Its episodes under their ids, what receivers have not got yet, and fields of hashes that models share."""
    _, to = moved
    former = bench.store.keys.partition(1 - to)
    there = bench.store.keys.partition(to)
    episode = {
        "id": f"al_{1 - to:03d}_{'0' * 20}", "tenant": "default", "model": "m", "generation": "g1", "scope": "all",
        "slice": "", "status": "open", "number": 7, "cohort": 0, "bucket_s": 3600, "effect": {}, "threshold": 1.0,
        "recommendation": {"action": "none"}, "raised_s": 1.0, "changed_s": 1.0,
    }  # fmt: skip
    recent = episode | {"id": f"al_{1 - to:03d}_{'1' * 20}", "changed_s": 4e9, "number": 8}
    other = episode | {"id": f"al_{1 - to:03d}_{'2' * 20}", "model": "other"}
    for each in (episode, recent, other):
        bench.client.hset(former.episodes, each["id"], json.dumps(each))
    bench.client.hset(former.episodes, "*", 8)
    bench.client.hset(there.episodes, "*", 40)
    for name in (former.summaries, former.current_maps):
        bench.client.hset(name, mapping={MODEL.key: b'{"generation":"g1"}', "default/o": b"{}"})
    waiting = [
        WebhookDelivery(name, model, "g1", "https://x.example", "alarm", "{}", 1.0, due_s=4e9)
        for name, model in (("d1", MODEL.key), ("d2", "default/o"))
    ]
    for message in waiting:
        bench.client.hset(former.deliveries, message.id, message.to_json())
    bench.engine()
    mover(bench).run(to)
    assert {each.decode() for each in bench.client.hkeys(there.episodes)} == {
        "*", episode["id"], recent["id"],
    }  # fmt: skip
    # Who follows the events gets what changed lately, and nothing old.
    assert bench.client.hget(there.episodes, "*") == b"41"
    changed = bench.run(bench.inbox.alarms.changed_since("default", [8, 40] if to else [40, 8]))
    assert [(number, each.id) for number, each in changed] == [(to, recent["id"])]
    found = bench.run(bench.inbox.alarms.episode("default", episode["id"]))
    assert found is not None and found.model == "m"
    assert len(bench.run(bench.inbox.alarms.episodes("default"))) == 3
    for name in ("summaries", "current_maps"):
        assert bench.client.hkeys(getattr(there, name)) == [MODEL.key.encode()]
    assert bench.client.hkeys(former.summaries) == [b"default/o"]
    assert bench.client.hgetall(there.deliveries) == {b"d1": waiting[0].to_json()}
    assert bench.client.hkeys(former.deliveries) == [b"d2"]
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert len(bench.run(bench.inbox.alarms.episodes("default"))) == 3


@one_server
def test_every_form_of_key_is_copied_exactly(bench, moved, monkeypatch):
    """In parts too, with the time that they have left."""
    model, to = moved
    monkeypatch.setattr(model_copy, "PART_BYTES", 100)
    source, target = bench.store.keys.partition(1 - to), bench.store.keys.partition(to)
    of = (model.key, model.generation)
    bench.client.hset(
        source.records(*of, 3), mapping={f"id{i}": b"\0" * (i % 70) for i in range(900)}
    )
    bench.client.sadd(source.slices(*of), "", *(f"site:{i}|x" for i in range(300)))
    bench.client.zadd(source.jobs(*of), {"5:open": float("inf"), "7:closed": 1_795_000_000_123})
    bench.client.setbit(source.job_tasks(*of, "open"), 4001, 1)
    bench.client.hset(source.job(*of, "open"), mapping={"tasks": 5, "accepted": 1, "last": "9-9"})
    bench.client.set(source.record(*of, "b1"), b"{}", ex=5000)
    bench.client.set(source.event_half(*of, "e", "q"), b"half", ex=100)
    bench.client.hset(source.merge(f"{model.key}|g1||s"), "#", "cache")
    bench.client.hset(source.baselines(model.key, "g12"), "other", "generation")
    state = bench.store.run(to, "begin_copy", [target.moves], [model.key, "i", "a"])
    copy = ModelCopy(bench.store, source, target, *of, state)
    copy.run()
    assert keys_at(bench, to) == [
        each for each in keys_at(bench, 1 - to) if not each.startswith((":g:", ":f:"))
    ]
    assert copy.n_keys == 7
    for name, read in (
        (source.records(*of, 3), bench.client.hgetall), (source.slices(*of), bench.client.smembers),
        (source.record(*of, "b1"), bench.client.get), (source.job_tasks(*of, "open"), bench.client.get),
    ):  # fmt: skip
        assert read(name.replace(source.tag, target.tag)) == read(name)
    jobs = bench.client.zrange(target.jobs(*of), 0, -1, withscores=True)
    assert jobs == [(b"7:closed", 1_795_000_000_123), (b"5:open", float("inf"))]
    assert bench.client.hgetall(target.job(*of, "open")) == {b"tasks": b"5", b"accepted": b"1"}
    assert 4000 < bench.client.ttl(target.record(*of, "b1")) <= 5000
    assert bench.client.ttl(target.records(*of, 3)) == -1
    # A record of 5,000 s and half an inference of 100 s are counted where they expire.
    assert sum(copy.id_bytes.values()) > 100 and sum(copy.event_bytes.values()) > 100


@one_server
def test_what_is_retained_is_counted_in_the_new_partition(bench, moved):
    """And no more in the former one, once the data there are removed."""
    _, to = moved
    former, there = (bench.store.keys.partition(n) for n in (1 - to, to))
    tallies = former.tallies(MODEL.key, MODEL.generation)
    bench.client.hset(tallies, mapping={"records": 3, "bytes": 300})
    bench.client.hset(former.records(MODEL.key, MODEL.generation, 0), "id", b"x")
    counters = {"records": 5, "bytes": 500, "records:default": 5, "bytes:default": 500}
    bench.client.hset(former.retained, mapping=counters)
    bench.engine()
    mover(bench).run(to)
    names = list(counters)
    assert bench.client.hmget(there.retained, names) == [b"3", b"300", b"3", b"300"]
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert bench.client.hmget(former.retained, names) == [b"2", b"200", b"2", b"200"]


@one_server
def test_files_of_cold_days_are_named_by_the_new_partition_alone(bench, moved):
    """The removal of the former data would otherwise give up the files."""
    _, to = moved
    former, there = (bench.store.keys.partition(n) for n in (1 - to, to))
    file = {"name": "f.parquet", "n_bytes": 1, "digest": "d"}
    day = json.dumps({"files": [file], "back": [], "changed_ms": 0, "erased": False})
    of = (MODEL.key, MODEL.generation)
    bench.client.hset(former.cold_days(*of), "86400", day)
    bench.client.sadd(former.models_back, "|".join(of), "default/o|g")
    bench.engine()
    mover(bench).run(to)
    assert bench.client.hgetall(there.cold_days(*of)) == {b"86400": day.encode()}
    assert bench.client.smembers(there.models_back) == {"|".join(of).encode()}
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert bench.client.smembers(former.models_back) == {b"default/o|g"}
    assert not bench.client.exists(former.spare_files)


@one_server
def test_a_request_that_began_before_the_move_reads_everything_where_the_model_was(
    bench, moved, monkeypatch
):
    """Without the names of its files, old days would be read as empty: a wrong result under the name of a right state."""
    _, to = moved
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 1e6)
    former = bench.store.keys.partition(1 - to)
    of = (MODEL.key, MODEL.generation)
    bench.client.hset(former.cold_days(*of), "86400", "day")
    bench.client.hset(former.current_maps, mapping={MODEL.key: "map", "default/o": "other"})
    bench.engine()
    mover(bench).run(to)
    assert bench.client.hgetall(former.cold_days(*of)) == {b"86400": b"day"}
    assert bench.client.hget(former.current_maps, MODEL.key) == b"map"
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 0)
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert keys_at(bench, 1 - to) == []
    assert bench.client.hkeys(former.current_maps) == [b"default/o"]
    there = bench.store.keys.partition(to)
    assert bench.client.hgetall(there.cold_days(*of)) == {b"86400": b"day"}
    assert bench.client.hget(there.current_maps, MODEL.key) == b"map"


@one_server
def test_a_model_that_was_made_again_moves(settings):
    """Its own moves begin again, those of its name do not: its home would go on to name the former partition."""
    with Bench(settings.replace(housekeeping_s=0.1, partitions=4)) as bench:
        _made_again(bench)


def _made_again(bench):
    home = bench.store.keys.partition_of(MODEL.key)
    one, two = (home + 1) % 4, (home + 2) % 4
    bench.put_model()
    bench.engine()
    mover(bench).run(one)
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    eventually(lambda: config_at(bench, home) is None)
    bench.run(registry.delete(placed(bench)))
    again = bench.run(registry.put(replace(MODEL, generation="", revision=0), None))
    assert (again.partition, again.moves) == (one, 0)
    bench.deliver(delivery("b1", [1], again))
    assert bench.merged("b1", again).status == "merged"
    mover(bench).run(two)
    now = placed(bench)
    assert (now.partition, now.moving) == (two, None)
    bench.deliver(delivery("b2", [2], again))
    assert bench.merged("b2", now).status == "merged"
    eventually(lambda: config_at(bench, one) is None)
    assert bench.pane(model=placed(bench)).numbers == pane_of([1, 2]).numbers


@one_server
def test_a_process_that_remembers_the_former_partition_reads_the_new_one_once_it_is_named(
    bench, moved
):
    """The mover was killed before its last step: the former partition still has the configuration of before."""
    _, to = moved
    bench.engine()
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    reader = ConfigReader(bench.client, bench.store.keys)
    assert reader.read(MODEL.key) == bench.run(registry.get("default", "m")) == MODEL
    bench.deliver(delivery("b0", [2]))
    assert bench.merged("b0").status == "merged"
    seen = []

    def kill(name):
        if name == "copy":
            seen.append(config_at(bench, 1 - to))
            bench.run(bench.inbox.state(seen[0], ""))
        if name == "leave":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    bench.deliver(delivery("b1", [1]))
    # A response from during the move is not taken for unchanged.
    seen.append(config_at(bench, 1 - to))
    bench.run(bench.inbox.state(seen[1], ""))
    assert [bench.run(bench.inbox.unchanged_state(each, "")) for each in seen] == [None, None]
    now = placed(bench)
    assert bench.merged("b1", now).status == "merged"
    assert reader.read(MODEL.key) == bench.run(registry.get("default", "m")) == now
    changed = replace(now, retention_s=86_400 * 400)
    assert bench.run(registry.put(changed, now.revision)).partition == to


@one_server
def test_a_move_without_room_for_its_copy_is_given_up(bench, moved, monkeypatch):
    """The model would accept nothing until there is room. A move that was interrupted can be cancelled in a full store, too."""
    _, to = moved
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    assert bench.merged("b1").status == "merged"

    def fill(name):
        if name == "copy":
            bench.client.config_set("maxmemory", 1)

    try:
        with pytest.raises(MoveRejected, match="no room"):
            mover(bench, on_step=fill).run(to)
        assert placed(bench) == MODEL
        bench.client.config_set("maxmemory", 0)
        change, n_changes = ModelMove._change, itertools.count()

        def killed(self, *given):
            if next(n_changes):
                raise Killed
            return change(self, *given)

        monkeypatch.setattr(ModelMove, "_change", killed)
        with pytest.raises(Killed):
            mover(bench).run(to)
        monkeypatch.setattr(ModelMove, "_change", change)
        assert keys_at(bench, to) != []
        bench.client.config_set("maxmemory", 1)
        assert mover(bench).cancel()
        assert placed(bench) == MODEL and keys_at(bench, to) == []
    finally:
        bench.client.config_set("maxmemory", 0)
    bench.deliver(delivery("b2", [2]))
    assert bench.merged("b2").status == "merged"
    mover(bench).run(to)
    assert bench.pane(model=placed(bench)).numbers == pane_of([1, 2]).numbers


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


@one_server
def test_models_that_cannot_be_moved(bench, moved):
    model, to = moved
    bench.engine()
    for target in (-1, 2):
        with pytest.raises(MoveRejected, match="partitions 0 to 1"):
            mover(bench).run(target)
    with pytest.raises(MoveRejected, match="no model"):
        ModelMove(bench.store, "default/none", PATIENCE_S).run(to)
    bench.deliver(delivery("b1", [1], trick="raise"))
    assert bench.merged("b1").status == "dead_lettered"
    with pytest.raises(MoveRejected, match="not merged and not moved: 1 batches") as rejected:
        mover(bench).run(to)
    # The message has the command that helps.
    [letter] = dead_letters(bench.store, bench.store.keys.of(model).partition)
    name = f"{letter.partition}:{letter.id}"
    assert f"`python -m workers.ingest.parked replay {name}`" in str(rejected.value)
    for why, changes in (("import", {"importing": "x.y"}), ("stays", {"side_partitions": [1]})):
        other = bench.put_model(replace(MODEL, model=why, **changes))
        number = bench.store.keys.partition_of(other.key)
        with pytest.raises(MoveRejected, match=why):
            ModelMove(bench.store, other.key, PATIENCE_S).run(1 - number)
    assert placed(bench) == model
    assert discard(bench.store, letter.partition, name.partition(":")[2])
    mover(bench).run(to)
    assert placed(bench).partition == to


def test_the_message_about_many_batches_names_some_of_them():
    names = [f"3:dead-{number}-0" for number in range(model_move.MAX_NAMED + 5)]
    found = model_move._left_behind(names)
    assert names[model_move.MAX_NAMED - 1] in found and names[model_move.MAX_NAMED] not in found
    assert "for the other 5" in found


@one_server
def test_a_model_does_not_return_while_its_former_data_are_removed(bench, moved, monkeypatch):
    _, to = moved
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 1e6)
    bench.engine()
    bench.deliver(delivery("b1", [1]))
    mover(bench).run(to)
    with pytest.raises(MoveRejected, match="two minutes"):
        mover(bench).run(1 - to)
    # Until then, a request that has begun before reads the state of before.
    assert bench.pane().numbers == pane_of([1]).numbers
    with closing(Store(bench.settings)) as store:
        assert ConfigReader(store.client, store.keys).read(MODEL.key).partition == to


def test_changes_of_the_model_wait_for_the_move(bench, moved):
    """Settings, maps, jobs, orders, deletion: each is rejected for now, and works afterwards."""
    _, to = moved
    bench.engine()
    registry = Registry(bench.inbox.client, bench.inbox.keys)

    def kill(name):
        if name == "copy":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    config = bench.run(registry.get("default", "m"))

    async def attempts(inbox, config):
        calls = [
            inbox.jobs.put(config, "j", 3),
            inbox.order(config, {"op": "test", "about": "x"}),
            inbox.event_halves.exchange(config, "e", False, b"half"),
            inbox.maps.request(config, b"{}"),
            inbox.maps.add(config, "i", b"{}", b"{}"),
            registry.put(replace(config, retention_s=86_400 * 400), config.revision),
            registry.delete(config),
        ]
        return [await each for each in await _gathered(calls)]

    async def _gathered(calls):
        found = []
        for each in calls:
            result = await asyncio.gather(each, return_exceptions=True)
            found.append(asyncio.sleep(0, result[0]))
        return found

    async def run(config):
        async with Inbox(bench.settings, ingest_deadline_s=0.05) as inbox:
            return await attempts(inbox, config)

    results = bench.run(run(config))
    assert [isinstance(each, Exception) for each in results] == [True] * 7
    assert all("moved" in str(each) for each in results), results
    mover(bench).run(to)
    now = placed(bench)
    results = bench.run(run(now))
    # The deletion names the revision before the change.
    assert [type(each).__name__ for each in results if isinstance(each, Exception)] == [
        "RevisionConflict"
    ]


@one_server
def test_a_creation_by_an_old_placement_is_rejected(bench, moved):
    """A process that was stopped between placing a model and creating it, while the model was created, moved and deleted."""
    _, to = moved
    bench.engine()
    mover(bench).run(to)
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    bench.run(registry.delete(placed(bench)))
    eventually(lambda: config_at(bench, 1 - to) is None and config_at(bench, to) is None)
    late = replace(MODEL, generation="", revision=0)
    number = 1 - to

    class Late:
        async def place(self, model):
            return number

    bench.inbox._appender._placement = Late()
    with pytest.raises(ModelMismatchError):
        bench.deliver(delivery("b1", [1], late, create=True))
    assert config_at(bench, number) is None


@one_server
def test_the_command(bench, moved, monkeypatch, capsys):
    _, to = moved
    bench.engine()
    settings = bench.settings
    monkeypatch.setattr(move, "EngineSettings", lambda: settings)
    assert move.main([MODEL.key]) == 0
    found = json.loads(capsys.readouterr().out)
    # The other partition has no model.
    assert (found["model"], found["former"], found["to"]) == (MODEL.key, 1 - to, to)
    assert move.main([MODEL.key, "--cancel"]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": MODEL.key, "cancelled": False}

    def kill(name):
        if name == "copy":
            raise Killed

    eventually(lambda: config_at(bench, 1 - to) is None)
    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(1 - to)
    assert move.main([]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "model": MODEL.key, "stage": "draining", "former": to, "to": 1 - to,
    }  # fmt: skip
    assert move.main([MODEL.key, "--cancel"]) == 0
    assert move.main([]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": MODEL.key, "cancelled": True}
    assert move.main(["default/none", "1"]) == 1
    assert "no model" in json.loads(capsys.readouterr().out)["error"]
    assert model_move.MAX_WAITING_BYTES > 0 and leaving("x")["op"] == "move_out"


@one_server
def test_a_model_moves_between_servers_of_a_cluster(settings, server_binary, tmp_path):
    """While a client posts."""
    with cluster_of(server_binary, tmp_path / "c", n_masters=2) as cluster:
        settings = settings.replace(
            redis_url=cluster.url, namespace="across", partitions=8, housekeeping_s=0.1
        )
        with Bench(settings) as bench:
            bench.put_model()
            bench.engine()
            keys = bench.store.keys
            former = keys.of_model(MODEL.key)
            to = next(
                number
                for number in range(8)
                if cluster.master_of(keys.partition(number).stream)
                is not cluster.master_of(former.stream)
            )
            client = Client(settings, "c")
            client.start()
            try:
                eventually(lambda: len(client.sent) > 10)
                ModelMove(bench.store, MODEL.key, PATIENCE_S).run(to)
                eventually(lambda: config_at(bench, former.partition) is None)
                n_sent = len(client.sent)
                eventually(lambda: len(client.sent) > n_sent + 10)
            finally:
                client.has_ended.set()
                client.join()
            assert client.error is None
            now = placed(bench)
            assert (now.partition, now.moves) == (to, 1)
            assert {bench.merged(name, now).status for name, _ in client.sent} == {"merged"}
            assert bench.pane(model=now).numbers == pane_of([n for _, n in client.sent]).numbers
            assert bench.dead_letters(now) == []
            # Nothing is left on the former server.
            eventually(lambda: keys_at(bench, former.partition) == [])


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
def test_the_command_fails_unless_the_model_is_where_it_was_asked_to_be(
    bench, moved, monkeypatch, capsys
):
    """It completes a move that was interrupted, which may go elsewhere."""
    _, to = moved
    bench.engine()
    settings = bench.settings
    monkeypatch.setattr(move, "EngineSettings", lambda: settings)

    def kill(name):
        if name == "copy":
            raise Killed

    with pytest.raises(Killed):
        mover(bench, on_step=kill).run(to)
    assert move.main([MODEL.key, str(1 - to)]) == 1
    assert json.loads(capsys.readouterr().out)["to"] == to
    assert move.main([MODEL.key, str(to)]) == 0
