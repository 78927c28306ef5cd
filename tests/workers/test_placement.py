"""Partitions of models: new ones go where the load is least, all processes agree, and everything finds them there."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import calibrant_server
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.lifecycle.transfer import export_lines
from calibrant_server.workers.store import placement
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_places import ConfigReader
from calibrant_server.workers.store.placement import Placement, Survey, least_loaded, rates_since
from calibrant_server.workers.store.registry import Registry
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery

N = 8
NEW = replace(MODEL, generation="", revision=0)


@pytest.fixture
def many(settings):
    """A store of some partitions."""
    with Bench(settings.replace(partitions=N)) as bench:
        yield bench


@pytest.fixture
def registry(many):
    return Registry(many.inbox.client, many.inbox.keys)


def elsewhere(bench, registry, n=1):
    """Models that are not at home."""
    found = []
    for i in range(100):
        model = bench.run(registry.put(replace(NEW, model=f"e{i}"), None))
        if model.partition != bench.store.keys.partition_of(model.key):
            found.append(model)
        if len(found) == n:
            return found
    raise AssertionError("all are at home")


def test_a_hundred_models_are_spread_evenly(many, registry):
    made = [many.run(registry.put(replace(NEW, model=f"m{i}"), None)) for i in range(100)]
    stored = [many.client.hlen(many.store.keys.partition(n).models) for n in range(N)]
    assert sorted(stored) == [12] * 4 + [13] * 4
    assert Counter(each.partition for each in made) == dict(enumerate(stored))


def test_two_services_that_create_the_same_models_agree(many, settings):
    """Each at its own time between reading the loads and creating the model."""

    async def create(inbox, i):
        registry = Registry(inbox.client, inbox.keys)
        await asyncio.gather(
            registry.put(replace(NEW, model=f"m{i}"), None),
            inbox.enqueue(delivery(f"b{id(inbox)}", [i], replace(NEW, model=f"n{i}"), create=True)),
            return_exceptions=True,
        )

    async def both():
        async with Inbox(many.settings, ingest_deadline_s=PATIENCE_S) as other:
            for i in range(20):
                await asyncio.gather(create(many.inbox, i), create(other, i))

    many.run(both())
    names = [
        name.decode()
        for number in range(N)
        for name in many.client.hkeys(many.store.keys.partition(number).models)
    ]
    assert sorted(names) == sorted(f"default/{kind}{i}" for kind in "mn" for i in range(20))
    registry = Registry(many.inbox.client, many.inbox.keys)
    assert all(many.run(registry.get("default", f"m{i}")) for i in range(20))
    # Both batches of each model are in the stream of its partition.
    lengths = Counter()
    for i in range(20):
        lengths[many.run(registry.get("default", f"n{i}")).partition] += 2
    stored = {n: many.client.xlen(many.store.keys.partition(n).stream) for n in range(N)}
    assert {n: length for n, length in stored.items() if length} == dict(lengths)


def test_a_request_that_failed_after_the_record_is_completed_by_the_next(many, registry):
    number = many.run(Placement(many.inbox.client, many.inbox.keys).place("default/m"))
    assert many.run(registry.get("default", "m")) is None
    assert many.run(registry.count("default")) == 0
    assert many.run(registry.put(NEW, None)).partition == number


def test_whether_a_tenant_may_have_another_model_needs_names_only_near_the_limit(many, registry):
    for tenant, n_models in (("default", 3), ("other", 4)):
        for number in range(n_models):
            many.run(registry.put(replace(NEW, tenant=tenant, model=f"m{number}"), None))

    def names_read():
        return many.client.info("commandstats").get("cmdstat_hkeys", {}).get("calls", 0)

    before = names_read()
    assert many.run(registry.has_fewer("default", 8))
    assert names_read() == before
    assert many.run(registry.has_fewer("default", 4))
    assert not many.run(registry.has_fewer("default", 3))
    assert many.run(registry.has_fewer("other", 5)) and not many.run(registry.has_fewer("other", 4))


def test_a_model_that_is_made_again_returns_to_its_partition(many, registry):
    [model] = elsewhere(many, registry)
    many.run(registry.delete(model))
    assert many.run(registry.get("default", model.model)) is None
    again = many.run(registry.put(replace(NEW, model=model.model), None))
    assert (again.partition, again.generation != model.generation) == (model.partition, True)


def test_models_of_earlier_versions_stay_where_they_are(many, registry):
    """A configuration without partition, and no record of its place."""
    stored = many.put_model()
    assert b"partition" not in stored.to_json()
    home = many.store.keys.partition_of(MODEL.key)
    assert many.run(registry.get("default", "m")) == stored
    assert many.run(Placement(many.inbox.client, many.inbox.keys).place(MODEL.key)) == home
    changed = many.run(registry.put(replace(stored, retention_s=9), stored.revision))
    assert many.store.keys.number_of(changed) == home
    assert json.loads(many.client.hget(many.store.keys.partition(home).models, MODEL.key)) == (
        json.loads(changed.to_json())
    )


def test_everything_finds_a_model_that_is_not_at_home(many, registry):
    [model] = elsewhere(many, registry)
    other = replace(model, retention_s=86_400 * 900)
    other = many.run(registry.put(other, model.revision))
    assert other.partition == model.partition
    many.engine()
    many.deliver(delivery("b1", [1, 2], other, event_times=None))
    assert many.merged("b1", other).status == "merged"
    # A process that meets the model for the first time.
    fresh = Registry(many.inbox.client, many.inbox.keys)
    assert many.run(fresh.get("default", model.model)) == other
    assert other in many.run(fresh.list("default"))
    with closing(Store(many.settings)) as store:
        reader = ConfigReader(store.client, store.keys)
        assert reader.read(model.key) == reader.read(model.key) == other
        assert reader.read("default/none") is None
    lines = many.run(
        _all(export_lines(many.inbox.client, many.inbox.keys, other, True, many.numerics))
    )
    assert "partition" not in lines[0]["configuration"]
    assert sum(line["type"] == "pane" for line in lines) == 1


async def _all(lines):
    return [line async for line in lines]


def test_a_partition_that_merges_much_gets_no_new_model(many, monkeypatch):
    monkeypatch.setattr(placement, "_RATES_AGE_S", 0.0)
    busy = many.store.keys.partition(3)
    placed = Placement(many.inbox.client, many.inbox.keys)
    many.client.hset(busy.cursor, "out", 1)
    many.run(placed.survey())
    many.client.hset(busy.cursor, "out", 1 << 40)
    survey = many.run(Placement(many.inbox.client, many.inbox.keys).survey())
    assert survey.rates[3] > placement.MIN_RATE
    # A process that starts later reads the rates of the survey before, as long as they are new.
    monkeypatch.setattr(placement, "_RATES_AGE_S", 1e9)
    later = Placement(many.inbox.client, many.inbox.keys)
    assert 3 not in [many.run(later.place(f"default/x{i}")) for i in range(40)]


def test_rates():
    before = {"at_s": 100.0, "merged": [0, 50], "rates": [1.0, 2.0]}
    assert rates_since(None, [5, 5], 100.0) == ([0.0, 0.0], True)
    assert rates_since(before, [9, 99], 105.0) == ([1.0, 2.0], False)
    assert rates_since(before, [100, 40], 120.0) == ([5.0, 0.0], True)
    assert rates_since(before, [100, 90], 50.0) == ([0.0, 0.0], True)


def test_a_little_merged_counts_less_than_a_model():
    assert least_loaded(Survey([1, 0], [0.0, 100.0])) == 1
    assert least_loaded(Survey([2, 1], [0.0, 1e7])) == 0


def test_only_the_directory_goes_by_the_name_of_a_model():
    """Everything else asks the configuration: a model that is not at home would be read at the wrong place."""
    root = Path(calibrant_server.__path__[0]) / "workers"
    allowed = {"keys.py", "registry.py", "placement.py", "move.py", "model_move.py"}
    found = [
        file.name
        for file in root.rglob("*.py")
        if file.name not in allowed
        and re.search(r"\b[kK]eys\.(of_model|partition_of)\(", file.read_text())
    ]
    assert found == []


def test_a_stored_configuration_names_its_partition():
    placed = replace(MODEL, partition=5)
    assert ModelConfig.from_json(placed.to_json()) == placed
    assert json.loads(placed.to_json())["partition"] == 5
