"""The baseline `reference` is the past of a model from its first live cohort."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant_server.workers.alarm.alarm_commit import acknowledgement
from calibrant_server.workers.ingest.baseline_samples import START_S
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey
from calibrant_server.workers.store.slice_names import baseline_slice, reference_days_slice
from tests.workers.test_alarm import CONFIG, DAY_S, Sealing, pane_of
from tests.workers.test_alarm_acknowledged import result

pytestmark = pytest.mark.one_server


def freeze(sealing, pane, window=(0, 0), days=()):
    """Store a pane as the baseline of that name, and others as its days."""
    model, keys = (CONFIG.key, CONFIG.generation), sealing.keys
    slice_ = baseline_slice("reference")
    sealing.node.hset(keys.pane(PaneKey(*model, slice_, START_S)), mapping=pane.parts())
    versions = {str(START_S): b"v", LAST_CHANGE: b"v"}
    sealing.node.hset(keys.versions(*model, slice_), mapping=versions)
    for number, each in enumerate(days):
        key = PaneKey(*model, reference_days_slice(), number * DAY_S)
        sealing.node.hset(keys.pane(key), mapping=each.parts())
        sealing.node.hset(keys.versions(*model, key.slice), str(key.start_s), b"v")
    stored = json.dumps(
        {"window": list(window), "counts": {}, "clock": "event", "slice": None, "created_ms": 1}
    )
    sealing.node.hset(keys.baselines(*model), "reference", stored)


@pytest.mark.parametrize("slope", [1.0, 0.2])
def test_a_change_from_the_reference_is_shown_within_five_cohorts(bench, slope):
    sealing, rng = Sealing(bench), np.random.default_rng(3)
    freeze(sealing, pane_of(rng, 6000))
    raised = []
    for day in range(5):
        raised += sealing.seal(day, {"": pane_of(rng, slope=slope)})
    change = sealing.detector().change
    assert (len(raised), change is not None) == ((0, False) if slope == 1.0 else (1, True))
    if change is not None:
        assert change.of_reference
        sentence = result(sealing)["change"]["sentence"]
        assert sentence.startswith("Live data differ from the reference")


def test_an_acknowledged_change_from_the_reference_is_not_shown_again(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(3)
    freeze(sealing, pane_of(rng, 6000))
    raised = []
    for day in range(5):
        raised += sealing.seal(day, {"": pane_of(rng, slope=0.2)})
    sealing.order(acknowledgement(raised[0].id, "ann", "a new scanner"))
    for day in range(5, 40):
        raised += sealing.seal(day, {"": pane_of(rng, slope=0.2)})
    assert len(raised) == 1 and sealing.detector().change is None


@pytest.mark.parametrize("slope", [1.0, 0.2])
def test_days_of_the_reference_are_cohorts_of_before(bench, slope):
    sealing, rng = Sealing(bench), np.random.default_rng(3)
    freeze(sealing, pane_of(rng, 6000), days=[pane_of(rng) for _ in range(30)])
    raised = [
        each for day in range(5) for each in sealing.seal(day, {"": pane_of(rng, slope=slope)})
    ]
    change = result(sealing)["change"]
    assert len(raised) == (slope < 1.0)
    if slope < 1.0:
        assert sealing.detector().change.of_reference and change["start"] == "1970-01-01T00:00:00Z"
        assert change["sentence"].startswith("Live data differ from the reference")
    else:
        # Three times as many days as are needed for it.
        assert change["word"] == "none_seen" and change["smallest_change"] < 0.2


def test_without_a_reference_so_few_cohorts_show_nothing(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(3)
    for day in range(5):
        assert sealing.seal(day, {"": pane_of(rng, slope=0.2)}) == []


def test_cohorts_inside_the_window_of_the_reference_count_once(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(3)
    days = [pane_of(rng) for _ in range(10)]
    for day, pane in enumerate(days[:8]):
        sealing.seal(day, {"": pane})
    freeze(sealing, pane_of(rng, 1600), (0, 8 * DAY_S))
    for day, pane in enumerate(days[8:], 8):
        sealing.seal(day, {"": pane})
    assert result(sealing)["change"]["n"] == pytest.approx(400)
