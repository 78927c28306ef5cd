"""Decisions about a model in the index of statuses: a promotion, a change of the alarm and of the settings; new data are none."""

from __future__ import annotations

import dataclasses

import pytest

from calibrant_server.workers.store.frozen_maps import MapVersions, PromotedMap
from calibrant_server.workers.store.key_names import LAST_CHANGE
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.status_index import UNKNOWN_STATUS, IndexedStatus, decisions_in
from tests.workers.driving import MODEL


@pytest.fixture
def registry(bench):
    return Registry(bench.inbox.client, bench.inbox.keys)


def decisions(bench, model):
    return decisions_in(state(bench, model))


def state(bench, model):
    [(found, _)] = bench.run(bench.inbox.statuses.read([model]))
    return found


def promote(bench, model, promotion):
    maps = MapVersions(bench.inbox.client, bench.inbox.keys)
    bench.run(maps.add(model, "a", b"{}", b"{}"))
    new = PromotedMap(model.generation, promotion, b'{"version": 1}')
    bench.run(maps.promote(model, 1, new, b'{"version": 1}'))


def test_an_entry_has_the_decisions_that_it_was_computed_from(bench, registry):
    model = bench.run(registry.put(MODEL, None))
    entry = IndexedStatus(state(bench, model), 1.0, UNKNOWN_STATUS)
    bench.run(bench.inbox.statuses.write({model.key: (model, entry)}))
    [(_, stored)] = bench.run(bench.inbox.statuses.read([model]))
    assert stored == entry and stored.decisions == decisions(bench, model)


def test_a_promotion_a_change_of_the_alarm_and_of_the_settings_are_decisions(bench, registry):
    model = bench.run(registry.put(MODEL, None))
    keys = bench.inbox.keys.of(model)
    found = [(decisions(bench, model), state(bench, model))]
    for promotion in (1, 2):
        promote(bench, model, promotion)
        found.append((decisions(bench, model), state(bench, model)))
    name = keys.detectors(model.key, model.generation)
    bench.run(bench.inbox.client.hset(name, LAST_CHANGE, b"acknowledged"))
    found.append((decisions(bench, model), state(bench, model)))
    changed = dataclasses.replace(model, revision=model.revision + 1)
    found.append((decisions(bench, changed), state(bench, changed)))
    assert len({each for each, _ in found}) == len({each for _, each in found}) == 5


def test_new_data_change_the_state_and_are_no_decision(bench, registry):
    model = bench.run(registry.put(MODEL, None))
    before = decisions(bench, model), state(bench, model)
    name = bench.inbox.keys.of(model).versions(model.key, model.generation, "")
    bench.run(bench.inbox.client.hset(name, LAST_CHANGE, b"a commit"))
    assert decisions(bench, model) == before[0] and state(bench, model) != before[1]
