"""Housekeeping examines the models that are due or have changed, and no others."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from calibrant_server.workers.lifecycle import housekeeping
from calibrant_server.workers.lifecycle.levels import DueTimes, min_age_s, next_due_s, rules_of
from calibrant_server.workers.settings import EngineSettings
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, delivery

DAY_S, HOUR_S = 86_400, 3_600
N_MODELS, N_SLICES = 40, 5


@pytest.mark.parametrize(
    ("fields", "compact_after_s", "expected"),
    [
        ({}, 0, math.inf),
        ({}, 10 * DAY_S, 101 * DAY_S),
        ({"pane_s": DAY_S}, 10 * DAY_S, math.inf),
        ({"pane_s": 7 * HOUR_S}, 10 * DAY_S, math.inf),
        ({"retention_s": 30 * DAY_S}, 10 * DAY_S, 100 * DAY_S + HOUR_S),
        ({"label_horizon_s": 1800}, 0, 100 * DAY_S + 1800),
        ({"label_horizon_s": 1800, "retention_s": 900}, 0, 100 * DAY_S + 900),
    ],
    ids=str,
)
def test_panes_age_at_their_boundaries(fields, compact_after_s, expected):
    now_s = 100 * DAY_S + 10.0
    rules = rules_of(replace(MODEL, **fields), EngineSettings(compact_after_s=compact_after_s))
    assert next_due_s(rules, now_s, now_s) == expected
    if math.isfinite(expected):
        assert next_due_s(rules, expected, expected) > expected


@pytest.mark.parametrize(("pane_s", "days"), [(HOUR_S, 0), (7 * DAY_S, 6)])
def test_a_day_moves_to_files_when_its_last_pane_is_old_enough(pane_s, days):
    settings = EngineSettings(compact_after_s=0, cold_url="days", cold_after_s=3 * DAY_S)
    rules = rules_of(replace(MODEL, pane_s=pane_s), settings)
    assert min_age_s(rules) == (3 + days) * DAY_S
    assert next_due_s(rules, 100 * DAY_S + 10, 0) == 101 * DAY_S


def test_what_is_sealed_depends_on_what_has_been_merged():
    rules = rules_of(replace(MODEL, label_horizon_s=1800), EngineSettings(compact_after_s=0))
    late = next_due_s(rules, 100 * DAY_S, 99 * DAY_S + 10)
    assert late == 99 * DAY_S + 1800


def never_s(config):
    return math.inf


def test_a_model_is_due_until_it_was_examined_and_again_when_something_changed():
    times, a, b = DueTimes(), replace(MODEL, model="a"), replace(MODEL, model="b")
    nothing, of_b = {}, (b.key, b.generation)

    def due(models, changed, now_s):
        return times.due(models, changed, now_s, never_s)

    assert due([a, b], nothing, 0.0) == due([a, b], nothing, 1.0) == [a, b]
    times.done(a, 100.0)
    times.done(b, math.inf)
    assert due([a, b], nothing, 99.0) == []
    assert due([a, b], nothing, 100.0) == [a]
    assert due([a, b], {of_b: -math.inf}, 100.0) == [a, b]
    assert due([a, b], nothing, 100.0) == [a, b]
    times.done(b, math.inf)
    assert len(due([a, replace(b, revision=b.revision + 1)], nothing, 100.0)) == 2
    assert due([a, replace(b, generation="other")], nothing, 100.0) != []
    times.done(b, math.inf)
    assert due([a, b], None, 100.0) == [a, b]


def test_a_change_of_a_time_slice_that_has_not_reached_an_age_makes_no_model_due():
    times, name = DueTimes(), (MODEL.key, MODEL.generation)
    times.due([MODEL], {}, 1000.0, lambda config: 100.0)
    times.done(MODEL, math.inf)
    assert times.due([MODEL], {name: 901.0}, 1000.0, lambda config: 100.0) == []
    assert times.due([MODEL], {name: math.inf}, 1000.0, lambda config: 100.0) == []
    assert times.due([MODEL], {name: 900.0}, 1000.0, lambda config: 100.0) == [MODEL]


def test_everything_is_due_after_a_clock_was_set_back():
    times = DueTimes()
    times.due([MODEL], {}, 1000.0, never_s)
    times.done(MODEL, 5000.0)
    assert times.due([MODEL], {}, 1001.0, never_s) == []
    assert times.due([MODEL], {}, 500.0, never_s) == [MODEL]


@pytest.mark.parametrize("pause_s", [60.0, 0.0])
def test_passes_that_end_near_each_other_have_one_next_moment(pause_s):
    now = time.monotonic()
    moments = {housekeeping._end_of(pause_s) for _ in range(50)}
    assert all(now + pause_s * 11 / 12 <= each <= time.monotonic() + pause_s for each in moments)
    assert pause_s == 0.0 or len(moments) <= 2


@pytest.fixture
def idle(bench, monkeypatch):
    """A loop that has examined idle models with several slices, each time all that are due."""
    monkeypatch.setattr(housekeeping, "EXAMINE_S", PATIENCE_S)
    bench.settings = bench.settings.replace(compact_after_s=DAY_S)
    for number in range(N_MODELS):
        model = bench.put_model(replace(MODEL, model=f"idle-{number}"))
        keys = bench.store.keys.of(model)
        name = (model.key, model.generation)
        for slice_ in ("", *(f"site:{each}" for each in range(N_SLICES - 1))):
            bench.client.sadd(keys.slices(*name), slice_)
            bench.client.hset(keys.versions(*name, slice_), "0", "v")
    return bench


def calls(bench, command):
    return bench.client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def run(loop):
    loop._housekeeping.due_at = 0.0
    return loop._housekeeping.run()


def test_idle_models_cost_no_reads(idle):
    loop = idle.loop()
    assert len(loop._housekeeping._configs()) > 5
    run(loop)
    for _ in range(2):  # once more after its own commits
        run(loop)
    before = calls(idle, "hkeys")
    run(loop)
    # Buckets of expired records are looked up once in a pass.
    assert calls(idle, "hkeys") - before <= 1


def examined(loop):
    """Return a list to which models are added that are examined."""
    seen = []
    merge = loop._housekeeping._compaction.merge_days
    loop._housekeeping._compaction.merge_days = lambda config, *rest: (
        seen.append(config.model) or merge(config, *rest)
    )
    return seen


def merge(idle, loop, entry):
    idle.deliver(entry)
    loop._housekeeping.due_at = math.inf
    while idle.client.xlen(loop.keys.stream):
        loop.step()


def test_an_old_change_of_one_model_examines_that_one(idle):
    loop = idle.loop()
    for _ in range(3):
        run(loop)
    seen = examined(loop)
    run(loop)
    assert seen == []
    model = next(each for each in loop._housekeeping._configs())
    merge(idle, loop, delivery("late", [1], model=model, event_times=np.array([0])))
    run(loop)
    assert seen == [model.model]


def test_batches_for_the_present_time_examine_no_model(idle):
    loop = idle.loop()
    now = np.array([int(time.time() * 1e6)])
    for _ in range(3):
        run(loop)
    model = next(each for each in loop._housekeeping._configs())
    merge(idle, loop, delivery("first", [1], model=model, event_times=now))
    run(loop)
    seen = examined(loop)
    for number in range(3):
        merge(idle, loop, delivery(f"b{number}", [1], model=model, event_times=now))
        run(loop)
    assert seen == []


def test_a_worker_that_starts_scans_no_records_of_models_that_have_none(idle):
    for each in list(idle.loop()._housekeeping._configs()):
        idle.put_model(replace(each, retention_s=DAY_S))
    loop = idle.loop()
    before = calls(idle, "hscan")
    run(loop)
    while loop._housekeeping._sweep is not None:
        run(loop)
    # Only the members of units: one hash of each model.
    assert calls(idle, "hscan") - before <= N_MODELS
    assert len(loop._housekeeping._walked) > 5


def test_entries_are_merged_while_many_models_wait_for_their_examination(idle, monkeypatch):
    """As when the hours of all models of a partition end: each pass examines some, and none twice before all were."""
    monkeypatch.setattr(housekeeping, "EXAMINE_S", 0.0)
    loop = idle.loop()
    names = {config.model for config in loop._housekeeping._configs()}
    seen = examined(loop)
    model = next(each for each in loop._housekeeping._configs())
    for number in range(len(names)):
        loop._housekeeping.due_at = 0.0
        # Old data of the first model make it due again each time.
        idle.deliver(delivery(f"b{number}", [1], model=model, event_times=np.array([0])))
        loop.step()
        assert len(seen) == number + 1
        assert loop._housekeeping._sweep is not None
        while idle.client.xlen(loop.keys.stream):
            loop.step()
    assert sorted(seen) == sorted(names)
    monkeypatch.undo()
    run(loop)
    run(loop)
    assert model.model in seen[len(names) :]


def test_everything_is_examined_after_another_worker(idle):
    loop = idle.loop()
    for _ in range(3):
        run(loop)
    other = idle.loop()
    model = next(each for each in loop._housekeeping._configs())
    idle.deliver(delivery("other", [1], model=model, event_times=np.array([0])))
    other._housekeeping.due_at = math.inf
    while idle.client.xlen(loop.keys.stream):
        other.step()
    loop._fencing.reload()
    assert loop._fencing.take_changed() is None
