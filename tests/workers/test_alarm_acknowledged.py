"""What is reported of an alarm after its acknowledgement, and without cohorts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from calibrant.core.routing import ALL_ROWS
from calibrant.core.time_texts import day_of
from calibrant_server.workers.alarm.alarm_commit import acknowledgement
from calibrant_server.workers.alarm.episodes import at
from calibrant_server.workers.alarm.words_of import read_snapshot
from calibrant_server.workers.queries.kind import Inputs
from calibrant_server.workers.queries.kinds.drift import DriftQuery, compute
from calibrant_server.workers.store.windows import DatedPane, Window
from tests.workers.test_alarm import CONFIG, DAY_S, Sealing, pane_of

pytestmark = pytest.mark.one_server


def result(sealing, panes=(), to_s=None):
    """The verdict of all rows."""
    config = sealing.config
    last_s = sealing.detector().last if to_s is None else to_s - 2 * DAY_S
    window = Window(0, last_s + 2 * DAY_S)
    view = read_snapshot(sealing.node, sealing.keys, config, ALL_ROWS, window)
    inputs = Inputs(config, window, panes=list(panes), of_alarm=view)
    return compute(DriftQuery(include="evidence"), inputs)


def test_after_an_acknowledgement_the_change_is_the_past(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(60):
        sealing.seal(day, {"": pane_of(rng)})
    day, raised = sealing.until_alarm(rng, 60)
    for later in range(day + 1, day + 20):
        sealing.seal(later, {"": pane_of(rng, slope=0.4)})
    alarmed = result(sealing)
    assert (alarmed["status"], alarmed["change"]["word"]) == ("alarm", "changed")
    assert alarmed["change"]["sentence"].startswith("Changed about 2 Mar 1970")
    assert alarmed["effect"]["after"]["temperature"] == pytest.approx(2.5, abs=0.5)
    assert alarmed["effect"]["before"]["temperature"] == pytest.approx(1.0, abs=0.1)
    assert alarmed["effect"]["after"]["n"] == 200 * (day + 20 - raised.start_of_change // DAY_S)
    sealing.order(acknowledgement(raised.id, "ann", "seen"))
    noted = result(sealing)
    assert (noted["status"], noted["change"]["word"]) == ("watch", "not_armed")
    [episode] = sealing.episodes()
    assert noted["change"]["acknowledged_at"] == at(episode.acknowledged_s)
    assert episode.acknowledged_s > day * DAY_S and noted["effect"] is None
    assert noted["calibration"]["word"] == "off" and noted["title"] == alarmed["title"]


def test_without_a_change_there_is_no_start(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(5):
        sealing.seal(day, {"": pane_of(rng)})
    found = result(sealing)
    assert found["change"]["word"] == "not_armed" and found["change"]["start"] is None
    assert found["bins_since_change"] is None and found["title"] is None


def test_the_rule_is_armed_at_a_time_to_come(bench):
    """It is when the words will say so: after the horizon of the last cohort that it takes, and not before now."""
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(8):
        sealing.seal(day, {"": pane_of(rng)})
    panes = [DatedPane(day * DAY_S, DAY_S, pane_of(rng)) for day in range(11)]
    horizon_s = CONFIG.label_horizon_s
    found = {}
    for now in (8 * DAY_S + horizon_s, 9 * DAY_S + horizon_s - 1, 9 * DAY_S + horizon_s):
        change = result(sealing, panes[: now // DAY_S], now)["change"]
        assert change["word"] == "not_armed" and f"From {day_of(seconds(change))} on" in change["sentence"]  # fmt: skip
        found[now] = seconds(change)
        assert found[now] > now and (found[now] - horizon_s) % DAY_S == 0
    first, before, late = found.values()
    # The cohort of day 8 is due at the third time, and is not sealed.
    assert first == before and late == first + DAY_S


def seconds(change):
    return int(datetime.fromisoformat(change["armed_at"]).timestamp())


def test_missing_data_have_words_of_their_own(bench):
    """After two label horizons without predictions, or two more without labels."""
    sealing, rng = Sealing(bench), np.random.default_rng(4)
    for day in range(40):
        sealing.seal(day, {"": pane_of(rng)})
    last = DatedPane(39 * DAY_S, DAY_S, pane_of(rng))
    late = DatedPane(50 * DAY_S, DAY_S, pane_of(rng, labelled=False))

    def word(day, *panes):
        found = result(sealing, panes, day * DAY_S)
        return found["change"]["word"], found["status"]

    # The tolerance of 0 leaves calibration unknown.
    assert word(42, last) == ("none_seen", "insufficient_data")
    assert word(43, last) == ("no_recent_predictions", "insufficient_data")
    # Later cohorts that are not sealed yet may have labels: nothing is said of them.
    assert word(51, last, late) == ("none_seen", "insufficient_data")
    for day in range(40, 51):
        sealing.seal(day, {"": pane_of(rng, labelled=False)})
    # The share of predictions with labels has fallen, too.
    assert word(51, last, late) == ("no_recent_labels", "watch")


def test_a_model_without_sealed_cohorts_is_judged_by_its_panes(bench):
    """It is never `ok`: no change would be seen."""
    rng = np.random.default_rng(4)
    good = [DatedPane(day * DAY_S, DAY_S, pane_of(rng, 4000)) for day in range(20)]
    off = [DatedPane(day * DAY_S, DAY_S, pane_of(rng, slope=0.4)) for day in range(20)]

    def words(config, panes, merged=None):
        view = read_snapshot(
            (sealing := Sealing(bench, config)).node,
            sealing.keys,
            config,
            ALL_ROWS,
            Window(0, DAY_S),
        )
        view = replace(view, unwatched=None if merged is None else lambda: merged)
        inputs = Inputs(config, Window(0, 21 * DAY_S), panes=panes, of_alarm=view)
        found = compute(DriftQuery(), inputs)
        assert "comparison" not in found
        return (
            found["status"],
            found["calibration"]["word"],
            found["change"]["word"],
            found["recommendation"]["action"],
        )

    plain = replace(CONFIG, model="plain", label_horizon_s=None, alarm={})
    assert words(plain, good) == ("insufficient_data", "good", "not_armed", "none")
    assert words(plain, off)[:3] == ("watch", "off", "not_armed")
    # The recommendation is that of the temperature of the merged panes, where they are read.
    assert words(plain, off, sum(each.pane for each in off))[3] == "temperature"
    slight = [DatedPane(day * DAY_S, DAY_S, pane_of(rng, slope=0.65)) for day in range(20)]
    found = words(plain, slight, sum(each.pane for each in slight))
    assert (found[1], found[3]) == ("unknown", "temperature")
    assert words(replace(CONFIG, alarm={}), off)[:3] == ("watch", "off", "not_armed")
