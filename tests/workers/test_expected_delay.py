"""The delay that settings answer: at the rate, with the scores and under the band that the alarm will have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.power import PREDICTED_CHANGES, Monitor
from calibrant.drift.unit_tables import UnitTable
from calibrant_server.workers.alarm.alarm_snapshot import read_snapshot
from calibrant_server.workers.queries.kind import Inputs
from calibrant_server.workers.queries.kinds.expected_delay import ExpectedDelayQuery, compute
from calibrant_server.workers.store.windows import DatedPane, Window
from tests.workers.test_alarm import CONFIG, DAY_S, Sealing, pane_of
from tests.workers.test_alarm_histograms import posted

pytestmark = pytest.mark.one_server


def asked(sealing, panes, config=None):
    """What the setting answers over days 0 to `len(panes)`."""
    config = config or sealing.config
    view = read_snapshot(sealing.node, sealing.keys, config, ALL_ROWS, Window(0, 90 * DAY_S))
    dated = [DatedPane(day * DAY_S, DAY_S, pane) for day, pane in enumerate(panes)]
    inputs = Inputs(config, Window(0, 90 * DAY_S), panes=dated, of_alarm=view)
    return compute(ExpectedDelayQuery(), inputs)["changes"], view


def test_before_a_cohort_is_sealed_the_panes_tell(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(1)
    changes, _ = asked(sealing, [pane_of(rng) for _ in range(10)])
    assert [each["units_per_cohort"] for each in changes] == pytest.approx([200.0] * 2)
    assert all("scope" not in each for each in changes)


def test_units_are_counted_as_sealed_cohorts_count_them(bench):
    """Panes count a unit once each; the alarm saw half as many."""
    sealing, rng = Sealing(bench), np.random.default_rng(1)
    panes = [pane_of(rng) for _ in range(12)]
    for day in (0, 1, 3, 4, 6, 7, 9, 10, 11):
        sealing.seal(day, {"": pane_of(rng, n=100)})
    changes, _ = asked(sealing, panes)
    assert [each["units_per_cohort"] for each in changes] == pytest.approx([100.0] * 2)


def test_each_class_that_is_bet_on_has_its_own(bench):
    """Against the naive table of its probabilities."""
    config = replace(
        CONFIG,
        model="three",
        task="multiclass",
        n_classes=3,
        alarm={"tolerance": 0.0, "bets": [0, 2]},
    )
    sealing, rng = Sealing(bench, config), np.random.default_rng(1)
    panes, rows = [], []
    for _ in range(10):
        p = rng.dirichlet([6.0, 2.0, 0.5], 100)
        pane = Pane(config.spec())
        labels = [int(rng.choice(3, p=row)) for row in p]
        pane.fill_batch(
            Batch.from_columns(
                {"probabilities": p, "labels": labels}, task="multiclass", n_classes=3
            ).batch
        )
        panes.append(pane)
        rows.append(p)
    changes, _ = asked(sealing, panes)
    assert [each["scope"] for each in changes] == ["class:0", "class:0", "class:2", "class:2"]
    for class_index, result in ((0, changes[:2]), (2, changes[2:])):
        score = np.concatenate(rows)[:, class_index]
        place = np.maximum(np.ceil(score * 15).astype(int) - 1, 0)
        weight, sums = (np.bincount(place, w, 15) for w in (np.ones(1000), score))
        naive = UnitTable(weight, sums, 0 * sums, weight, weight)
        for each, change in zip(result, PREDICTED_CHANGES, strict=True):
            typical = UnitTable(*(naive.columns / 10))
            assert each["median"] == Monitor.steady(typical, 1 / 3650, 28).delay(change)
            assert each["units_per_cohort"] == pytest.approx(100.0)


def test_histograms_tell_a_rate_too(bench):
    sealing, rng, panes = Sealing(bench), np.random.default_rng(1), []
    for _ in range(5):
        pane = Pane(CONFIG.spec())
        pane.fill_histogram(posted(rng, 200))
        panes.append(pane)
    changes, _ = asked(sealing, panes)
    assert [each["units_per_cohort"] for each in changes] == pytest.approx([200.0] * 2)
