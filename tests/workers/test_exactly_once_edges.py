"""Rare orders of events in which a batch could count twice, a cohort lose evidence or a partition stop."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from calibrant import Batch
from calibrant_server.workers.health import read_health
from calibrant_server.workers.ingest.entries import ALARM, PREDICTIONS, RESTORE, IngestBatch
from calibrant_server.workers.ingest.orders import alarm_order
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.lifecycle import removal, sealing
from calibrant_server.workers.lifecycle.levels import GONE, SEALED
from calibrant_server.workers.lifecycle.transfer import MARKS, RECORD, UNIT
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.watermarks import Watermarks, fields_of
from tests.workers.driving import MODEL, SUMS, delivery
from tests.workers.ledger import pane_of
from tests.workers.test_parked import failing, parked_entries, replay_all, steps
from tests.workers.test_transient_errors import no_pauses, with_ids

__all__ = ["no_pauses"]
pytestmark = pytest.mark.one_server
HOUR_S, DAY_S = 3600, 86_400
START_S = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def test_a_parked_entry_whose_id_was_merged_meanwhile_is_dropped_by_its_replay(bench):
    """Its record had expired before it was parked, and its client sent it again: two entries, one count."""
    bench.put_model()
    loop = bench.loop()
    commit = loop._commit
    bench.deliver(delivery("b1", [5]))
    bench.client.delete(loop.keys.record(MODEL.key, MODEL.generation, "b1"))
    bench.deliver(delivery("b1", [5]))
    assert bench.client.xlen(loop.keys.stream) == 2
    failing(loop, "b1", MemoryError(), n=11)
    steps(loop)
    loop._commit = commit
    assert len(parked_entries(bench.store)) == 1
    assert bench.merged("b1").status == "merged"
    assert bench.pane().numbers == pane_of([5]).numbers
    assert replay_all(bench) == [True]
    assert bench.merged("b1").status == "merged"
    steps(loop, 3)
    assert bench.pane().numbers == pane_of([5]).numbers and bench.cursor()["n"] == "1"
    assert bench.merged("b1").status == "merged" and not parked_entries(bench.store)


def test_a_replayed_batch_without_its_first_record_reports_its_rows(bench):
    bench.put_model()
    loop = bench.loop()
    commit = loop._commit
    bench.deliver(delivery("b1", [5, 6]))
    bench.client.delete(loop.keys.record(MODEL.key, MODEL.generation, "b1"))
    failing(loop, "b1", MemoryError())
    steps(loop)
    loop._commit = commit
    assert replay_all(bench) == [True]
    steps(loop, 3)
    receipt = bench.merged("b1")
    assert (receipt.status, receipt.accepted, receipt.rejected) == ("merged", 2, 0)


class TestDamagedCohorts:
    """A cohort of a day, in panes of an hour, of which one is damaged."""

    MODEL = replace(MODEL, label_horizon_s=HOUR_S, alarm={"tolerance": 0.0, "bucket": "P1D"})

    @pytest.fixture
    def loop(self, bench):
        bench.numerics = SUMS
        bench.put_model(self.MODEL)
        loop = bench.loop()
        loop._housekeeping._next_at = float("inf")
        for hour in range(4):
            at = f"2026-01-01T0{hour}:00:00Z"
            rows = {"probabilities": [[0.2, 0.5, 0.3]] * 3, "event_times": [at] * 3, "labels": [[0, 1]] * 3,
                    "slices": {"site": ["A", "B", "B"]}}  # fmt: skip
            batch = Batch.from_columns(rows).batch
            bench.deliver(
                IngestBatch.of(
                    MODEL, f"b{hour}", PREDICTIONS, batch.pack(), batch.digest(), batch.n
                )
            )
        while bench.client.xlen(loop.keys.stream):
            loop.step()
        return loop

    def damage(self, bench, loop, hour, slice_=""):
        name = loop.keys.pane(PaneKey(MODEL.key, MODEL.generation, slice_, START_S + hour * HOUR_S))
        intact = bench.client.hgetall(name)
        bench.client.hset(name, sorted(intact)[0], b"damaged")
        return name, intact

    def sealed_to(self, bench, loop):
        marks = bench.client.hmget(loop.keys.marks(MODEL.key, MODEL.generation), fields_of(""))
        return Watermarks.read(marks).sealed_to

    def partial_cohort(self, bench, loop):
        return bench.client.hexists(loop.keys.partial_cohorts, f"{MODEL.key}|{MODEL.generation}")

    def cohort_results(self, bench, loop):
        return bench.client.hkeys(loop.keys.detectors(MODEL.key, MODEL.generation))

    def test_detectors_wait_for_the_panes_that_cannot_be_sealed(self, bench, loop):
        name, intact = self.damage(bench, loop, 2)
        loop._housekeeping.apply(SEALED)
        assert self.sealed_to(bench, loop) == START_S + 2 * HOUR_S
        assert self.partial_cohort(bench, loop) and not self.cohort_results(bench, loop)
        bench.client.hset(name, mapping=intact)
        loop._housekeeping.apply(SEALED)
        assert not self.partial_cohort(bench, loop) and self.cohort_results(bench, loop)

    def test_a_damaged_record_of_one_model_leaves_its_cohort_unsealed_and_is_reported(
        self, bench, loop, monkeypatch
    ):
        hook = []

        def damaged(*args):
            if not hook:
                raise RecordError("a record cannot be read")

        monkeypatch.setattr(sealing, "take_sealed", damaged)
        assert loop._housekeeping.apply(SEALED) == 0 and self.sealed_to(bench, loop) == 0
        assert read_health(bench.store, "").unsealed_models == 1
        hook.append(1)
        assert loop._housekeeping.apply(SEALED) == 4
        assert read_health(bench.store, "").unsealed_models == 0

    def test_without_a_horizon_nothing_waits_to_be_sealed(self, bench, loop):
        self.damage(bench, loop, 2)
        loop._housekeeping.apply(SEALED)
        assert read_health(bench.store, "").unsealed_models == 1
        bench.put_model(replace(self.MODEL, label_horizon_s=None))
        loop._housekeeping.apply(SEALED)
        assert read_health(bench.store, "").unsealed_models == 0

    def test_panes_that_are_being_removed_are_not_sealed(self, bench, loop, monkeypatch):
        """A worker dies between two of the commits that remove a cohort's panes."""
        self.damage(bench, loop, 0)
        bench.put_model(replace(self.MODEL, retention_s=DAY_S))
        loop._housekeeping.apply(SEALED)
        monkeypatch.setattr(removal, "_A_COMMIT", 1)
        remove, n_removed = loop._housekeeping._removal._remove, []

        def dying(panes):
            if len(n_removed) == 5:
                raise KeyboardInterrupt
            n_removed.append(1)
            remove(panes)

        loop._housekeeping._removal._remove = dying
        with pytest.raises(KeyboardInterrupt):
            loop._housekeeping.apply(GONE)
        loop = bench.loop()
        loop._housekeeping.apply(SEALED)
        sealed = [each for each in bench.client.smembers(loop.keys.slices(MODEL.key, MODEL.generation))
                  if each.decode().startswith(sealed_slice("site:"))]  # fmt: skip
        assert sealed == []


