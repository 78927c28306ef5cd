"""The alarm bets on scores as the active calibration map makes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant.core.time_texts import day_of
from calibrant.drift.cohort_tables import row_table
from calibrant_server.workers.alarm.alarm_commit import promotion
from tests.workers.alarm_days import BINARY, DAY_S, HOUR_S, START_S, Played

pytestmark = pytest.mark.one_server

PLATT = {
    "method": "platt",
    "scope": "positive",
    "class": None,
    "parameters": {"slope": 0.5, "intercept": 0.3, "clip": 1e-12},
}


def mapped_days(simulated, rng, days, with_ids=True, n=200):
    """Outcomes follow the mapped scores."""
    for day in days:
        p = rng.beta(0.7, 2.2, n)
        truth = expit(0.3 + 0.5 * logit(np.clip(p, 1e-12, 1 - 1e-12)))
        named = {"ids": [f"d{day}.{i}" for i in range(n)]} if with_ids else {}
        y = (rng.random(n) < truth).astype(int)
        yield simulated.predict(START_S + day * DAY_S, confidences=p, labels=y, **named)
        simulated.seal(day)


@pytest.mark.parametrize("with_ids", [True, False])
def test_bets_are_on_scores_as_the_map_active_makes_them(bench, with_ids):
    """Raw scores alarm; under the right map nothing does; what the map was fitted to is no evidence."""
    config = replace(BINARY, pane_s=DAY_S)
    simulated, rng = Played(bench, config), np.random.default_rng(8)
    list(mapped_days(simulated, rng, range(20), with_ids))
    assert simulated.detector().words.calibration == "off"
    simulated.promote(1, PLATT, START_S + 22 * DAY_S)
    detector = simulated.detector()
    last = START_S + 21 * DAY_S
    assert (detector.map_version, detector.begun, detector.last) == ("1", None, last)
    earlier = detector.total.columns
    list(mapped_days(simulated, rng, range(20, 22), with_ids))
    assert simulated.detector().begun is None
    [batch] = mapped_days(simulated, rng, [22], with_ids)
    table = row_table(batch, "score", "mean", PLATT)
    np.testing.assert_allclose(
        (simulated.detector().total.columns - earlier)[:3].sum(axis=1),
        table.columns[:3].sum(axis=1),
        rtol=1e-6,
    )
    if with_ids:
        found = simulated.detector().total.columns - earlier
        np.testing.assert_allclose(found, table.columns, atol=1e-4)
    list(mapped_days(simulated, rng, range(23, 34), with_ids))
    result = simulated.result()
    detector = result["detector"]
    assert (detector["n_cohorts"], result["map_version"], detector["scores"]) == (12, "1", "mapped")
    assert result["calibration"]["word"] != "off" and result["change"]["word"] != "changed"
    assert result["calibration"]["error"] < 2 * result["calibration"]["expected_at_most"]


def test_the_verdict_says_which_cohorts_the_map_closed_and_what_to_do(bench):
    """A map that was fitted to all data left "fewer than 20 labelled units", with thousands of labels."""
    simulated, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(8)
    simulated.promote(1, PLATT, START_S + 6 * DAY_S)
    list(mapped_days(simulated, rng, range(6)))
    result, end_s = simulated.result(), START_S + 6 * DAY_S
    assert result["status"] == "insufficient_data" and result["change"]["word"] == "not_armed"
    verdict_s = end_s + DAY_S + (simulated.config.label_horizon_s or 0)
    for part in (f"data up to {day_of(end_s)}", f"verdict is expected about {day_of(verdict_s)}"):
        assert part in result["detector_reason"]
    [_] = mapped_days(simulated, rng, [6], n=10)
    few = simulated.result()
    assert few["status"] == "insufficient_data" and few["calibration"]["n"] == 10
    assert "at least 50" in few["calibration"]["sentence"]


def test_bets_on_raw_scores_do_not_mind_a_promotion(bench):
    config = replace(BINARY, pane_s=DAY_S, alarm={"scores": "raw"})
    simulated, rng = Played(bench, config), np.random.default_rng(9)
    list(mapped_days(simulated, rng, range(3)))
    simulated.promote(1, PLATT, START_S + 8 * DAY_S)
    list(mapped_days(simulated, rng, range(3, 5)))
    assert simulated.result()["detector"]["n_cohorts"] == 5
    assert simulated.result()["map_version"] == "1"


def test_a_map_of_whole_rows_needs_rows_with_ids(bench):
    fitted = {
        "method": "temperature",
        "scope": "full",
        "class": None,
        "parameters": {"temperature": 2.0},
    }
    config = replace(BINARY, task="multiclass", n_classes=3, pane_s=DAY_S)
    simulated, rng = Played(bench, config), np.random.default_rng(10)
    simulated.promote(1, fitted, START_S)
    rows = rng.dirichlet([1, 1, 1], 40)
    batch = simulated.predict(
        START_S, probabilities=rows, labels=[0] * 40, ids=[f"i{i}" for i in range(40)]
    )
    simulated.seal(0)
    table = row_table(batch, "score", "mean", fitted)
    np.testing.assert_allclose(simulated.detector().total.columns, table.columns, atol=1e-4)
    assert simulated.detector().map_version == "1"
    simulated.predict(START_S + DAY_S, probabilities=rows, labels=[0] * 40)
    simulated.seal(1)
    assert simulated.detector().why_passed == "whole_rows"


def test_sums_of_shared_units_are_mapped(bench):
    """Without ids and with units of several rows, as pixels come: the alarm goes on under a map, and stays quiet."""
    simulated, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(13)
    simulated.promote(1, PLATT, START_S)
    for day in range(6):
        p = rng.beta(0.7, 2.2, (100, 3))
        truth = expit(0.3 + 0.5 * logit(np.clip(p, 1e-12, 1 - 1e-12)))
        y = (rng.random((100, 1)) < truth).astype(int)
        units = [f"d{day}.{i}" for i in range(100) for _ in range(3)]
        simulated.predict(
            START_S + day * DAY_S, confidences=p.ravel(), labels=y.ravel(), units=units
        )
        simulated.seal(day)
    result = simulated.result()
    assert (result["detector"]["n_cohorts"], result["cohorts_passed_over"]["n"]) == (6, 0)
    assert result["calibration"]["n"] == pytest.approx(600) and result["map_version"] == "1"
    assert result["calibration"]["word"] != "off"


def test_a_map_that_is_gone_passes_cohorts_over(bench):
    simulated = Played(bench, replace(BINARY, pane_s=DAY_S))
    simulated.order(promotion("7"))
    simulated.predict(START_S, confidences=[0.2], labels=[0], ids=["a"])
    simulated.seal(0)
    assert simulated.detector().why_passed == "map_lost"
    result = simulated.result()
    assert result["status"] == "insufficient_data"
    assert "cannot be read" in result["change"]["sentence"]


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("hours", [[8], [8, 15]])
def test_a_day_that_is_partly_sealed_at_a_promotion_counts_mapped_scores_only(
    bench, with_ids, hours
):
    """Without ids, what was sealed before the promotion does not count: its table is of scores as sent."""
    simulated, rng = Played(bench, BINARY), np.random.default_rng(8)
    day_s, sent = START_S + DAY_S, []
    for start_s in [START_S + 8 * HOUR_S, *(day_s + hour * HOUR_S for hour in hours)]:
        p = rng.beta(0.7, 2.2, 200)
        labels = (rng.random(200) < expit(0.3 + 0.5 * logit(p))).astype(int)
        named = {"ids": [f"{start_s}.{i}" for i in range(200)]} if with_ids else {}
        sent.append(simulated.predict(start_s, confidences=p, labels=labels, **named))
    simulated.seal(0)
    simulated.sealing.seal(simulated.config, day_s + 9 * HOUR_S + DAY_S)
    before = simulated.detector().total.columns
    simulated.promote(1, PLATT, day_s)
    simulated.seal(1)
    detector, counted = simulated.detector(), sent[1:] if with_ids else sent[2:]
    found = (detector.total.columns - before)[:3].sum(axis=1)
    mapped = [row_table(each, "score", "mean", PLATT).columns[:3].sum(axis=1) for each in counted]
    np.testing.assert_allclose(found, np.sum(mapped, axis=0) if mapped else 0.0, rtol=1e-5)
    assert detector.begun == (day_s if counted else None)
    assert detector.why_passed == (None if counted else "before_map")
    if not counted:
        assert "sealed before the calibration map was promoted" in simulated.result()["detector_reason"]  # fmt: skip


@pytest.mark.parametrize("is_multiclass", [False, True])
def test_without_a_horizon_labels_after_the_data_of_the_fit_judge_the_map(bench, is_multiclass):
    """1,200 of them gave n = 0 and "no label of a prediction after its data is complete"."""
    config = replace(BINARY, label_horizon_s=None, alarm={})
    if is_multiclass:
        config = replace(config, task="multiclass", n_classes=3)
    simulated, rng = Played(bench, config), np.random.default_rng(21)
    fitted = PLATT
    if is_multiclass:
        fitted = PLATT | {"method": "temperature", "scope": "full", "parameters": {"temperature": 2.0}}  # fmt: skip
    simulated.promote(1, fitted, START_S + DAY_S)
    before = simulated.result()["calibration"]
    assert before["n"] == 0
    assert before["sentence"] == "Not known: map version 1 is in use, and no labelled prediction came after the data of its fit."  # fmt: skip
    for start_s in (START_S, START_S + DAY_S + HOUR_S):
        p = rng.dirichlet([1, 1, 1], 1200) if is_multiclass else rng.beta(0.7, 2.2, 1200)
        if is_multiclass:
            truth = p**0.5 / (p**0.5).sum(axis=1, keepdims=True)
            labels = (truth.cumsum(axis=1) > rng.random((1200, 1))).argmax(axis=1)
            batch = simulated.predict(start_s, probabilities=p, labels=labels)
        else:
            labels = (rng.random(1200) < expit(0.3 + 0.5 * logit(p))).astype(int)
            batch = simulated.predict(start_s, confidences=p, labels=labels)
    found = simulated.result()["calibration"]
    mapped = row_table(batch, "score", "mean", fitted)
    if not is_multiclass:
        assert found["n"] == 1200 and found["error"] == pytest.approx(mapped.ece, abs=1e-3)
    assert 0 < found["n"] <= 1200 and found["error"] < found["expected_at_most"]
