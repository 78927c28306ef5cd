"""What to do about a model that needs no update: nothing, wait for labels, or look for missing data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrant.drift.calibration import Judgement, judge
from calibrant.drift.unit_tables import UnitTable
from calibrant.drift.words import CalibrationState, ChangeState, ScoresState
from calibrant_server.workers.alarm.words_of import ModelWords
from calibrant_server.workers.queries.waiting_advice import advice_without_update
from calibrant_server.workers.store.model_config import ModelConfig

CONFIG = ModelConfig("acme", "risk", "binary", 2, label_horizon_s=86_400)
GOOD = Judgement("good", 0.01, 0.01, 0.02, 4000.0)
UNKNOWN = Judgement("unknown", 0.05, 0.02, 0.03, 400.0, n_more=1741, then="good")

DECIDES = "at the present error, about 1,700 more labelled units would show it to be good"


def advice(shown, found, change, slices=None, config=CONFIG):
    state = CalibrationState(shown, found, 0.02, slices_off=slices)
    words = ModelWords(state, ChangeState(change), ScoresState())
    advised = advice_without_update(words, config)
    return advised["action"], advised["reason"]


@pytest.mark.parametrize(
    ("shown", "found", "change", "action", "reason"),
    [
        ("good", GOOD, "none_seen", "none", "No action is needed."),
        ("good", GOOD, "not_armed", "none", "No action is needed."),
        ("good", UNKNOWN, "none_seen", "none", "No action is needed."),
        ("unknown", UNKNOWN, "not_armed", "collect_more", f"Change nothing yet: {DECIDES}."),
        ("unknown", GOOD, "not_armed", "collect_more", "Change nothing yet: the next labels have to confirm it."),
        ("good", GOOD, "no_recent_labels", "collect_more", "Check the source of the labels: none arrived for recent predictions."),
        ("unknown", UNKNOWN, "no_recent_predictions", "collect_more", "Check the program that sends predictions: none arrived recently."),
    ],
)  # fmt: skip
def test_the_advice_follows_from_the_words(shown, found, change, action, reason):
    assert advice(shown, found, change) == (action, reason)


def test_a_model_without_predictions_is_told_to_send_them():
    words = ModelWords(
        CalibrationState("unknown", judge(UnitTable.empty()), 0.02),
        ChangeState("not_armed"),
        ScoresState(),
    )
    found = advice_without_update(words, CONFIG, has_predictions=False)
    assert found["reason"] == "Send predictions: there are none yet."
    few = advice_without_update(words, CONFIG)
    assert few["reason"] == "Change nothing yet: at least 50 labelled units are needed."


def test_a_model_of_which_slices_are_off_is_not_fine():
    found = advice("good", GOOD, "none_seen", {"site:B": 0.1})
    assert found == (
        None,
        "Only site:B is off: read its own recommendation.",
    )


def test_a_model_without_a_label_horizon_is_told_to_declare_one():
    plain = replace(CONFIG, label_horizon_s=None)
    assert advice("good", GOOD, "not_armed", config=plain) == (
        "none",
        "No action is needed. To detect changes, declare a label horizon: `calibrant set risk label_horizon=P7D`.",
    )
