"""An entry that fails alone ten times is parked: kept, reported, replayed exactly once; the partition goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import redis
from redis.exceptions import ResponseError

from calibrant.input.labels import LabelRow
from calibrant_server.workers.health import read_health
from calibrant_server.workers.ingest import attempts, parked
from calibrant_server.workers.ingest.attempts import MAX_ATTEMPTS, Attempts
from calibrant_server.workers.ingest.commit_group import CommitGroup
from calibrant_server.workers.ingest.dead_letters import PARKED, replay
from calibrant_server.workers.ingest.entries import LABELS, IngestBatch
from calibrant_server.workers.ingest.inbox_errors import BatchConflictError
from calibrant_server.workers.ingest.parked import all_letters
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.store.commit import Commit, Cursor
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, delivery
from tests.workers.ledger import pane_of
from tests.workers.oracle.retained_record import RetainedRecord
from tests.workers.test_transient_errors import counts, labels, no_pauses, with_ids

__all__ = ["no_pauses"]
HOUR_US = 3_600_000_000


def failing(loop, batch_id, error, n=10**9):
    """Have every run that holds a batch fail at its commit, so many times."""
    commit, raised = loop._commit, []

    def failing_commit(run: CommitGroup):
        if any(item.entry.batch_id == batch_id for item in run.items) and len(raised) < n:
            raised.append(len(run.items))
            raise error
        return commit(run)

    loop._commit = failing_commit
    return raised


def steps(loop, n=60):
    """Step a loop until its stream is empty, so many times at most."""
    for _ in range(n):
        if not loop._node.xlen(loop.keys.stream):
            return
        loop._step_or_reload()


def parked_entries(store):
    return [each for each in all_letters(store) if each.state == PARKED]


def parked_ids(bench):
    return [each.id for each in parked_entries(bench.store)]


def replay_all(bench):
    return [replay(bench.store, each.partition, each.id) for each in parked_entries(bench.store)]


def parked_batch(bench, batch_id="b1", error=None):
    """A loop that has parked one batch of three."""
    bench.put_model()
    loop = bench.loop()
    commit = loop._commit
    bench.deliver(*(delivery(f"b{i}", [i + 1]) for i in range(3)))
    failing(loop, batch_id, error or MemoryError())
    steps(loop)
    loop._commit = commit
    return loop


@pytest.mark.parametrize(
    "error", [MemoryError(), ResponseError("WRONGTYPE Operation against a key")]
)
def test_after_ten_tries_alone_it_is_parked_and_the_rest_continues(bench, error):
    bench.put_model()
    loop = bench.loop()
    commit = loop._commit
    bench.deliver(*(delivery(f"b{i}", [i + 1]) for i in range(3)))
    runs = failing(loop, "b1", error)
    steps(loop)
    assert runs == [3] + [1] * MAX_ATTEMPTS
    assert bench.dead_letters() == [] and bench.client.xlen(loop.keys.stream) == 0
    assert bench.pane().numbers == pane_of([1, 3]).numbers and bench.cursor()["n"] == "2"
    assert bench.cursor()["out"] == bench.client.get(loop.keys.bytes_in).decode()
    [entry] = parked_entries(bench.store)
    assert (entry.batch_id, entry.model, entry.kind) == ("b1", MODEL.key, "predictions")
    assert type(error).__name__ in entry.why

    health = read_health(bench.store, "")
    assert health.is_red and health.parked_entries == 1
    assert bench.run(bench.inbox.troubles()).parked_entries == 1

    # The id is open: neither finished nor to be counted again, however long it takes.
    assert bench.run(bench.inbox.record(MODEL.key, "b1")).status == "parked"
    assert bench.client.ttl(loop.keys.record(MODEL.key, MODEL.generation, "b1")) == -1
    [receipt] = bench.deliver(delivery("b1", [2]))
    assert receipt.duplicate and not receipt.is_final
    with pytest.raises(BatchConflictError):
        bench.deliver(delivery("b1", [9]))
    steps(loop, 3)
    assert bench.pane().numbers == pane_of([1, 3]).numbers

    loop._commit = commit
    assert replay_all(bench) == [True]
    assert bench.run(bench.inbox.record(MODEL.key, "b1")).status == "accepted"
    steps(loop, 3)
    assert bench.merged("b1").status == "merged"
    assert bench.pane().numbers == pane_of([1, 2, 3]).numbers
    assert 86_000 < bench.client.ttl(loop.keys.record(MODEL.key, MODEL.generation, "b1")) <= 86_400
    assert bench.cursor()["n"] == "3" and bench.run(bench.inbox.troubles()).parked_entries == 0
    assert bench.cursor()["out"] == bench.client.get(loop.keys.bytes_in).decode()
    assert bench.deliver(delivery("b1", [2]))[0].status == "merged"


def test_fewer_failures_park_nothing(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(*(delivery(f"b{i}", [i]) for i in range(3)))
    runs = failing(loop, "b1", MemoryError(), n=MAX_ATTEMPTS)
    steps(loop)
    assert len(runs) == MAX_ATTEMPTS and parked_ids(bench) == []
    assert bench.pane().numbers == pane_of(range(3)).numbers


@pytest.mark.parametrize(
    "error", [redis.TimeoutError("slow"), OSError(28, "disk full"), ResponseError("MISCONF disk")]
)
def test_transient_errors_never_park(bench, monkeypatch, error):
    monkeypatch.setattr(attempts, "MAX_TRANSIENT_PAUSE_S", 0.001)
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b1", [4]))
    failing(loop, "b1", error, n=5 * MAX_ATTEMPTS)
    steps(loop, 5 * MAX_ATTEMPTS + 1)
    assert parked_ids(bench) == [] and bench.pane().numbers == pane_of([4]).numbers


def test_an_entry_is_replayed_once_by_any_number_of_hands(bench):
    loop = parked_batch(bench)
    [name] = parked_ids(bench)
    assert replay(bench.store, loop.partition, name)
    assert not replay(bench.store, loop.partition, name)
    steps(loop, 3)
    assert not replay(bench.store, loop.partition, name)
    assert bench.pane().numbers == pane_of([1, 2, 3]).numbers


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("at", range(4))
def test_a_kill_at_any_step_loses_nothing_and_counts_nothing_twice(bench, at, happens):
    """Between tries, before and after the commit that parks, before and after the replay and the commit that merges."""
    bench.put_model()
    bench.deliver(*(delivery(f"b{i}", [i + 1]) for i in range(3)))
    calls = []

    def mortal():
        """A loop whose process ends at one of its scripts, which the store has run or not."""
        loop = bench.loop()
        failing(loop, "b1", MemoryError(), n=10**9 if not bench.client.exists(done) else 0)
        run = loop._store.run

        def dying(partition, script, keys, args=()):
            calls.append(script)
            dies = script == "commit" and len(calls) - 1 == at
            reply = run(partition, script, keys, args) if happens or not dies else None
            if dies:
                raise KeyboardInterrupt
            return reply

        loop._store.run = dying
        return loop

    done = bench.store.keys.of_model(MODEL.key).tag + ":done"
    loop = mortal()
    for phase in range(2):
        for _ in range(60):
            if not bench.client.xlen(loop.keys.stream):
                break
            try:
                loop._step_or_reload()
            except KeyboardInterrupt:
                loop = mortal()
        if phase == 0:
            assert replay_all(bench) == [True]
            bench.client.set(done, 1)
            loop = mortal()
    assert bench.pane().numbers == pane_of([1, 2, 3]).numbers
    assert bench.cursor()["n"] == "3" and bench.dead_letters() == [] and parked_ids(bench) == []
    assert {bench.merged(f"b{i}").status for i in range(3)} == {"merged"}


def test_a_replay_of_which_the_reply_is_lost_is_not_repeated(bench):
    loop = parked_batch(bench)
    [name] = parked_ids(bench)
    run = bench.store.run

    def losing(*args, **kwargs):
        run(*args, **kwargs)
        raise redis.TimeoutError("lost")

    bench.store.run = losing
    with pytest.raises(redis.TimeoutError):
        replay(bench.store, loop.partition, name)
    bench.store.run = run
    assert not replay(bench.store, loop.partition, name)
    steps(loop, 3)
    assert bench.pane().numbers == pane_of([1, 2, 3]).numbers


def test_room_for_records_is_reserved_by_what_is_in_the_stream(bench):
    bench.numerics = Numerics()
    bench.put_model()
    loop = bench.loop()
    commit = loop._commit
    bench.deliver(replace(with_ids("b1", "i1", "i2"), n_records=2))
    failing(loop, "b1", MemoryError())
    steps(loop, 20)

    def coming():
        found = bench.client.hmget(loop.keys.retained, "coming", "coming_bytes")
        return [int(each or 0) for each in found]

    assert coming() == [0, 0]
    assert replay_all(bench) == [True] and coming()[0] == 2 and coming()[1] > 0
    loop._commit = commit
    steps(loop, 3)
    assert coming() == [0, 0] and counts(bench)["n_predictions"] == 2


def rated(batch_id, class_index):
    payload = pack_labels([LabelRow("i1", {}, [("anna", class_index, None)])])
    return IngestBatch.of(MODEL, batch_id, LABELS, payload, batch_id.encode().ljust(16), 1)


def test_replayed_labels_do_not_overrule_later_ones(bench):
    """The order of a rater's ratings is that of their arrival, not of the replay."""
    bench.numerics = Numerics()
    bench.put_model()
    loop = bench.loop()
    commit = loop._commit
    bench.deliver(with_ids("b0", "i1"))
    steps(loop, 2)
    failing(loop, "b1", MemoryError())
    bench.deliver(rated("b1", 0))
    steps(loop, 20)
    bench.deliver(rated("b2", 1))
    steps(loop, 2)
    loop._commit = commit
    assert replay_all(bench) == [True]
    steps(loop, 3)
    [packed] = loop._retained.packed(MODEL, ["i1"]).values()
    ratings = RetainedRecord.unpack(packed).ratings.values()
    assert bench.merged("b1").status == "merged" and [each.class_index for each in ratings] == [1]


