"""The word of calibration, the power of the rule of change, and the shift of scores: hand values and simulated models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from benchmarks.drift.days import normal_logits, same, simulate, tempered
from benchmarks.drift.detector import calibration_words
from calibrant.core.smallest_change import SmallestChange
from calibrant.drift.calibration import (
    BinnedError,
    Judgement,
    Word,
    held_word,
    judge,
    phi_of,
    selection_of,
)
from calibrant.drift.change import Effects
from calibrant.drift.evaluation import Monitor
from calibrant.drift.unit_tables import UnitTable
from calibrant.drift.unlabelled_scores import Shift, psi, shift_of
from calibrant.drift.words import CalibrationState, ChangeState, ScoresState

LEVEL = 1.0 / 3650.0


def table_of(n=400.0, gap=0.0, bins=15):
    weight = np.full(bins, n / bins)
    confidence = weight * (np.arange(bins) + 0.5) / bins
    correct = np.clip(confidence + gap * weight, 0.0, weight)
    return UnitTable(weight, confidence, correct, weight, weight)


@pytest.mark.parametrize("bins", [1, 3, 15])
def test_the_null_quantile_is_at_least_the_simulated_one(bins):
    noise = np.random.default_rng(bins).uniform(0.002, 0.01, bins)
    drawn = np.abs(np.random.default_rng(0).normal(size=(400_000, bins)) * noise).sum(1)
    found = BinnedError(np.array(0.0), noise, np.array(1.0))
    for level in (0.05, 0.001):
        share = (drawn > found.null_quantile(level)).mean()
        assert 0.3 * level < share < 1.12 * level


@pytest.mark.parametrize("gaps", [np.zeros(15), np.full(15, 0.01), np.eye(15)[4] * 0.1])
def test_the_upper_limit_misses_the_true_error_at_most_one_time_in_twenty(gaps):
    noise = np.full(15, 0.0012)
    true = np.abs(gaps).sum() / 15
    error = np.abs(np.random.default_rng(0).normal(gaps / 15, noise, (4000, 15))).sum(1)
    found = BinnedError(error, np.tile(noise, (4000, 1)), np.full(4000, 1.0))
    assert (found.upper < true).mean() <= 0.06


def test_words_of_clear_tables():
    assert judge(table_of(49.0)).word == "unknown" and judge(table_of(49.0)).limit is None
    assert judge(table_of(6000.0)).word == "good"
    off = judge(table_of(400.0, 0.3))
    assert off.word == "off" and off.at_once and 0.02 < off.limit < off.error
    between = judge(table_of(400.0, 0.03))
    assert between.word == "unknown" and between.n_more > 0
    assert judge(table_of(6000.0, 0.04), tolerance=0.05).word != "off"


def test_more_variance_between_cohorts_needs_a_larger_error():
    table = table_of(1500.0, 0.09)
    assert judge(table).word == "off" and judge(table, phi=6.0).word == "unknown"


@pytest.mark.parametrize("day_sd", [0.0, 0.4])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_noise_is_the_actual_one_also_of_scores_that_are_too_extreme(temperature, day_sd):
    # At T = 2.5, p(1 − p) is half the variance of the outcomes: it must not enter both φ and the variance of a bin.
    rng = np.random.default_rng(0)
    days = simulate(rng, 400, 28, tempered(temperature), effects=rng.normal(0.0, day_sd, (400, 28)))
    found = BinnedError.of(days.columns.sum(axis=-2), phi_of(days.columns[:3]))
    errors = (days.correct - days.confidence).sum(axis=(-1, -2)) / found.n_units
    stated = np.sqrt((found.noise**2).sum(axis=-1)).mean()
    assert 0.9 < stated / errors.std() < 1.15


def test_a_word_turns_after_two_cohorts():
    off, good = Judgement("off", 0.1, 0.2, 0.1, 100.0), Judgement("good", 0.0, 0.0, 0.0, 100.0)
    assert held_word("good", "good", off) == "good" and held_word("good", "off", off) == "off"
    assert held_word("off", "off", good) == "off" and held_word("off", "good", good) == "good"
    at_once = Judgement("off", 0.5, 0.6, 0.1, 100.0, at_once=True)
    assert held_word("good", "good", at_once) == "off"


def test_calibrated_models_are_never_off_and_wrong_ones_are_from_the_second_day():
    off, good = calibration_words(simulate(np.random.default_rng(0), 20, 60))
    assert not off.any() and good[:, 40:].mean() > 0.2
    wrong = simulate(np.random.default_rng(0), 20, 10, lambda p, day: 0.35 + 0.3 * p, normal_logits(4.0))  # fmt: skip
    off, good = calibration_words(wrong)
    assert off[:, 1:].all() and not good.any()


def test_selection_of_labels_has_bounds():
    table = table_of(400.0)
    full = np.full((2, 15), 27)
    assert not selection_of(table.counted(full)).is_partial
    few = np.stack([np.full(15, 270), np.full(15, 27)])
    wide = UnitTable(
        table.weight, table.confidence, table.correct, table.squared, 10 * table.weight
    )
    found = selection_of(wide.counted(few))
    # 9 of 10 units are unlabelled: the worst labels give .9 · max(p, 1 − p) on average over the bins.
    p = (np.arange(15) + 0.5) / 15
    assert found.bounds == pytest.approx((0.0, 0.9 * np.maximum(p, 1 - p).mean()))
    by_score = np.stack([np.full(15, 100), np.repeat([99, 99, 99, 99, 85], 3)])
    assert (
        selection_of(table.counted(by_score)).differs
        and selection_of(table.counted(by_score)).is_partial
    )


def monitor(n_before, per_day=200, truth=same, seed=0):
    """Return what could be shown after some simulated days."""
    days = simulate(np.random.default_rng(seed), 1, n_before, truth, per_day=per_day)
    return Monitor(days.columns[:3, 0], LEVEL)


def test_power_grows_with_days_and_volume():
    found = {n: [monitor(n, seed=seed) for seed in range(8)] for n in (5, 10, 20, 60)}
    power = [np.median([one.power(one.slope_gap(0.625)) for one in found[n]]) for n in found]
    assert power == sorted(power) and power[-1] > 0.95 and power[0] < 0.1
    assert monitor(4).power(monitor(4).slope_gap(0.625)) == 0.0
    assert monitor(30).armed_in == 0 and 0 < monitor(7).armed_in < 15
    assert monitor(30, 10).armed_in is None
    assert monitor(60).smallest().points < monitor(10).smallest().points


def test_a_change_towards_the_scores_is_not_one_for_the_worse():
    too_often = monitor(30, truth=lambda p, day: expit(logit(p) + 1.0))
    assert too_often.power(too_often.points_gap(0.12)) < 0.1 < too_often.smallest().fall
    assert too_often.power(too_often.points_gap(-0.12)) > 0.9


@pytest.mark.parametrize(
    ("scores", "before"),
    [
        (None, same),
        # a confidence of about .98 that is right in .9 of cases: p (1 − p) is four times too small
        (lambda rng, shape, day: expit(rng.normal(4.0, 0.7, shape)), tempered(1.8)),
    ],
)
def test_a_change_of_the_smallest_size_is_found_in_four_of_five_weeks(scores, before):
    from benchmarks.drift.detector import armed_after, first_change

    past = simulate(np.random.default_rng(3), 8, 30, before, scores)
    points = float(np.median([armed_after(past, run, 30).smallest().fall for run in range(8)]))

    def truth(p, day):
        rate = before(p, day)
        variance = rate * (1.0 - rate)
        return rate - (day >= 30) * points * variance / variance.mean()

    first = first_change(simulate(np.random.default_rng(4), 100, 37, truth, scores))
    assert 0.75 <= (first < 37).mean() <= 0.97 and (first < 30).mean() <= 0.02


def test_gaps_are_changes_of_the_rates():
    one = monitor(30)
    weight, rate = one.columns[0].sum(axis=0), one.rate
    assert weight @ one.points_gap(0.05) / weight.sum() == pytest.approx(-0.05)
    assert logit(rate + one.slope_gap(0.5)) == pytest.approx(0.5 * logit(rate))
    assert rate == pytest.approx((np.arange(15) + 0.5) / 15, abs=0.05)


def test_scores_that_shift_are_found_and_others_are_not():
    shifted = simulate(np.random.default_rng(0), 10, 33, scores=normal_logits(shift=1.0, at=30))
    found = [shift_of(each, [day % 7 for day in range(33)]) for each in shifted.occupancy]
    assert all(each.is_shifted and 29 <= each.start <= 31 for each in found)
    same = simulate(np.random.default_rng(1), 10, 60).occupancy
    assert not any(shift_of(each[:day]).is_shifted for each in same for day in range(20, 61, 5))


def test_scores_of_weekends_are_compared_with_weekends():
    scores = lambda rng, shape, day: normal_logits(2.0, 0.8 * (day % 7 >= 5))(rng, shape, day)  # noqa: E731
    days = simulate(np.random.default_rng(0), 5, 49, scores=scores).occupancy
    assert not any(shift_of(each, [day % 7 for day in range(49)]).is_shifted for each in days)


def test_few_days_have_no_shift_and_psi_is_symmetric():
    assert shift_of(np.full((7, 15), 10.0)) is None
    one, other = np.array([10.0, 30.0]), np.array([20.0, 20.0])
    assert psi(one, other) == pytest.approx(psi(other, one)) and psi(one, one) == 0.0


def test_empty_cohorts_do_not_count():
    days = np.full((20, 15), 20.0)
    gaps = np.insert(days, [3, 9], np.zeros((2, 15)), axis=0)
    assert shift_of(days) == shift_of(gaps)
    assert Effects.of(gaps, gaps / 2, gaps / 2).variance[3].max() == 0.0


def test_a_change_of_the_level_is_stated_from_the_mean_score():
    score, n, right = np.array([0.5]), np.array([1000.0]), np.array([500.0])
    sides = tuple(UnitTable.at_scores(score + less, n, right, 15) for less in (0.012, -0.06))
    changed = ChangeState(
        "changed", n_units=1000, start=1_763_337_600, earliest=1_763_337_600, latest=1_763_337_600,
        sides=sides, is_binary=True, events=(("scanner: B", 1_763_337_600),),
    )  # fmt: skip
    assert changed.sentence == (
        "Changed about 17 Nov 2025, about the time of scanner: B (17 Nov 2025): the rate of positive labels was 1 point below the mean "
        "score before, and is now 6 points above the mean score (1,000 labelled units since)."
    )


def test_a_change_of_the_slope_is_stated_as_such():
    """Scores that became too extreme are also above or below the rate on average: that is not what happened."""
    score, n, right = np.array([0.05, 0.3, 0.95]), np.full(3, 1000.0), np.array([50.0, 300.0, 950.0])  # fmt: skip
    higher, less = np.array([0.12, 0.33, 0.99]), np.array([190.0, 370.0, 770.0])
    sides = UnitTable.at_scores(score, n, right, 15), UnitTable.at_scores(higher, n, less, 15)
    changed = ChangeState("changed", 3000, 1, 1, 1, sides, is_binary=True)
    assert changed.sentence.endswith(
        "and is now 4 points below the mean score; also, scores became too extreme (3,000 labelled units since)."
    ), changed.sentence
    of_slope = replace(changed, direction="slope")
    assert of_slope.sentence.endswith(": scores became too extreme (3,000 labelled units since).")


def test_scores_that_shifted_do_not_ask_for_labels_that_are_known():
    shifted = Shift(True, 0.4, 0.13)
    assert ScoresState.of(shifted, True).sentence == "The scores shifted (population stability index 0.40, limit 0.13)."  # fmt: skip
    assert ScoresState.of(shifted, False).sentence.endswith(
        "whether the model is still calibrated."
    )


@pytest.mark.parametrize(
    ("shown", "found", "sentence"),
    [
        ("good", Judgement("unknown", 0.17, 0.14, 0.08, 400.0), "Good before; now the error may be up to 0.17"),
        ("good", Judgement("off", 0.06, 0.14, 0.08, 400.0), "Good before; now the error is at least 0.06"),
        ("off", Judgement("good", 0.04, 0.02, 0.08, 400.0), "Off before; now the error is at most 0.04"),
        ("good", Judgement("good", 0.04, 0.02, 0.08, 400.0), "Good: the error is at most 0.04"),
        ("off", Judgement("off", 0.06, 0.14, 0.08, 400.0), "Off by at least 0.06"),
    ],
)  # fmt: skip
def test_a_word_that_the_last_cohorts_do_not_confirm_is_said_to_be_of_before(
    shown: Word, found: Judgement, sentence: str
) -> None:
    expected = f"{sentence} (allowed 0.05), measured on 400 labelled units."
    assert CalibrationState(shown, found, 0.05).sentence == expected


def test_a_sentence_states_the_period_of_its_labels():
    found = Judgement("off", 0.06, 0.14, 0.08, 400.0)
    days = (1_763_337_600, 1_763_337_600 + 3 * 86_400)
    of_change = CalibrationState("off", found, 0.05, period=days, is_since_change=True)
    assert of_change.sentence == (
        "Off since the change, by at least 0.06 (allowed 0.05), measured on 400 labelled units of 17 Nov 2025 to 19 Nov 2025."
    )
    few = replace(found, word="unknown", limit=None, n_units=30.0)
    assert replace(of_change, word="unknown", judgement=few).sentence == (
        "Not known: there are 30 labelled units since the change, and at least 50 are needed."
    )
    seen = ChangeState(
        "none_seen", 900.0, smallest=SmallestChange(0.9, 0.05, 0.2), cohort_s=3600, since=days[0]
    )
    assert seen.sentence == (
        "No change is seen in 900 labelled units since 17 Nov 2025 00:00; a fall of accuracy from 90.0 % to 85.0 % would show within 7 hours."
    )


def test_while_a_history_is_being_evaluated_the_sentence_says_so():
    behind = ChangeState("not_armed", 900.0, armed_at=1_763_337_600, evaluated_to=1_763_337_600)
    assert behind.sentence == (
        "No change is seen so far: the posted history is evaluated up to 17 Nov 2025, and the rest is being evaluated."
    )


def test_the_error_since_a_change_comes_before_what_would_decide():
    found = Judgement("unknown", 0.17, 0.13, 0.09, 400.0, 700, "off")
    shown = CalibrationState("unknown", found, 0.02, is_since_change=True)
    assert shown.sentence == (
        "The error since the change is 0.13 (of a calibrated model at most 0.09), and may be up to 0.17 (allowed 0.02), measured on "
        "400 labelled units; at the present error, about 700 more labelled units would show it to be off."
    )


def test_the_error_of_a_slice_that_is_off_is_a_lower_limit():
    found = Judgement("good", 0.01, 0.01, 0.02, 9000.0)
    shown = CalibrationState("good", found, 0.02, slices_off={"site:A": 0.048, "site:C": 0.062, "site:B": 0.0}, n_slices=3)  # fmt: skip
    assert "; site:C off by at least 0.062, site:A off by at least 0.048, site:B off (3 of 3 slices)." in shown.sentence  # fmt: skip
