"""Events: one notification for the alarms of one cohort; alarms stay separate in all else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant_server.workers.alarm.alarm_commit import acknowledgement
from calibrant_server.workers.alarm.episodes import ACKNOWLEDGED, OPEN
from tests.workers.test_alarm import Sealing, pane_of

pytestmark = pytest.mark.one_server
STEEP, RISING = 0.2, 3.0


# Before so many cohorts each counts as one unit.
FIRST = 35


@pytest.fixture
def sealing(bench):
    """Three slices with five weeks of calibrated days."""
    sealing, rng = Sealing(bench), np.random.default_rng(0)
    for day in range(FIRST):
        sealing.seal(day, {name: pane_of(rng, n=300) for name in ("", "site:A", "site:B")})
    return sealing


def notified(sealing):
    """The scopes of each notification of a raised alarm."""
    bodies = [json.loads(each.body) for each in sealing.deliveries() if each.type == "alarm.raised"]
    return [sorted(one["slice"] or "" for one in body["data"]["scopes"]) for body in bodies]


def day_of(rng, **slopes):
    return {name: pane_of(rng, n=3000, slope=slope) for name, slope in slopes.items()}


def test_scopes_that_cross_in_one_cohort_are_one_notification(sealing):
    rng = np.random.default_rng(5)
    raised = sealing.seal(FIRST, day_of(rng, **{"": STEEP, "site:A": STEEP, "site:B": STEEP}))
    assert len(raised) == 3 and notified(sealing) == [["", "site:A", "site:B"]]
    assert len({each.event for each in raised}) == 1 and len({each.id for each in raised}) == 3
    assert len({each.number for each in raised}) == 3


def test_another_effect_in_the_same_cohort_is_in_the_same_notification(sealing):
    rng = np.random.default_rng(2)
    raised = sealing.seal(FIRST, day_of(rng, **{"": STEEP, "site:A": STEEP, "site:B": RISING}))
    assert notified(sealing) == [["", "site:A", "site:B"]] and raised[0].slice == ""
    [delivery] = sealing.deliveries()
    scopes = json.loads(delivery.body)["data"]["scopes"]
    by_slice = {each["slice"] or "": each for each in scopes}
    assert by_slice["site:A"]["effect"]["after"]["temperature"] > 2.0
    assert by_slice["site:B"]["effect"]["after"]["temperature"] < 1.0
    assert all(each["change"]["word"] == "changed" for each in scopes)


def test_a_later_crossing_is_a_new_event(sealing):
    rng = np.random.default_rng(3)
    [first] = sealing.seal(FIRST, day_of(rng, **{"": STEEP, "site:A": 1.0}))
    [second] = sealing.seal(FIRST + 1, day_of(rng, **{"": STEEP, "site:A": STEEP}))
    assert sorted(notified(sealing)) == [[""], ["site:A"]]
    assert first.event != second.event


def test_acknowledging_one_scope_closes_no_other(sealing):
    rng = np.random.default_rng(4)
    raised = sealing.seal(FIRST, day_of(rng, **{"": STEEP, "site:A": STEEP}))
    mine = next(each for each in raised if each.slice == "site:A")
    sealing.order(acknowledgement(mine.id, "ann", None))
    assert {each.slice: each.status for each in sealing.episodes()} == {
        "": OPEN,
        "site:A": ACKNOWLEDGED,
    }
    assert sealing.detector("score|").in_alarm
    assert not sealing.detector("score|site:A").in_alarm
