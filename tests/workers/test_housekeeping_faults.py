"""One model whose keys the store rejects does not keep the others from ageing, and what is remembered of models is bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import redis

from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, SUMS, delivery, stored_pane
from tests.workers.test_tails import START, predictions, rows_at

AGEING = replace(MODEL, retention_s=7200)


@pytest.fixture
def loop(bench):
    """A loop with old panes of two models of one partition."""
    partition_of = bench.store.keys.partition_of
    others = (replace(AGEING, model=f"a{number}", generation="g2") for number in range(50))
    other = next(each for each in others if partition_of(each.key) == partition_of(AGEING.key))
    bench.other = bench.put_model(other)
    bench.put_model(AGEING)
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    for batch_id, model in (("b1", AGEING), ("b2", other)):
        bench.deliver(delivery(batch_id, [1], model=model, event_times=np.array([0])))
    while bench.client.xlen(loop.keys.stream):
        loop.step()
    return loop


def spoil(bench, loop, model):
    name = loop.keys.marks(model.key, model.generation)
    bench.client.delete(name)
    bench.client.set(name, "of another type")


@pytest.mark.parametrize("spoilt", ["other", "model"])
def test_a_lasting_rejection_concerns_its_model_alone(bench, loop, spoilt, caplog):
    bad, good = (bench.other, AGEING) if spoilt == "other" else (AGEING, bench.other)
    spoil(bench, loop, bad)
    assert loop._housekeeping.run()
    assert bench.starts(model=good) == [] and bench.starts(model=bad) != []
    assert f"housekeeping_failed model={bad.key} error=WRONGTYPE" in caplog.text
    bench.client.delete(loop.keys.marks(bad.key, bad.generation))
    loop._housekeeping.due_at = 0.0
    loop._housekeeping._sweep = None
    assert loop._housekeeping.run() and bench.starts(model=bad) == []


def test_panes_merged_into_a_day_before_a_rejection_are_not_filled_from_the_cache(bench):
    """The store rejects the second slice of the day; the first is a day by then, and its hour is cached no more."""
    bench.settings = bench.settings.replace(compact_after_s=3600)
    bench.numerics = SUMS
    bench.put_model()
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    bench.deliver(predictions(MODEL, "b0", rows_at(hour=3)))
    loop.step()
    hour = loop.keys.pane(PaneKey(MODEL.key, MODEL.generation, "site:A", START + 3 * 3600))
    bench.client.delete(hour)
    bench.client.set(hour, "of another type")
    loop._housekeeping.due_at = 0.0
    columns = rows_at(hour=3, n=1)
    del columns["slices"]
    bench.deliver(predictions(MODEL, "b1", columns))
    while bench.client.xlen(loop.keys.stream):
        loop.step()
    assert bench.starts() == [START]
    assert stored_pane(bench, "", START).counts["n_predictions"] == 4


def test_one_that_cannot_be_sealed_is_reported(bench, loop):
    sealed = replace(AGEING, label_horizon_s=60)
    bench.put_model(sealed)
    spoil(bench, loop, sealed)
    loop._housekeeping.run()
    assert bench.run(bench.inbox.troubles()).unsealed_models == 1


def test_a_state_of_the_store_ends_the_pass(bench, loop, monkeypatch):
    def read_only(*args):
        raise redis.exceptions.ReadOnlyError("You can't write against a read only replica.")

    monkeypatch.setattr(loop._housekeeping._removal, "drop_old_panes", read_only)
    with pytest.raises(redis.exceptions.ReadOnlyError):
        loop._housekeeping.run()


def test_a_deleted_model_is_forgotten(bench, loop):
    keeper = loop._housekeeping
    keeper.run()
    assert len(keeper._removal._removed_to) == 2
    bench.run(Registry(bench.inbox.client, bench.inbox.keys).delete(AGEING))
    while bench.client.xlen(loop.keys.stream):
        loop.step()
    keeper._sweep = None
    keeper.run()
    assert {name for name, _ in keeper._removal._removed_to} == {bench.other.key}
    assert {name for name, _ in keeper._walked} <= {bench.other.key}
