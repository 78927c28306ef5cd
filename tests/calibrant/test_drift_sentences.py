"""What the sentences of the words say: only what was found, with limits that stay limits, and dates that are to come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from benchmarks.drift.days import normal_logits, same, simulate, tempered
from calibrant.core.number_texts import at_least, at_most
from calibrant.core.smallest_change import SmallestChange
from calibrant.drift.calibration import Judgement, Selection, judge
from calibrant.drift.change_effect import ChangeEffect
from calibrant.drift.evaluation import Monitor
from calibrant.drift.unit_tables import UnitTable
from calibrant.drift.unlabelled_scores import Shift
from calibrant.drift.words import CalibrationState, ChangeState, ScoresState

DAY_S, START = 86_400, 1_763_337_600  # 17 Nov 2025
LEVEL = 1.0 / 3650.0
UNKNOWN = Judgement("unknown", 0.051, 0.04, 0.03, 400.0, 1741, "off")


def side(intercept=0.0, slope=1.0, mean=0.0, n=20_000, bins=15):
    """Return the expected table of scores whose log-odds are normal, with outcomes at a recalibration of them."""
    score = expit(mean + 2.0 * np.random.default_rng(0).normal(size=n))
    rate = expit(intercept + slope * logit(score))
    return UnitTable.at_scores(score, np.ones(n), rate, bins)


def effect(before, after, direction="level"):
    return ChangeEffect((before, after), "the rate of positive labels", direction).text


def test_a_shift_of_all_outcomes_is_no_change_of_the_slope():
    """Seen from the scores' skewed side, a shift moves the sums along the slope, too."""
    shifted = effect(side(mean=-1.0), side(intercept=-1.2, mean=-1.0))
    assert shifted == "the rate of positive labels fell from 35 % to 20 %"
    assert effect(side(mean=-1.0), side(-1.2, mean=-1.0), "slope") == shifted


def test_a_slope_is_told_beside_the_level_and_alone():
    assert effect(side(), side(intercept=-1.2, slope=0.6)).endswith("; also, scores became too extreme")  # fmt: skip
    assert effect(side(), side(slope=0.6), "slope") == "scores became too extreme"
    assert effect(side(slope=0.6), side(), "slope") == "scores became too cautious"


def test_a_rate_that_rises_with_the_scores_is_no_change():
    assert effect(side(), side(mean=0.3)) == ""


def test_a_change_of_one_band_is_told_where_it_is():
    before = side()
    correct = before.correct.copy()
    correct[9:12] -= 0.1 * before.weight[9:12]
    correct[3:6] += 0.1 * before.weight[3:6]
    after = replace(before, correct=correct)
    assert effect(before, after, "band 3") == (
        "at scores from 0.60 to 0.80, the rate of positive labels was equal to the mean score before, and is now 10 points below the mean score"
    )


@pytest.mark.parametrize("value", [0.15664, 0.13696, 0.07896, 0.00207, 0.0997, 0.0994, 0.29, 0.02])
def test_limits_stay_limits(value):
    assert float(at_least(value)) <= value + 1e-9 and float(at_most(value)) >= value - 1e-9
    assert float(at_most(value)) - float(at_least(value)) <= 0.0100001


def test_sentences_round_limits_away_from_the_error():
    off = CalibrationState("off", Judgement("off", 0.15664, 0.2, 0.05, 900.0), 0.02)
    assert off.sentence.startswith("Off by at least 0.15 (allowed 0.02)")
    good = CalibrationState("good", Judgement("good", 0.01207, 0.01, 0.01, 9000.0), 0.02)
    assert good.sentence.startswith("Good: the error is at most 0.013 (allowed 0.02)")


def test_a_slice_that_is_off_comes_first_unless_the_model_is_known():
    of_slice = {"site:B": 0.0468}
    shown = CalibrationState("unknown", UNKNOWN, 0.02, slices_off=of_slice, n_slices=12)
    assert shown.sentence.startswith(
        "site:B is off by at least 0.046 (1 of 12 slices); over all predictions: not known: the error may be up to 0.051"
    )
    good = replace(shown, word="good", judgement=Judgement("good", 0.01, 0.01, 0.01, 9000.0))
    assert good.sentence == (
        "Good overall: the error is at most 0.01 (allowed 0.02), measured on 9,000 labelled units; site:B off by at least 0.046 "
        "(1 of 12 slices)."
    )


def test_what_would_decide_is_an_estimate_at_the_present_error_and_names_the_word():
    shown = CalibrationState("unknown", UNKNOWN, 0.02, counting=(5600.0, "28 days"))
    assert shown.sentence.endswith(
        "; at the present error, about 1,700 more labelled units would show it to be off."
    )
    few = replace(shown, judgement=replace(UNKNOWN, n_units=224.0, n_more=9000), counting=(224.0, "28 days"))  # fmt: skip
    assert few.sentence.endswith(
        "Only the last 28 days count, about 220 units: more labels a day or a larger tolerance would decide."
    )