@pytest.mark.parametrize("where", ["remove_model", "order"])
def test_an_unexpected_error_about_a_lone_entry_parks_it(bench, where, monkeypatch):
    bench.put_model()
    loop = bench.loop()

    def broken(*args):
        raise ValueError("damaged state")

    if where == "remove_model":
        loop._housekeeping.remove_model = broken
        bench.run(Registry(bench.inbox.client, bench.inbox.keys).delete(MODEL))
        other = replace(MODEL, generation="g2", revision=2)
    else:
        monkeypatch.setitem(loop._sole._apply, ALARM, broken)
        bench.client.xadd(
            loop.keys.stream, alarm_order(MODEL.key, MODEL.generation, {}).to_fields()
        )
        other = MODEL
    bench.put_model(other)
    bench.deliver(delivery("b1", [4], model=other))
    for _ in range(40):
        if not bench.client.xlen(loop.keys.stream):
            break
        loop._step_or_reload()
    assert bench.merged("b1", model=other).status == "merged"
    assert len(parked_entries(bench.store)) == 1
    assert bench.dead_letters() == []


def test_an_import_that_fails_half_way_leaves_none_of_its_lines(bench):
    """The entry is a dead letter, and the cursor passes it in a commit without the lines before the damaged one."""
    model = bench.put_model(replace(MODEL, importing="digest"))
    unit = {"type": UNIT, "unit": "u", "ids": '["a"]'}
    marks = {"type": MARKS, "marks": {"sealed_to": 3}}
    damaged = {"type": RECORD, "id": "a", "packed": "AAAA"}
    payload = b"\n".join(json.dumps(line).encode() for line in (unit, marks, damaged))
    bench.deliver(IngestBatch.of(model, "piece", RESTORE, payload, b"d" * 16, n_accepted=3))
    loop = bench.loop()
    steps(loop, 5)
    [letter] = bench.dead_letters()
    assert not bench.client.xlen(loop.keys.stream) and b"RecordError" in letter[b"why"]
    assert bench.merged("piece").status == "dead_lettered"
    name = (model.key, model.generation)
    assert not bench.client.exists(loop.keys.unit_members(*name), loop.keys.marks(*name))


