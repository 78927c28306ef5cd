"""What is reported of an alarm after its acknowledgement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.alarm_snapshot import read_snapshot
from calibrant_server.workers.alarm.commands import acknowledgement
from calibrant_server.workers.alarm.drift_report import report_of
from calibrant_server.workers.alarm.settings import AlarmSettings
from calibrant_server.workers.queries.kind import Inputs
from calibrant_server.workers.queries.kinds.drift import DriftQuery, compute
from calibrant_server.workers.store.windows import DatedPane, Window
from tests.workers.test_alarm import CONFIG, DAY_S, Sealing, pane_of

pytestmark = pytest.mark.one_server


def result(sealing):
    """The verdict of all rows."""
    view = read_snapshot(
        sealing.node, sealing.keys, sealing.config, ALL_ROWS, Window(0, 10**6 * DAY_S)
    )
    assert view.detector is not None
    return report_of(view.detector, AlarmSettings.of(sealing.config), view, 0)


def test_an_acknowledged_alarm_keeps_its_start_and_effect(bench):
    """Not the days before the change, and not what watching anew has seen so far."""
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(60):
        sealing.seal(day, {"": pane_of(rng)})
    day, raised = sealing.until_alarm(rng, 60)
    for later in range(day + 1, day + 20):
        sealing.seal(later, {"": pane_of(rng, slope=0.4)})
    alarmed = result(sealing)
    assert alarmed["effect"]["slope"]["value"] == pytest.approx(0.4, abs=0.08)
    sealing.order(acknowledgement(raised.id, "ann", "seen"))
    noted = result(sealing)
    assert (alarmed["status"], noted["status"]) == ("alarm", "alarm")
    assert alarmed["acknowledged_at"] is None and noted["acknowledged_at"] is not None
    assert noted["alarmed_at"] == alarmed["alarmed_at"]
    assert (
        noted["start_of_change"] == alarmed["start_of_change"]
        and noted["title"] == alarmed["title"]
    )
    for name in ("effect", "effect_since", "bins_since_change", "recommendation"):
        assert noted[name] == alarmed[name]
    sealing.seal(day + 20, {"": pane_of(rng)})
    assert result(sealing)["effect"]["n_units"] == noted["effect"]["n_units"] + 200


def test_without_an_alarm_there_is_no_start_of_change(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(5):
        sealing.seal(day, {"": pane_of(rng)})
    found = result(sealing)
    assert (
        found["start_of_change"] is None
        and found["bins_since_change"] is None
        and found["title"] is None
    )


def test_an_alarm_that_has_not_judged_is_not_ok(bench):
    """Two windows are alike, and nobody knows whether both are off."""
    rng = np.random.default_rng(4)
    panes = [DatedPane(day * DAY_S, DAY_S, pane_of(rng)) for day in range(20)]

    def status(config):
        sealing = Sealing(bench, config)
        view = read_snapshot(sealing.node, sealing.keys, config, ALL_ROWS, Window(0, 10**6 * DAY_S))
        found = compute(
            DriftQuery(), Inputs(config, Window(0, 10**6 * DAY_S), panes=panes, of_alarm=view)
        )
        assert found["comparison"]["status"] == "ok" and found["detector"] is None
        return (
            found["status"],
            found["reason"] == found["detector_reason"],
            found["recommendation"]["action"],
        )

    assert status(CONFIG) == ("insufficient_data", True, "collect_more")
    assert status(replace(CONFIG, model="plain", label_horizon_s=None)) == ("ok", False, "none")
