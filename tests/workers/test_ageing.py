"""Panes that grow old: merged into days, sealed at the horizon, in whatever moment the worker dies."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from calibrant import Batch
from calibrant.metrics import DEFAULT_METRICS, PaneQuery, View, compute_metrics
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle import sealing
from calibrant_server.workers.lifecycle.levels import DAYS
from calibrant_server.workers.lifecycle.sealing import Sealing
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.commit import StaleTokenError
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import LAST_CHANGE
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.watermarks import Watermarks, fields_of
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL, delivery, totals
from tests.workers.ledger import LedgerHistogram
from tests.workers.test_late_labels import assert_same, deliveries, final_panes, stored_panes

pytestmark = pytest.mark.one_server

DAY_S = 86_400
HOUR_US = 3_600_000_000
EVER = Window(0, 1 << 33)


class Died(ConnectionError):
    """The worker was killed, before or after its commit."""


def mortal(loop, rng, odds=0.4):
    """Let a loop die around commits."""
    send = loop._fencing.send

    def dying(*args, **kwargs):
        if rng.random() < odds / 2:
            raise Died
        send(*args, **kwargs)
        if rng.random() < odds / 2:
            raise Died

    loop._fencing.send = dying
    return loop


def pane_keys(bench):
    keys = bench.store.keys.of_model(MODEL.key)
    return sum(
        len(bench.starts(member.decode()))
        for member in bench.client.smembers(keys.slices(MODEL.key, MODEL.generation))
    )


def versions_agree(bench):
    """Every pane has a version, and every version a pane or rows."""
    keys = bench.store.keys.of_model(MODEL.key)
    named = set()
    for member in bench.client.smembers(keys.slices(MODEL.key, MODEL.generation)):
        name = keys.versions(MODEL.key, MODEL.generation, member.decode())
        starts = [
            start.decode() for start in bench.client.hkeys(name) if start.decode() != LAST_CHANGE
        ]
        named |= {
            f"{keys.tag}:s:{MODEL.key}|{MODEL.generation}|{member.decode()}|{start}"
            for start in starts
        }
    held = {name.decode() for name in bench.client.keys(f"{keys.tag}:s:*")}
    rows = {name.decode().split("|")[-1] for name in bench.client.keys(f"{keys.tag}:t:*")}
    assert held <= named
    assert {name.split("|")[-1] for name in named - held} <= rows
    assert rows <= {name.split("|")[-1] for name in named}


def by_day():
    days = {}
    for (slice_, _), pane in final_panes().items():
        days[slice_] = days[slice_].merge(pane) if slice_ in days else pane
    return days


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 3))]
)
def test_labels_for_a_merged_day_go_to_its_pane(bench, seed):
    """Days are merged at any moment between predictions and their labels, and the worker dies of it now and then."""
    bench.settings = bench.settings.replace(compact_after_s=3600)
    bench.numerics = Numerics()
    bench.put_model()
    rng = random.Random(seed)
    steps = deliveries(rng)
    loop = bench.loop()
    for first in range(0, len(steps), 30):
        bench.deliver(*steps[first : first + 30])
        for _ in range(3):
            try:
                mortal(loop, rng).step() if rng.random() < 0.5 else loop._housekeeping.apply(DAYS)
            except (Died, StaleTokenError):
                loop = bench.loop()
        loop = bench.loop()
        loop._housekeeping.due_at = float("inf")
    while bench.client.xlen(loop.keys.stream):
        loop._step_or_reload()
    loop._housekeeping.apply(DAYS)
    versions_agree(bench)
    assert pane_keys(bench) == 3
    found, expected = stored_panes(bench), by_day()
    assert found.keys() == {(slice_, 0) for slice_ in expected}
    for slice_, pane in expected.items():
        assert_same(found[slice_, 0], pane)


def fill_days(bench, rng, n_days=4):
    """Four days of hourly panes on two sites."""
    rows = []
    for hour in range(24 * n_days):
        n = 12
        rows.append(
            {
                "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
                "labels": rng.integers(0, 3, n).tolist(),
                "units": [f"u{i}" for i in rng.integers(0, 60, n)],
                "event_times": [f"2026-01-{1 + hour // 24:02d}T{hour % 24:02d}:10:00Z"] * n,
                "slices": {"site": ["AB"[hour % 2]] * n},
            }
        )
    for hour, columns in enumerate(rows):
        batch = Batch.from_columns(columns).batch
        bench.deliver(
            IngestBatch.of(MODEL, f"h{hour}", PREDICTIONS, batch.pack(), batch.digest(), batch.n)
        )
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    while bench.client.xlen(loop.keys.stream):
        loop.step()
    return loop


def answers(bench, window=EVER, slice_=""):
    state = WindowPanes(Store(bench.settings), bench.numerics).merged(MODEL, slice_, window, None)
    pane = state.merged
    view = View(pane, PaneQuery(bins=15))
    found = compute_metrics(view, [*DEFAULT_METRICS, "spiegelhalter_z"], seed=1)
    return (
        state,
        pane.counts,
        {slug: (each["value"], each["interval"]) for slug, each in found.items()},
    )


def test_answers_are_the_same_and_keys_fewer(bench):
    bench.numerics = Numerics()
    bench.put_model()
    loop = fill_days(bench, np.random.default_rng(1))
    day = Window(*(int(datetime(2026, 1, d, tzinfo=UTC).timestamp()) for d in (2, 3)))
    before = [answers(bench, window, slice_) for window in (EVER, day) for slice_ in ("", "site:A")]
    assert pane_keys(bench) == 24 * 4 + 24 * 4
    rng = random.Random(4)
    for _ in range(40):
        try:
            mortal(loop, rng)._housekeeping._compaction.merge_days(MODEL, day.to_s + 100)
        except Died:
            loop = bench.loop()
        versions_agree(bench)
    assert pane_keys(bench) == 2 * 3 + 2 * 48
    after = [answers(bench, window, slice_) for window in (EVER, day) for slice_ in ("", "site:A")]
    for (_, counts, one), (_, counts_after, other) in zip(before, after, strict=True):
        assert counts == counts_after
        for slug, (value, interval) in one.items():
            assert other[slug][0] == pytest.approx(value, abs=1e-12), slug
            assert other[slug][1] == pytest.approx(interval, abs=1e-9), slug


def test_windows_inside_a_merged_day_become_the_day(bench):
    bench.numerics = Numerics()
    bench.put_model()
    loop = fill_days(bench, np.random.default_rng(1), 2)
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    asked = Window(start + 5 * 3600, start + 7 * 3600)
    assert answers(bench, asked)[1]["n_predictions"] == 24
    loop._housekeeping._compaction.merge_days(MODEL, start + DAY_S)
    state, counts, _ = answers(bench, asked)
    assert counts["n_predictions"] == 24 * 12
    assert (state.window.from_s, state.window.to_s) == (start, start + DAY_S)
    assert [length_s for _, length_s in state.spans] == [DAY_S]
    tomorrow = Window(start + 30 * 3600, start + 31 * 3600)
    assert answers(bench, tomorrow)[0].window == tomorrow


def test_running_totals_continue_in_a_merged_day(bench):
    bench.put_model()

    def total(batch_id, hour, sequence, count):
        histogram = LedgerHistogram(count, count * 10, event_time=hour * HOUR_US)
        bench.deliver(totals(batch_id, histogram, sequence=sequence))

    for hour in (0, 1):
        total(f"a{hour}", hour, 2, 4)
    loop = bench.loop()
    loop.step()
    assert loop._housekeeping._compaction.merge_days(MODEL, DAY_S) == 1
    loop._cache.forget()
    total("b0", 0, 3, 6)
    total("b1", 1, 1, 3)
    total("b2", 2, 1, 5)
    bench.deliver(delivery("p", [7], event_times=np.array([3 * HOUR_US])))
    loop.step()
    assert bench.merged("b1").stale is True
    assert bench.starts() == [0]
    assert bench.pane("", 0).count == 6 + 4 + 5 + 1


def marks(bench, slice_=""):
    keys = bench.store.keys.of_model(MODEL.key)
    return Watermarks.read(
        bench.client.hmget(keys.marks(MODEL.key, MODEL.generation), fields_of(slice_))
    )


def test_cohorts_are_sealed_once_and_in_order(bench, monkeypatch):
    """As they stand at the horizon, with what the alarm adds, whenever the worker dies."""
    bench.numerics = Numerics()
    model = replace(MODEL, label_horizon_s=10 * DAY_S)
    bench.put_model(model)
    loop = fill_days(bench, np.random.default_rng(2), 1)
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    log = f"{loop.keys.tag}:hook"

    def taken(commit, keys, node, config, start_s, end_s, panes):
        n = panes[""].counts["n_labelled"]
        commit.set_fields(log, {str(start_s // 3600): f"{node.hlen(log)} {n} {'|'.join(panes)}"})

    monkeypatch.setattr(sealing, "take_sealed", taken)
    rng = random.Random(9)
    now_s = start + 10 * DAY_S + 12 * 3600 + 59
    for _ in range(60):
        loop = mortal(bench.loop(), rng)
        try:
            Sealing(loop._node, loop.keys, loop._fencing, bench.numerics).seal(model, now_s)
        except Died:
            continue
    assert marks(bench).sealed_to == start + 12 * 3600
    result = {int(number): text.decode() for number, text in bench.client.hgetall(log).items()}
    first = start // 3600
    assert result == {first + i: f"{i} 12 |site:{'AB'[i % 2]}" for i in range(12)}
    _, live, _ = answers(bench, Window(start, start + 12 * 3600))
    _, sealed, _ = answers(bench, EVER, sealed_slice(""))
    assert sealed == live
    late = Batch.from_columns(
        {"probabilities": [[0.2, 0.5, 0.3]], "labels": [1], "event_times": ["2026-01-01T01:00:00Z"]}
    ).batch
    bench.deliver(IngestBatch.of(model, "late", PREDICTIONS, late.pack(), late.digest(), 1))
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    loop.step()
    Sealing(loop._node, loop.keys, loop._fencing, bench.numerics).seal(model, now_s + 30 * DAY_S)
    assert marks(bench).sealed_to == start + DAY_S
    _, after, _ = answers(bench, Window(start, start + 12 * 3600), sealed_slice(""))
    assert after == sealed
    loop._housekeeping._compaction.merge_days(model, start + 40 * DAY_S)
    _, merged, _ = answers(bench, EVER, sealed_slice(""))
    assert merged["n_labelled"] == 24 * 12
    assert pane_keys(bench) == 6


def test_days_wait_until_they_are_sealed(bench):
    bench.numerics = Numerics()
    model = replace(MODEL, label_horizon_s=5 * DAY_S)
    bench.put_model(model)
    loop = fill_days(bench, np.random.default_rng(2), 2)
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    assert loop._housekeeping._compaction.merge_days(model, start + 100 * DAY_S) == 0
    Sealing(loop._node, loop.keys, loop._fencing, bench.numerics).seal(model, start + 6.5 * DAY_S)
    assert loop._housekeeping._compaction.merge_days(model, start + 100 * DAY_S) == 6
    assert marks(bench).daily_to == start + DAY_S


def test_a_horizon_declared_late_seals_merged_days_whole(bench, monkeypatch):
    bench.numerics = Numerics()
    bench.put_model()
    loop = fill_days(bench, np.random.default_rng(2), 2)
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    loop._housekeeping._compaction.merge_days(MODEL, start + DAY_S)
    model = replace(MODEL, label_horizon_s=3600)
    cohorts = []
    monkeypatch.setattr(sealing, "take_sealed", lambda *args: cohorts.append(args[5] - args[4]))
    Sealing(loop._node, loop.keys, loop._fencing, bench.numerics).seal(model, start + 30 * DAY_S)
    assert cohorts == [DAY_S] + [3600] * 24
    _, sealed, _ = answers(bench, EVER, sealed_slice(""))
    assert sealed == answers(bench)[1]
