"""The index of statuses in a real store: an entry belongs to one state of one generation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant_server.workers.ingest.orders import delete_model
from calibrant_server.workers.store.status_index import IndexedStatus
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.test_alarm import CONFIG, Sealing, pane_of

ENTRY = {"status": "ok", "error": {"value": 0.25}, "reason": None}


def read(bench, *configs):
    return bench.run(bench.inbox.statuses.read(configs))


def write(bench, config, state):
    entry = IndexedStatus(state, 5.0, ENTRY)
    bench.run(bench.inbox.statuses.write({config.key: (config, entry)}))


def test_a_commit_outdates_the_entry(bench: Bench):
    bench.put_model()
    [(state, entry)] = read(bench, MODEL)
    assert entry is None
    write(bench, MODEL, state)
    assert read(bench, MODEL) == [(state, IndexedStatus(state, 5.0, ENTRY))]
    bench.deliver(delivery("one"))
    bench.loop().step()
    [(changed, entry)] = read(bench, MODEL)
    assert changed != state and entry is not None and entry.state == state


def test_entries_are_those_of_their_models(bench: Bench):
    others = [replace(MODEL, model=f"other-{number}") for number in range(20)]
    for number, each in enumerate(others):
        if number % 2:
            write(bench, each, "s")
    found = read(bench, *others)
    assert [entry is not None for _, entry in found] == [number % 2 == 1 for number in range(20)]
    assert len({state for state, _ in found}) == 1


def test_another_generation_or_revision_is_another_state(bench: Bench):
    [(state, _)] = read(bench, MODEL)
    write(bench, MODEL, state)
    [(other, entry)] = read(bench, replace(MODEL, revision=MODEL.revision + 1))
    assert other != state and entry is not None
    [(other, entry)] = read(bench, replace(MODEL, generation="later"))
    assert other != state and entry is None


def test_no_models_need_no_read(bench: Bench):
    assert read(bench) == []


def test_a_deleted_model_leaves_no_entry_and_evidence_is_current(bench: Bench):
    sealing = Sealing(bench)
    write(bench, CONFIG, "s")
    rng = np.random.default_rng(12)
    sealing.seal(0, {"": pane_of(rng), "site:A": pane_of(rng, 50)})
    for day in (1, 2):
        sealing.seal(day, {"": pane_of(rng, slope=0.4), "site:A": pane_of(rng, 50)})
        summary = bench.run(bench.inbox.alarms.summaries())[CONFIG.key]
        detectors = sealing.held().detectors
        assert summary["p"] == {name: detectors[name].p for name in ("score|", "score|site:A")}
    sealing.node.hdel(sealing.keys.models, CONFIG.key)
    entry = delete_model(CONFIG.key, CONFIG.generation)
    sealing.node.xadd(sealing.keys.stream, entry.to_fields())
    bench.loop(model=CONFIG).step()
    assert sealing.node.hgetall(sealing.keys.statuses) == {}
