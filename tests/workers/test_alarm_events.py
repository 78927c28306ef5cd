"""Events: the alarms of one change have one notification and one acknowledgement."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant_server.workers.alarm.alarm_commit import acknowledgement
from calibrant_server.workers.alarm.deliveries import request_of
from calibrant_server.workers.alarm.episodes import ACKNOWLEDGED, OPEN, shown
from tests.workers.test_alarm import DAY_S, Sealing, pane_of

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
    assert len(scopes) == 3 and all(each["change"]["word"] == "changed" for each in scopes)


def test_a_slice_that_follows_with_the_same_change_belongs_to_the_event(sealing):
    rng = np.random.default_rng(3)
    [first] = sealing.seal(FIRST, day_of(rng, **{"": STEEP, "site:A": 1.0}))
    [second] = sealing.seal(FIRST + 1, day_of(rng, **{"": STEEP, "site:A": STEEP}))
    change, other = (sealing.detector(f"score|{name}").change for name in ("", "site:A"))
    assert (second.event == first.event) == (other.earliest <= change.latest)
    assert change.start == FIRST * DAY_S and other.start == (FIRST + 1) * DAY_S


def late(sealing, first, second, slopes=STEEP):
    """The alarms of two detectors of one change, of which the second shows it a day later."""
    rng = np.random.default_rng(3)
    both = day_of(rng, **{first: slopes, second: slopes})
    small = {first: both[first], second: pane_of(rng, n=12, slope=STEEP)}
    raised = sealing.seal(FIRST, small)
    return [*raised, *sealing.seal(FIRST + 1, day_of(rng, **{first: STEEP, second: STEEP}))]


def test_a_change_of_model_and_slices_is_one_notification_whoever_shows_it_later(sealing):
    model, of_slice = late(sealing, "", "site:A")
    assert model.event == of_slice.event and notified(sealing) == [[""]]
    sealing.order(acknowledgement(model.id, "ann", "known"))
    assert {each.status for each in sealing.episodes()} == {ACKNOWLEDGED}
    assert {each.note for each in sealing.episodes()} == {"known"}
    assert not sealing.detector("score|").in_alarm
    assert not sealing.detector("score|site:A").in_alarm
    told = [each.type for each in sealing.deliveries()]
    assert sorted(told) == ["alarm.acknowledged", "alarm.raised"]


def test_a_change_that_reaches_the_model_is_told_again_as_the_same_incident(sealing):
    of_slice, model = late(sealing, "site:A", "")
    assert model.event == of_slice.event and sorted(notified(sealing)) == [[""], ["site:A"]]
    bodies = [json.loads(request_of(each, "pagerduty", "k")[0]) for each in sealing.deliveries()]
    assert {each["dedup_key"] for each in bodies} == {model.event}
    sealing.order(acknowledgement(model.id, "ann", None))
    assert {each.status for each in sealing.episodes()} == {ACKNOWLEDGED}


def test_acknowledging_a_slice_leaves_the_alarm_of_the_model_open(sealing):
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
    assert [each.type for each in sealing.deliveries()] == ["alarm.raised"]


def test_the_first_alarm_of_slices_alone_stands_for_all(sealing):
    rng = np.random.default_rng(6)
    raised = sealing.seal(FIRST, day_of(rng, **{"site:A": STEEP, "site:B": STEEP}))
    assert [each.leads for each in raised] == [True, False]
    sealing.order(acknowledgement(raised[0].id, "ann", None))
    assert {each.status for each in sealing.episodes()} == {ACKNOWLEDGED}


def test_words_of_an_alarm_say_of_which_time_they_are(sealing):
    [alarm] = sealing.seal(FIRST, day_of(np.random.default_rng(8), **{"": STEEP}))
    later, now = shown(alarm), shown(alarm, is_new=True)
    for name, field in (("calibration", "sentence"), ("change", "sentence"), ("recommendation", "reason")):  # fmt: skip
        assert later[name][field] == f"When raised: {now[name][field]}"
    assert now["calibration"]["word"] != "good" and now["state"] == "open"
    assert "temperature" not in now["effect"]["after"]
    assert now["recommendation"]["next"] == {"method": "GET", "path": f"/v1/models/{alarm.model}/drift", "body": None}  # fmt: skip
