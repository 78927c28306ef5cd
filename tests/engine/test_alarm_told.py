"""What is told of an alarm once somebody took note of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.test_alarm import DAY_S, Sealing, pane_of
from workers.alarm.orders import acknowledgement
from workers.alarm.settings import AlarmSettings
from workers.alarm.telling import told_of
from workers.alarm.view import read_view
from workers.windows import ALL_ROWS, Window


def told(sealing):
    """The verdict of all rows."""
    view = read_view(sealing.node, sealing.keys, sealing.config, ALL_ROWS, Window(0, 10**6 * DAY_S), {})
    assert view.detector is not None
    return told_of(view.detector, AlarmSettings.of(sealing.config), view, 0)


def test_an_acknowledged_alarm_keeps_its_start_and_effect(bench):
    """Not the days before the change, and not what watching anew has seen so far."""
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(60):
        sealing.seal(day, {"": pane_of(rng)})
    day, raised = sealing.until_alarm(rng, 60)
    for later in range(day + 1, day + 20):
        sealing.seal(later, {"": pane_of(rng, slope=0.4)})
    alarmed = told(sealing)
    assert alarmed["effect"]["slope"]["value"] == pytest.approx(0.4, abs=0.08)
    sealing.order(acknowledgement(raised.id, "ann", "seen"))
    noted = told(sealing)
    assert (alarmed["status"], noted["status"]) == ("alarm", "acknowledged")
    assert noted["start_of_change"] == alarmed["start_of_change"] and noted["title"] == alarmed["title"]
    for name in ("effect", "effect_since", "bins_since_change", "recommended_action"):
        assert noted[name] == alarmed[name]
    sealing.seal(day + 20, {"": pane_of(rng)})
    assert told(sealing)["effect"]["n_units"] == noted["effect"]["n_units"] + 200


def test_without_an_alarm_there_is_no_start_of_change(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(5):
        sealing.seal(day, {"": pane_of(rng)})
    found = told(sealing)
    assert found["start_of_change"] is None and found["bins_since_change"] is None and found["title"] is None
