"""Side partitions that wait for each other, and a hot model whose export goes to another store."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from calibrant_server.workers.ingest import outbox
from calibrant_server.workers.ingest.deltas import DeltaName
from calibrant_server.workers.ingest.entries import RESTORE, IngestBatch
from calibrant_server.workers.lifecycle.transfer import export_lines
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, Bench
from tests.workers.ledger import pane_of
from tests.workers.test_side_partitions import loop_at, of_side, settle, spread

pytestmark = pytest.mark.one_server


@pytest.fixture
def bench(settings, monkeypatch):
    monkeypatch.setattr(outbox, "_POLL_S", 0.0)
    monkeypatch.setattr(outbox, "_POLL_FULL_S", 0.0)
    with Bench(settings.model_copy(update={"partitions": 3})) as bench:
        yield bench


def hot_pair(bench):
    """Two hot models; each uses the own partition of the other."""
    registry = Registry(bench.inbox.client, bench.store.keys)
    models = (replace(MODEL, model=f"m{i}", fill_partitions=3) for i in range(20))
    found = [bench.run(registry.put(model, None)) for model in models]
    first = found[0]
    return first, next(each for each in found if each.partition != first.partition)


def test_partitions_that_wait_for_each_other_go_on(bench, monkeypatch):
    """Both outboxes are full, and both streams begin with batches for the outbox: the deltas are behind them."""
    monkeypatch.setattr(outbox, "MAX_DELTAS", 2)
    pair = hot_pair(bench)
    loops = [loop_at(bench, model.partition) for model in pair]
    with monkeypatch.context() as patch:
        patch.setattr(outbox.Outbox, "run", lambda *_: None)
        for model, other, loop in zip(pair, pair[::-1], loops[::-1], strict=True):
            names = of_side(model, other.partition, 9)
            for name in names[:2]:
                bench.deliver(spread(model, name, [1]))
                loop.step()
            bench.deliver(*(spread(model, name, [1]) for name in names[2:]))
    for _ in range(30):
        for loop in loops:
            loop._step_or_reload()
    for model in pair:
        assert bench.pane(model=model).numbers == pane_of([1] * 9).numbers
    assert not any(bench.client.exists(loop.keys.outbox_index) for loop in loops)


def test_a_full_partition_for_which_none_waits_stops(bench, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_DELTAS", 2)
    model, other = hot_pair(bench)
    side = loop_at(bench, other.partition)
    for name in of_side(model, side.partition, 5):
        bench.deliver(spread(model, name, [1]))
        side.step()
    assert bench.client.hlen(side.keys.outbox_index) == 2


@pytest.mark.parametrize("older", [False, True], ids=["this version", "an older one"])
def test_deltas_of_another_store_count_nothing_here(bench, monkeypatch, older):
    """The model comes from a store whose side partitions had made more deltas than those of this one."""
    there, _ = hot_pair(bench)
    own = bench.store.keys.of(there).marks(there.key, there.generation)
    their_marks = {"source:s": "5"}
    for partition in range(3):
        name = DeltaName(partition, 40)
        their_marks |= {name.merged_field: "40", f"source:{name.source}": "41"}
    bench.client.hset(own, mapping=their_marks)

    async def lines():
        return [
            each async for each in export_lines(bench.inbox.client, bench.store.keys, there, False)
        ]

    [marks] = [each for each in bench.run(lines()) if each["type"] == "marks"]
    assert marks["marks"] == {"source:s": "5"}
    if older:
        marks = {"type": "marks", "marks": their_marks}
    with Bench(
        bench.settings.model_copy(update={"namespace": f"{bench.settings.namespace}x"})
    ) as new:
        registry = Registry(new.inbox.client, new.store.keys)
        model = new.run(
            registry.restore(replace(there, model="m", side_partitions=[], importing="x"))
        )
        payload = json.dumps(marks).encode()
        new.deliver(IngestBatch.of(model, "import", RESTORE, payload, b"", 0))
        own = new.loop(model=model)
        for _ in range(3):
            own.step()
        plain = replace(model, importing=None, fill_partitions=1)
        new.run(registry.finish_import(model, plain, b""))
        hot = new.run(registry.put(replace(plain, fill_partitions=3), plain.revision))
        names = of_side(hot, n=5)
        new.deliver(*(spread(hot, name, [2]) for name in names))
        settle(new, hot)
        assert new.pane(model=hot).numbers == pane_of([2] * 5).numbers