def test_labels_of_a_parked_prediction_wait_for_it(bench):
    bench.numerics = Numerics()
    bench.put_model()
    loop = bench.loop()
    commit = loop._commit
    failing(loop, "b1", MemoryError())
    bench.deliver(with_ids("b1", "i1"))
    steps(loop, 20)
    bench.deliver(labels("b2", "i1"))
    steps(loop, 2)
    loop._commit = commit
    assert replay_all(bench) == [True]
    steps(loop, 3)
    found = counts(bench)
    assert (found["n_predictions"], found["n_labelled"]) == (1, 1)


def test_entries_that_stand_alone_are_parked_too(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b1", [4]))
    loop.step()
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    bench.run(registry.delete(MODEL))
    remove = loop._housekeeping.remove_model
    loop._housekeeping.remove_model = lambda *args: (_ for _ in ()).throw(MemoryError())
    steps(loop, 20)
    loop._housekeeping.remove_model = remove
    assert [each.kind for each in parked_entries(bench.store)] == ["control"] and bench.keys_of()
    assert replay_all(bench) == [True]
    steps(loop, 3)
    assert bench.keys_of() == []


def test_a_deleted_model_leaves_no_parked_payload(bench):
    loop = parked_batch(bench)
    bench.run(Registry(bench.inbox.client, bench.inbox.keys).delete(MODEL))
    steps(loop, 3)
    assert parked_ids(bench) == [] and bench.keys_of() == []


@pytest.mark.parametrize("spoil", ["versions", "slices", "tallies", "letters"])
def test_a_rejected_commit_has_written_nothing(bench, spoil):
    """Else its retries would add to what its first try has written."""
    bench.put_model()
    keys = bench.store.keys.of_model(MODEL.key)
    model = (MODEL.key, MODEL.generation)
    commit = Commit(keys)
    commit.set_fields(f"{keys.tag}:pane", {"sums": b"1"})
    commit.add_numbers(f"{keys.tag}:other", {"n": 1})
    commit.set_fields(keys.versions(*model, ""), {"0": "t"})
    commit.add_member(keys.slices(*model), "")
    commit.add_numbers(keys.tallies(*model), {"records": 1})
    commit.dead_letter("0-1", "why")
    if spoil == "tallies":
        bench.client.hset(keys.tallies(*model), "records", "many")
    else:
        bench.client.set({"letters": keys.dead_letters, "versions": keys.versions(*model, ""),
                          "slices": keys.slices(*model)}[spoil], "of another type")  # fmt: skip
    with pytest.raises(ResponseError):
        commit.send(bench.store, b"0", b"a")
    assert not bench.client.exists(f"{keys.tag}:pane", f"{keys.tag}:other", keys.cursor)


def test_a_pane_of_another_type_parks_its_batch_alone(bench):
    """End to end: the store itself rejects, and the state of the neighbours stays exact."""
    bench.put_model()
    loop = bench.loop()
    versions = loop.keys.versions(MODEL.key, MODEL.generation, "site:A")
    bench.client.set(versions, "of another type")
    for i in range(3):
        bench.deliver(delivery(f"b{i}", [i], slices={"site": np.array(["A" if i == 1 else "B"])}))
    steps(loop)
    assert [each.batch_id for each in parked_entries(bench.store)] == ["b1"]
    assert bench.pane().numbers == pane_of([0, 2]).numbers
    bench.client.delete(versions)
    assert replay_all(bench) == [True]
    steps(loop, 3)
    assert (
        bench.pane().numbers == pane_of(range(3)).numbers
        and bench.pane("site:A").numbers == pane_of([1]).numbers
    )


def test_an_entry_that_cannot_even_be_read_is_parked_unread(bench):
    """Its payload needs more memory than there is: reading it fails, also alone."""
    bench.put_model()
    loop = bench.loop()
    for number in range(3):
        bench.deliver(delivery(f"b{number}", [number + 1]))
    [_, (large, _), _] = bench.client.xrange(loop.keys.stream)
    xread, failed = loop._node.xread, []

    def without_memory(streams, count, block):
        found = xread(streams, count=count, block=block)
        if any(entry_id == large for _, entries in found for entry_id, _ in entries):
            failed.append(count)
            raise MemoryError
        return found

    loop._node.xread = without_memory
    steps(loop)
    assert failed.count(1) == MAX_ATTEMPTS + 1  # the first one only tells that it fails alone
    [letter] = parked_entries(bench.store)
    assert letter.batch_id == "b1" and "MemoryError" in letter.why
    assert bench.pane().numbers == pane_of([1, 3]).numbers
    assert bench.run(bench.inbox.record(MODEL.key, "b1")).status == "parked"
    assert bench.cursor()["out"] == bench.client.get(loop.keys.bytes_in).decode()
    loop._node.xread = xread
    assert replay_all(bench) == [True]
    steps(loop, 5)
    assert bench.pane().numbers == pane_of([1, 2, 3]).numbers


def test_a_failing_housekeeping_is_no_entrys_failure(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b1", [1]))
    loop._reader.count = 1

    def without_memory(progress):
        raise MemoryError

    loop._housekeeping.run = without_memory
    for _ in range(2 * MAX_ATTEMPTS):
        loop._step_or_reload()
    assert loop._attempts.spent(Cursor()) is None and bench.client.xlen(loop.keys.stream) == 1


def test_the_parked_bytes_are_bounded_and_the_partition_waits(bench):
    bench.put_model()
    loop = bench.loop()
    loop._parking._limit_bytes = 10
    failing(loop, "b1", MemoryError())
    for number in range(3):
        bench.deliver(delivery(f"b{number}", [number + 1]))
    steps(loop, 30)
    assert parked_entries(bench.store) == [] and bench.client.xlen(loop.keys.stream) == 2
    loop._parking._limit_bytes = bench.settings.parked_bytes
    steps(loop)
    assert [each.batch_id for each in parked_entries(bench.store)] == ["b1"]
    assert bench.pane().numbers == pane_of([1, 3]).numbers


class TestAttempts:
    def test_pauses_grow_to_a_bound(self, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.1)
        monkeypatch.setattr(attempts, "MAX_PAUSE_S", 5.0)
        each = Attempts()
        each.failed(["1-0"], MemoryError(), Cursor())
        pauses = [each.failed(["1-0"], MemoryError(), Cursor()) for _ in range(MAX_ATTEMPTS)]
        assert pauses == sorted(pauses) and pauses[0] == 0.1 and pauses[-1] == 5.0
        assert each.spent(Cursor()) == ("1-0", "MemoryError: ")

    def test_a_failure_of_reading_alone_is_no_users(self):
        each = Attempts()
        for _ in range(3 * MAX_ATTEMPTS):
            each.failed([], MemoryError(), Cursor())
        each.failed(["1-0"], MemoryError(), Cursor())
        assert each.spent(Cursor()) is None
        assert each.is_alone("1-0", Cursor()) and not each.is_alone("1-1", Cursor())


class TestCommand:
    """`python -m workers.ingest.parked`."""

    @pytest.fixture
    def environment(self, bench, monkeypatch):
        for name, value in {"CALIBRANT_REDIS_URL": bench.settings.redis_url, "CALIBRANT_PARTITIONS": "2",
                            "CALIBRANT_NAMESPACE": bench.settings.namespace}.items():  # fmt: skip
            monkeypatch.setenv(name, value)

    def said(self, capsys):
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    def test_lists_and_replays(self, bench, environment, capsys):
        loop = parked_batch(bench)
        assert parked.main([]) == 0
        [line] = self.said(capsys)
        assert line["batch_id"] == "b1" and line["kind"] == "predictions"
        assert parked.main(["replay", line["id"]]) == 0
        assert parked.main(["replay", line["id"]]) == 1
        assert [each["replayed"] for each in self.said(capsys)] == [True, False]
        steps(loop, 3)
        assert bench.pane().numbers == pane_of([1, 2, 3]).numbers

    def test_replays_all(self, bench, environment, capsys):
        loop = parked_batch(bench)
        assert parked.main(["replay", "--all"]) == 0
        steps(loop, 3)
        assert bench.merged("b1").status == "merged"

    @pytest.mark.parametrize("name", ["7:1-0", "x", "0:1-0"])
    def test_an_unknown_id_is_reported(self, bench, environment, capsys, name):
        assert Store(bench.settings).client.ping()
        assert parked.main(["replay", name]) == 1
        assert self.said(capsys) == [{"id": name, "replayed": False}]