@pytest.mark.parametrize(("gap", "word"), [(0.15, "off"), (0.0, "good")])
def test_the_labels_that_would_decide_name_their_word(gap, word):
    weight = np.full(15, 20.0)
    confidence = weight * (np.arange(15) + 0.5) / 15
    correct = np.clip(confidence + gap * weight * np.where(np.arange(15) < 7, 1, -1), 0.0, weight)
    found = judge(UnitTable(weight, confidence, correct, weight, weight))
    assert (found.word, found.then) == ("unknown", word)


def test_missing_labels_have_their_period_and_what_to_do():
    selection = Selection(0.82, False, (0.0121, 0.147))
    state = CalibrationState(
        "unknown", UNKNOWN, 0.02, selection, selected=(START, START + 9 * DAY_S), late=0.0
    )
    assert state.sentence.endswith(
        "Of the predictions of 17 Nov 2025 to 25 Nov 2025, 18 % had no label within the horizon: depending on their labels, the error is "
        "between 0.012 and 0.15. Lengthen the horizon if labels come later."
    )
    late = replace(state, late=0.17, fall=(0.95, 0.4, START))
    assert late.sentence.endswith(
        "Later, 17 % got one: lengthen the horizon. The share with a label fell from 95 % to 40 % on 17 Nov 2025."
    )
    assert late.coverage_fell and not state.coverage_fell


def test_too_few_predictions_for_a_shift_of_scores_have_no_word():
    few = ScoresState.of(Shift(False, 0.4, 1.7), True)
    assert few.word == "unknown" and few.sentence.startswith("Too few predictions a day")
    assert ScoresState.of(Shift(False, 0.04, 0.2), True).word == "none_seen"
    assert ScoresState.of(Shift(True, 2.4, 1.7), True).word == "shifted"


def monitor(n, truth=same, per_day=250, scores=None, seed=0):
    days = simulate(np.random.default_rng(seed), 1, n, truth, scores, per_day=per_day)
    return Monitor(days.columns[:3, 0], LEVEL)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_days_are_no_reason_for_more_labels_a_day(n):
    """The first days after a promotion or an acknowledgement: more days arm the rule."""
    assert monitor(n).smallest().points is None
    assert monitor(n).armed_in is not None and monitor(n).armed_in >= monitor(n).first_in == 5 - n


def test_a_rare_outcome_can_only_rise_and_no_rate_leaves_its_bounds():
    found = monitor(30, per_day=60, scores=normal_logits(1.2, -3.6)).smallest()
    assert found.which == "rise" and found.fall is None and found.rise < 0.08
    for days in (6, 12, 30):
        least = monitor(days, tempered(1.4), per_day=30).smallest()
        assert least.fall is None or least.fall <= least.rate
        assert least.rise is None or least.rise <= 1.0 - least.rate


@pytest.mark.parametrize(
    ("chances", "armed"),
    [
        ([0.6, 0.75, 0.81, 0.78, 0.72, 0.83], [False, False, True, True, True, True]),
        ([0.81, 0.69, 0.75, 0.79, 0.8], [True, False, False, False, True]),
        ([0.81] + [0.75] * 8, [True] * 8 + [False]),
    ],
)
def test_the_word_stays_armed_while_the_chance_moves_about_the_target(chances, armed):
    class Scripted(Monitor):
        def _shows(self, waited):
            return chances[self.columns.shape[1] - 1] if not waited else 0.0

    every = [Scripted(np.zeros((3, n, 15)), LEVEL) for n in range(1, len(chances) + 1)]
    assert [one.armed_in == 0 for one in every] == armed


def change(smallest, word="not_armed", **more):
    return ChangeState(word, 900.0, smallest=smallest, since=START, **more).sentence


def test_what_would_show_names_the_direction_and_the_temperature():
    rare = SmallestChange(0.044, None, 0.057)
    assert change(rare, "none_seen", is_binary=True).endswith(
        "; scores that become too extreme (temperature of 1.6) or a rise of the rate of positive labels from 4.4 % to 10.1 % would show "
        "within 7 days; a fall would not."
    )
    fine = SmallestChange(0.5, 0.045, 0.048)
    assert change(fine, "none_seen", is_binary=True).endswith(
        "; a change of the rate of positive labels by 4.8 points would show within 7 days."
    )


def test_what_does_not_show_today_says_from_when_or_what_it_takes():
    smallest = SmallestChange(0.9, 0.069, None)
    begin = (
        "No change is seen in 900 labelled units since 17 Nov 2025, but smaller ones are undecided: today only a fall of accuracy from "
        "90.0 % to 83.1 % or more would show. "
    )
    assert change(smallest, armed_at=START + 9 * DAY_S) == (
        f"{begin}From 26 Nov 2025 on, 5 points or a temperature of 1.6 would show."
    )
    assert change(smallest, later=(START + 30 * DAY_S, 0.052)) == (
        f"{begin}From 17 Dec 2025 on, 5.2 points would show; less needs more labels a day, or longer periods."
    )
    assert change(smallest) == f"{begin}It takes more labels a day, or longer periods."
    assert change(None).endswith("but this is undecided: today none would show. It takes more labels a day, or longer periods.")  # fmt: skip
