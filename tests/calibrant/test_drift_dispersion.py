"""Variation between cohorts, and pending labels: what the evidence makes of them, and when it only warns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit

from benchmarks import drift_simulation as simulation
from calibrant.drift.bets import bets_of
from calibrant.drift.detector import advance, fresh
from calibrant.drift.dispersion import RUN_IN, SETTLED, SPANS, Dispersion, standardised
from calibrant.drift.evidence import log_bets
from calibrant.drift.expected_delay import SimulatedChange
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.drift.verdict import verdict
from calibrant.drift.warnings import warnings_of

NONE = Tolerance.within(0.0)


def seen(days):
    dispersion = Dispersion.none()
    for weight, confidence, correct in days:
        dispersion = dispersion.updated(weight[0], confidence[0], correct[0])
    return dispersion


def naive(days):
    """The estimates from their definition, without forgetting and without a bound of a difference."""
    z, total = [], np.zeros((2, 15))
    x = logit((np.arange(15) + 0.5) / 15)
    for weight, confidence, correct in days:
        w, p, y = weight[0], confidence[0], correct[0]
        total += [w, y]
        rate = (total[1] + 0.5) / (total[0] + 1.0)
        mean = np.divide(p, w, out=np.zeros(15), where=w > 0)
        binomial = w * mean * (1 - mean)
        centred = x - (binomial * x).sum() / binomial.sum()
        larger = np.maximum(binomial, w * rate * (1 - rate))
        z.append(
            [
                (y - p).sum() / larger.sum() ** 0.5,
                (centred * (y - p)).sum() / (centred**2 * larger).sum() ** 0.5,
            ]
        )
    z = np.array(z)
    found = []
    for span in SPANS:
        sums = np.array([z[t : t + span].sum(axis=0) for t in range(len(z) - span + 1)])  # type: ignore[attr-defined]
        found.append(((sums[span:] - sums[:-span]) ** 2 / (2 * span)).mean(axis=0))
    return np.array(found).T


def test_estimates_are_mean_squared_differences(monkeypatch):
    monkeypatch.setattr("calibrant.drift.dispersion.MEMORY", 1e12)
    monkeypatch.setattr("calibrant.drift.dispersion._LARGEST", 1e12)
    monkeypatch.setattr("calibrant.drift.dispersion._LEFT", 1.0)
    days = list(simulation.day_effects(1, 1, 100, 0.3))[:60]
    assert seen(days).by_span == pytest.approx(naive(days), rel=1e-9)


def test_the_first_cohorts_count_as_one_unit_each():
    """Then the evidence is valid under any dependence inside a cohort."""
    days = list(simulation.records(1, 1, 50, n_days=RUN_IN + 1))
    for n in (0, 5, RUN_IN - 1):
        assert seen(days[:n]).phi(np.asarray(50.0), np.asarray(5.0)) == 50.0
    assert seen(days).phi(np.asarray(50.0), np.asarray(5.0)) < 10.0


def test_a_factor_does_not_depend_on_the_labels_of_its_cohort():
    """It is at least 1, at most the units, and larger for a cohort that is larger than usual."""
    dispersion = seen(list(simulation.day_effects(2, 1, 200, 0.4))[:90])
    usual, large = (
        float(dispersion.phi(np.asarray(n), np.asarray(n / 8.0))) for n in (200.0, 800.0)
    )
    assert 3.0 < usual < 9.0 and large > 2.0 * usual
    assert dispersion.phi(np.asarray(2.0), np.asarray(0.2)) == 2.0


def test_day_effects_do_not_alarm_and_are_reported():
    """The defect: every such year alarmed, silently."""
    for correlation, delta in ((0.0, 0.02), (0.8, 0.02), (0.8, 0.0)):
        end = simulation.simulate(simulation.day_effects(4, 16, 200, 0.4, correlation), 16, delta)
        assert end.false_rate("plain") == 1.0
        # At most 10 % of years: 6 of 16 or more have a probability of 0.003.
        assert end.false_rate() <= 5 / 16 and end.warned.mean() >= 0.8


def test_independent_days_are_rarely_reported_and_lose_little():
    end = simulation.simulate(simulation.records(5, 40, 100), 40)
    assert end.warned.mean() <= 0.1
    rate = simulation.changed(SimulatedChange(slope=0.6))
    found = simulation.simulate(simulation.records(6, 16, 100, rate, 160), 16)
    assert found.median_delay() <= found.median_delay("plain") + 3


def test_a_change_is_found_under_day_effects():
    rate = simulation.changed(SimulatedChange(slope=0.4))
    found = simulation.simulate(simulation.day_effects(7, 16, 200, 0.2, 0.0, rate), 16)
    assert found.false_rate(before=simulation.CHANGED_AT) <= 0.2 and found.median_delay() <= 20


def test_only_the_plain_statistic_is_a_watch_with_the_named_warning():
    state, tables = (
        fresh(NONE),
        list(simulation.tables(simulation.day_effects(8, 1, 200, 0.5)))[:120],
    )
    for day, table in enumerate(tables):
        state = advance(state, day, table, 3650.0)
        if day > SETTLED and state.log_plain_sr > np.log(3650.0):
            break
    assert state.alarmed_at is None and state.log_plain_sr > np.log(3650.0)
    result = verdict(state, 3650.0, 3650.0, merged(tables), merged(tables))
    assert result["status"] == "watch" and "over_dispersed" in result["reason"]
    assert "over_dispersed" in {each["code"] for each in result["warnings"]}
    assert result["dispersion"]["phi"] > 2 and result["dispersion"]["evidence"] == "approximate"


def test_correlated_cohorts_raise_no_alarm():
    """Evidence of cohorts that move together counts nothing once that is known."""
    state, n_correlated = fresh(NONE), 0
    for day, table in enumerate(simulation.tables(simulation.day_effects(3, 1, 200, 0.4, 0.8))):
        n_correlated += bool(state.dispersion.is_correlated)
        state = advance(state, day, table, 3650.0)
        if n_correlated == 120:
            break
    assert n_correlated == 120 and state.log_plain_sr > 2 * np.log(3650.0)
    assert state.alarmed_at is None


def test_pending_labels_take_their_least_favourable_value():
    """Evidence with pending units is at most that of every way in which their labels and scores may turn out."""
    rng, bets = np.random.default_rng(9), bets_of(15)
    score = rng.beta(0.7, 2.2, 300)
    label = (rng.random(300) < score).astype(float)
    known = rng.random(300) < 0.7
    table = UnitTable.at_scores(score[known], np.ones(known.sum()), label[known])
    pending = UnitTable.at_scores(score[~known], np.ones((~known).sum()), label[~known]).weight
    least = log_bets(*table.columns[:3], bets, NONE, pending)
    assert (least <= log_bets(*table.columns[:3], bets, NONE) + 1e-12).all()
    for outcome in (np.zeros(300), np.ones(300), label):
        complete = UnitTable.at_scores(score, np.ones(300), np.where(known, label, outcome))
        # Scores of a bin count at its mean, which lowers evidence by a little.
        assert (least <= log_bets(*complete.columns[:3], bets, NONE) + 0.05).all()


def test_late_labels_of_one_class_do_not_alarm_and_are_a_watch():
    """The defect: a calibrated model alarmed in every year if positives were labelled later."""
    end = simulation.simulate(simulation.pending_labels(10, 12, 100, 14), 12, 0.02)
    assert end.false_rate("plain") == 1.0 and end.false_rate() == 0.0 and end.watch_rate == 1.0
    state = fresh(NONE)
    for day, (weight, confidence, correct, pending) in enumerate(
        simulation.pending_labels(11, 1, 100, 14)
    ):
        table = UnitTable(weight[0], confidence[0], correct[0], weight[0], weight[0] + pending[0])
        state = advance(state, day, table, 3650.0, None, pending[0])
        if day == 100:
            break
    assert state.alarmed_at is None and state.n_pending > 90
    assert "labels_pending" in {each["code"] for each in warnings_of(state, 3650.0)}


def long_run(gaps: np.ndarray) -> float:
    """Naive second version of the long-run variance of 100 gaps."""
    gaps = gaps - gaps.mean()
    lagged = [(gaps[lag:] * gaps[: 100 - lag]).sum() for lag in range(7)]
    return float(sum((1 + (lag > 0)) * (1 - lag / 7) * lagged[lag] for lag in range(7)) / 86)


def correlated_gaps(n: int, correlation: float) -> np.ndarray:
    """Gaps with mean 0, variance 1 and this correlation of neighbours."""
    rng = np.random.default_rng(3)
    basis = rng.normal(size=n)
    basis = (basis - basis.mean()) / basis.std()
    for _ in range(200):
        neighbours = (np.roll(basis, 1) + np.roll(basis, -1)) / 2
        basis = basis + 0.2 * (correlation - (basis[1:] * basis[:-1]).sum() / n) * neighbours
        basis = (basis - basis.mean()) / basis.std()
    return basis


def test_caution_is_the_long_run_variance_before_a_change():
    """Independent cohorts need hardly more evidence, correlated ones several times as much, unknown ones as well."""
    assert Dispersion.none().caution == 4.0
    calm = seen(list(simulation.records(12, 1, 100))[:100])
    moved = seen(list(simulation.day_effects(12, 1, 200, 0.4, 0.8))[:100])
    assert calm.caution < 2.0 and moved.caution > 5.0
    naive = max(long_run(each[-100:]) for each in moved.history)
    assert moved.caution == pytest.approx(naive * (1 + 1.5 * (4 * 7 / 300) ** 0.5))
    # After 28 cohorts, it is the estimate itself where neighbours do not correlate, and its upper limit where they do.
    for correlation, factor in ((0.03, 1.0), (0.25, 1 + 1.5 * (4 * 7 / 300) ** 0.5)):
        history = np.full((2, 120), np.nan)
        history[:, -100:] = correlated_gaps(100, correlation)
        known = replace(moved, history=history)
        assert known.caution == pytest.approx(factor * max(long_run(history[0, -100:]), 1.0))
    # A stable offset is no variation.
    offset = seen(list(simulation.records(13, 1, 2000, lambda p, day: p + 0.02 * (1 - p)))[:100])
    assert abs(offset.history[0, -100:].mean()) > 1.0 and offset.caution < 2.5


def test_a_clear_change_soon_after_the_run_in_is_found():
    """It is not taken for variation between cohorts while it is withheld."""
    rate = simulation.changed(SimulatedChange(slope=0.4), 20)
    found = simulation.simulate(simulation.records(14, 24, 200, rate, 60), 24)
    assert found.median_delay(since=20) <= 10


def test_settings_of_the_estimate_are_in_order():
    assert RUN_IN < SETTLED and SPANS == (1, 7)
    z, variance = standardised(np.zeros(15), np.zeros(15), np.zeros(15))
    assert not z.any() and variance == 0.0
    empty = Dispersion.none().updated(np.zeros(15), np.zeros(15), np.zeros(15))
    assert empty.n_cohorts == 0 and np.isnan(empty.history).all()