def test_a_lease_is_returned_where_the_cursor_cannot_be_left(bench, monkeypatch):
    """Else its worker would keep it without serving the partition, and no other one may take it."""
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b1", [4]))
    [(first, _)] = bench.client.xrange(loop.keys.stream)
    bench.client.hset(loop.keys.cursor, "chi", first)
    loop._fencing.reload()
    returned = []

    def rejected():
        raise ConnectionError("NOREPLICAS")

    monkeypatch.setattr(loop._leases, "give_back", returned.append, raising=False)
    monkeypatch.setattr(loop._fencing, "leave", rejected)
    with pytest.raises(ConnectionError):
        loop.close()
    assert returned == [loop.partition] and not loop.is_open


def test_an_unexpected_error_in_the_danger_zone_parks_the_entry(bench):
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b1", [4]), delivery("b2", [5]))
    (first, _), _ = bench.client.xrange(loop.keys.stream)
    bench.client.hset(loop.keys.cursor, "chi", first)
    loop._fencing.reload()

    commit = loop._commit

    def broken(group):
        if [item.id for item in group.items] == [first.decode()]:
            raise AssertionError("this entry cannot be written")
        return commit(group)

    loop._commit = broken
    steps(loop, 40)
    assert not bench.client.xlen(loop.keys.stream) and bench.dead_letters() == []
    assert bench.cursor()["n"] == "1" and len(parked_entries(bench.store)) == 1


def test_a_damaged_record_keeps_no_other_from_expiring(bench):
    bench.numerics = Numerics()
    bench.put_model()
    loop = bench.loop()
    loop._housekeeping._next_at = float("inf")
    for name in ("i1", "i2"):
        bench.deliver(with_ids(f"b{name}", name, event_times=["2026-01-01T00:00:00Z"]))
        loop.step()
    shard = loop.keys.record_hash(MODEL.key, MODEL.generation, "i1")
    bench.client.hset(shard, "i1", b"damaged")
    bench.put_model(replace(MODEL, retention_s=DAY_S))
    loop._housekeeping.apply(GONE)
    for _ in loop._housekeeping.old_records():
        pass
    left = loop.keys.record_hash(MODEL.key, MODEL.generation, "i2")
    assert not bench.client.hexists(left, "i2") and bench.client.hexists(shard, "i1")
