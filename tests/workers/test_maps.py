"""Frozen maps in the store: versions once and whole, one promotion after the other, nothing left of a deleted model."""

from __future__ import annotations

import asyncio
import json

import pytest

from calibrant_server.workers.ingest.entries import IngestEntry
from calibrant_server.workers.store.frozen_maps import (
    MAX_PROMOTIONS,
    MAX_VERSIONS,
    MapVersions,
    NoRoom,
    NoSuchMap,
    NoSuchModel,
    PromotedMap,
    PromotionConflict,
)
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, eventually


@pytest.fixture
def maps(bench):
    return MapVersions(bench.inbox.client, bench.inbox.keys)


@pytest.fixture
def model(bench):
    return bench.run(Registry(bench.inbox.client, bench.inbox.keys).put(MODEL, None))


def frozen(bench, maps, model, *names):
    """Freeze a version a name."""
    text = [json.dumps({"name": name}).encode() for name in names]
    return [
        bench.run(maps.add(model, name, body, body)) for name, body in zip(names, text, strict=True)
    ]


def promoted(maps, model, number, promotion):
    new = PromotedMap(model.generation, promotion, b'{"version": %d}' % number)
    return maps.promote(model, number, new, b'{"version": %d}' % number)


def test_versions_are_numbered_and_a_repeated_fit_has_the_number_it_had(bench, maps, model):
    assert frozen(bench, maps, model, "a", "b", "a") == [(1, True), (2, True), (1, False)]
    assert bench.run(maps.version(model, 2)) == {"version": 2, "name": "b"}
    with pytest.raises(NoSuchMap):
        bench.run(maps.version(model, 3))
    versions, promotions = bench.run(maps.listed(model))
    assert [each["version"] for each in versions] == [1, 2] and promotions == []


def test_of_many_promotions_at_once_one_is_made(bench, maps, model):
    frozen(bench, maps, model, *"abcdefgh")

    async def race():
        return await asyncio.gather(
            *(promoted(maps, model, number, 1) for number in range(1, 9)), return_exceptions=True
        )

    results = bench.run(race())
    assert results.count(None) == 1
    assert sum(isinstance(each, PromotionConflict) for each in results) == 7
    current = bench.run(maps.current(model))
    assert current.promotion == 1
    assert json.loads(current.body)["version"] == results.index(None) + 1
    _, promotions = bench.run(maps.listed(model))
    assert promotions == [{"promotion": 1, "version": results.index(None) + 1}]


def test_only_versions_that_are_there_are_promoted(bench, maps, model):
    with pytest.raises(NoSuchMap):
        bench.run(promoted(maps, model, 1, 1))
    assert bench.run(maps.current(model)) is None


def test_old_promotions_are_forgotten_and_versions_are_rejected_at_the_bound(bench, maps, model):
    frozen(bench, maps, model, "a")
    for promotion in range(1, MAX_PROMOTIONS + 4):
        bench.run(promoted(maps, model, 1, promotion))
    _, promotions = bench.run(maps.listed(model))
    assert len(promotions) == MAX_PROMOTIONS
    assert promotions[-1]["promotion"] == MAX_PROMOTIONS + 3
    frozen(bench, maps, model, *(f"f{i}" for i in range(2, MAX_VERSIONS + 1)))
    with pytest.raises(NoRoom):
        frozen(bench, maps, model, "one more")


def test_nothing_is_left_of_a_deleted_model_and_nothing_is_written_for_it(bench, maps, model):
    registry = Registry(bench.inbox.client, bench.inbox.keys)
    frozen(bench, maps, model, "a", "b")
    bench.run(promoted(maps, model, 1, 1))
    bench.run(registry.delete(model))
    assert bench.run(maps.current(model)) is None
    for write in (promoted(maps, model, 2, 2), maps.add(model, "c", b"{}", b"{}")):
        with pytest.raises(NoSuchModel):
            bench.run(write)
    again = bench.run(registry.put(MODEL, None))
    assert bench.run(maps.listed(again)) == ([], [])
    with pytest.raises(NoSuchModel):
        bench.run(promoted(maps, model, 2, 1))
    bench.engine()
    name = bench.store.keys.of(model).map_versions(model.key, model.generation)
    eventually(lambda: not bench.client.exists(name))


def test_a_promotion_orders_the_alarm_to_restart(bench, maps, model):
    """In the same step: one order a promotion that was made, none for one that was rejected."""
    frozen(bench, maps, model, "a", "b")
    bench.run(promoted(maps, model, 2, 1))
    with pytest.raises(PromotionConflict):
        bench.run(promoted(maps, model, 1, 1))
    keys = bench.store.keys.of(model)
    [(name, fields)] = bench.client.xrange(keys.stream)
    order = IngestEntry.from_fields(name.decode(), fields)
    assert json.loads(order.payload) == {"op": "promote", "map_version": "2"}
    assert int(bench.client.get(keys.bytes_in)) == order.n_bytes
