"""States and cached results of several models at once: the same as those of each."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.queries.query import Needs
from calibrant_server.workers.queries.stored_results import StatedQuery
from calibrant_server.workers.queries.versions import PANES
from calibrant_server.workers.store.keys import LAST_CHANGE
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.test_compute import KINDS, SumsQuery

WITH_ALARM = Needs(panes="each", alarm=True)
EVER = Window(0, 1 << 32)
MODELS = [replace(MODEL, model=f"m{number}") for number in range(4)]


def states(bench: Bench):
    return bench.run(bench.inbox.results.states(MODELS))


def cached(bench: Bench, *queries: StatedQuery):
    return bench.run(bench.inbox.results.cached(queries))


def test_states_of_several_are_those_of_each(bench: Bench):
    for number, model in enumerate(MODELS):
        bench.put_model(model)
        bench.deliver(delivery("one", range(number + 1), model=model))
        bench.loop(model=model).step()
    # An alarm has a version of its own.
    keys = bench.store.keys.of_model(MODELS[1].key)
    bench.client.hset(keys.detectors(MODELS[1].key, MODELS[1].generation), LAST_CHANGE, "7")
    for _ in range(2):
        for model, state in zip(MODELS, states(bench), strict=True):
            alone = bench.run(bench.inbox.state(model, "", WITH_ALARM))
            panes = bench.run(bench.inbox.state(model, "", PANES))
            assert state.panes and state == replace(alone, reads_records=False)
            assert state.name(EVER) == alone.name(EVER)
            assert state.without_alarm().name(EVER) == panes.name(EVER)
    assert [bool(each.alarm) for each in states(bench)] == [False, True, False, False]
    before = [each.name(EVER) for each in states(bench)]
    bench.deliver(delivery("two", [9], model=MODELS[2]))
    bench.loop(model=MODELS[2]).step()
    after = [each.name(EVER) for each in states(bench)]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, True, False, True]


def test_states_without_models_or_data(bench: Bench):
    assert bench.run(bench.inbox.results.states([])) == []
    assert [each.panes for each in states(bench)] == [{}] * len(MODELS)


def test_cached_results_are_found_by_their_state(bench: Bench):
    bench.put_model()
    bench.engine(kinds=KINDS)
    bench.deliver(delivery("one", [1, 2]))
    bench.merged("one")
    [state] = bench.run(bench.inbox.results.states([MODEL]))
    version = state.without_alarm().name(EVER)
    known, other = SumsQuery(n=1), SumsQuery(n=2)
    rejected = SumsQuery(reject=True)
    computed = bench.run(bench.inbox.ask(known, MODEL, EVER, version=version))
    with pytest.raises(CalibrationInputError):
        bench.run(bench.inbox.ask(rejected, MODEL, EVER, version=version))
    found = cached(
        bench,
        *(StatedQuery(MODEL, query, EVER, version) for query in (other, known, rejected)),
        StatedQuery(MODEL, known, EVER, "another state"),
    )
    assert found == [None, computed.body, None, None]
    assert json.loads(computed.body)["total"] == 3
    assert cached(bench) == []
