"""The detector: order, repeats, replays, bytes; alarms false and right; the verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from benchmarks import drift_simulation as simulation
from calibrant.core.packing import PackingError, pack
from calibrant.drift.bets import bets_of
from calibrant.drift.detector import (
    _factor,
    acknowledge,
    advance,
    fresh,
)
from calibrant.drift.dispersion import RUN_IN, Dispersion
from calibrant.drift.effect import effect, recalibration
from calibrant.drift.evidence import log_bets
from calibrant.drift.expected_delay import SimulatedChange, expected_delay
from calibrant.drift.packed_state import pack_state, unpack_state
from calibrant.drift.score_shift import advance_watch, begin_watch
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.drift.verdict import rater_or_model, tends_towards, verdict

GOLDEN = Path(__file__).parent / "golden" / "drift_detector_1.bin"
SLOPE = SimulatedChange(slope=0.75)
NONE = Tolerance.within(0.0)


def days(seed=0, n_days=30, at=10, change=SLOPE, per_day=200):
    return list(
        simulation.tables(
            simulation.records(seed, 1, per_day, simulation.changed(change, at), n_days)
        )
    )


def watched(tables, delta=0.0, threshold=3650.0, first=0):
    state = fresh(Tolerance.within(delta))
    for cohort, table in enumerate(tables, first):
        state = advance(state, cohort, table, threshold)
    return state


def expected_table(change=SLOPE, n=10_000.0):
    """A table without chance: every bin's labels are exactly as likely as the change says."""
    score = (np.arange(15) + 0.5) / 15
    weight = np.full(15, n / 15)
    rate = expit(change.intercept + change.slope * logit(score))
    return UnitTable(weight, weight * score, weight * rate, weight, weight)


def test_state_equals_the_sums_over_all_starts():
    tables, bets = days(), bets_of(15)
    states = [watched(tables[:n]) for n in range(len(tables) + 1)]
    state = states[-1]
    plain = np.array([log_bets(t.weight, t.confidence, t.correct, bets, NONE) for t in tables])
    factors = np.array([_factor(s.dispersion, t) for s, t in zip(states, tables, strict=False)])
    gains = plain / factors[:, None]
    assert (factors[:RUN_IN] == 200.0).all() and (factors >= 1.0).all()
    everything = np.exp(bets.log_weights) * np.exp([plain[s:].sum(axis=0) for s in range(30)])
    assert np.exp(state.log_plain_sr) == pytest.approx(everything.sum())
    weights = np.exp(bets.log_weights)
    sums = np.array([gains[s:].sum(axis=0) for s in range(len(gains))])
    assert np.exp(state.log_uncautious_sr) == pytest.approx((weights * np.exp(sums)).sum())
    assert np.exp(state.log_mixed_evidence) == pytest.approx((weights * np.exp(sums[0])).sum())
    heaviest = int(np.argmax(weights * np.exp(sums).sum(axis=0)))
    assert state.heaviest_bet == heaviest
    start = int(np.argmax(sums[:, heaviest]))
    assert state.start_of_change == start
    assert state.caution[heaviest] == states[start].dispersion.caution >= 1.0
    running = [(weights * np.exp(gains[: t + 1].sum(axis=0))).sum() for t in range(len(gains))]
    assert state.anytime_p == pytest.approx(min(1.0, 1.0 / max(running)))


def test_repeats_are_ignored_and_replays_give_the_same_bytes():
    tables = days()
    once = watched(tables)
    state = fresh(NONE)
    for cohort, table in enumerate(tables):
        state = advance(state, cohort, table, 3650.0)
        if cohort == 12:
            state = unpack_state(pack_state(state))
        for earlier in range(cohort + 1):
            assert advance(state, earlier, tables[0], 3650.0) is state
    assert pack_state(state) == pack_state(once)


def test_cohorts_passed_over_are_closed():
    tables = days(n_days=3)
    state = advance(advance(fresh(NONE), 5, tables[0], 10.0), 9, tables[1], 10.0)
    assert advance(state, 7, tables[2], 10.0) is state
    assert state.n_cohorts == 2
    assert fresh(NONE, after=4).last == 4


def test_empty_cohorts_bring_no_evidence():
    state = watched([UnitTable.empty()] * 7)
    assert np.exp(state.log_uncautious_sr) == pytest.approx(7.0)
    assert state.log_mixed_evidence == pytest.approx(0.0, abs=1e-12)
    assert state.anytime_p == pytest.approx(1.0)
    assert fresh(NONE).start_of_change is None


def test_acknowledged_alarms_start_again():
    state = watched(days(n_days=40, at=15, change=SimulatedChange(slope=0.3)), threshold=100.0)
    assert state.alarmed_at is not None
    noted = acknowledge(state)
    assert noted.alarmed_at is None
    assert noted.acknowledged_at == state.last
    assert noted.log_mixed_evidence == state.log_mixed_evidence
    assert acknowledge(noted) is noted
    ahead = advance(noted, 40, UnitTable.empty(), 100.0)
    assert np.exp(ahead.log_mixed_sr) == pytest.approx(1.0)
    assert ahead.start_of_change == 40


def test_state_is_small_and_comes_back_to_the_bit():
    state = replace(watched(days()), map_version="t-3", acknowledged_at=2)
    data = pack_state(state)
    again = unpack_state(data)
    assert pack_state(again) == data
    for name in ("log_sr", "log_evidence", "lowest", "since", "plain_sr"):
        assert (getattr(again, name) == getattr(state, name)).all()
    assert len(data) < 8000
    assert pack_state(unpack_state(pack_state(fresh(NONE)))) == pack_state(fresh(NONE))


def test_the_first_format_is_read_forever():
    state = unpack_state(GOLDEN.read_bytes())
    again = watched(days(seed=11), 0.02, first=100)
    assert (state.last, state.n_cohorts) == (129, 30)
    # Format 1 had no tempering: its statistic is today's plain one, and the variation between its cohorts is not known.
    for name in ("log_sr", "plain_sr"):
        assert getattr(state, name) == pytest.approx(again.plain_sr, rel=1e-9)
    assert state.dispersion.n_cohorts == 0
    assert unpack_state(pack_state(state)).since.tolist() == state.since.tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"since": np.zeros(3, np.int64)},
        {"log_sr": np.full(134, np.inf)},
        {"log_evidence": np.full(134, np.nan)},
        {"plain_sr": np.zeros(3)},
        {"dispersion": Dispersion.none((2,))},
        {"peak": -1.0},
        {"last": 1.5},
        {"n_cohorts": -1},
        {"map_version": 3},
        {"tolerance": Tolerance(np.ones(15), np.zeros(15))},
    ],
)
def test_other_states_are_rejected(change):
    with pytest.raises(PackingError):
        unpack_state(pack_state(replace(watched(days(n_days=2)), **change)))


def test_other_bytes_are_rejected():
    with pytest.raises(PackingError):
        unpack_state(pack({}, {}))
    with pytest.raises(PackingError):
        unpack_state(pack_state(fresh(NONE))[:-1])


def test_tables_that_are_none_are_rejected():
    with pytest.raises(ValueError):
        advance(fresh(NONE), 0, UnitTable.empty(10), 10.0)
    one = np.ones(15)
    with pytest.raises(ValueError):
        advance(fresh(NONE), 0, UnitTable(one, one, 2 * one, one, one), 10.0)
    with pytest.raises(ValueError):
        advance(fresh(NONE), 0, UnitTable(one, one, np.nan * one, one, one), 10.0)


def test_played_runs_are_the_detector_itself():
    rate = simulation.changed(SLOPE, 20)
    end = simulation.simulate(simulation.records(3, 1, 100, rate, 60), 1)
    state = fresh(NONE)
    for day, table in enumerate(simulation.tables(simulation.records(3, 1, 100, rate, 60))):
        state = advance(state, day, table, simulation.RUN_LENGTH)
    assert end.change[0] == (np.inf if state.alarmed_at is None else state.alarmed_at)


def test_false_alarms_are_rare():
    """A year at one false alarm in ten years."""
    end = simulation.simulate(simulation.records(1, 100, 50), 100)
    assert end.false_rate() <= 0.10
    assert end.false_rate("evidence") <= 0.05


def test_a_slope_is_found_within_a_fortnight_and_dated_within_a_week():
    early, delay, error = simulation.slope_change(20, 0.0)
    assert early <= 0.05
    assert delay <= 14
    assert error <= 7


def test_one_bin_is_found():
    end = simulation.simulate(
        simulation.records(2, 16, 200, simulation.changed_bin(-0.15, at=30), 120), 16
    )
    assert 10 <= end.median_delay(since=30) <= 50


def test_units_not_contributions_keep_alarms_rare():
    as_units = simulation.simulate(simulation.clusters(3, 8, 10, 100, 60, 1.0, True), 8)
    weighted = simulation.simulate(simulation.clusters(3, 8, 10, 100, 60, 0.01, True), 8)
    # Tempering protects even from this, and reports it: the plain statistic would alarm.
    assert as_units.false_rate("plain") >= 0.8 and as_units.false_rate() <= 0.2
    assert weighted.false_rate() == 0.0


def test_late_positives_alarm_on_arrival_and_not_when_cohorts_mature():
    assert simulation.simulate(simulation.delayed(5, 10, 100, True), 10).false_rate("plain") == 1.0
    assert simulation.simulate(simulation.delayed(5, 10, 100, False), 10).false_rate() <= 0.2


@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_expected_delay_is_near_the_played_one(delta):
    change = SimulatedChange(intercept=0.4)
    quiet = merged(simulation.tables(simulation.records(99, 1, 200, n_days=30, bins=60)))
    result = expected_delay(quiet, 30, change, Tolerance.within(delta), 3650.0)
    runs = 40
    end = simulation.simulate(
        simulation.records(8, runs, 200, simulation.changed(change, 40), 90), runs, delta
    )
    assert result["median"] == pytest.approx(end.median_delay(since=40), rel=0.3)
    assert result == expected_delay(quiet, 30, change, Tolerance.within(delta), 3650.0)


def test_expected_delay_beyond_the_horizon_is_none():
    quiet = merged(days(n_days=5, at=5, per_day=2))
    assert expected_delay(quiet, 5, SLOPE, Tolerance.within(0.05), 1e6, longest=5)["median"] is None
    with pytest.raises(ValueError):
        expected_delay(UnitTable.empty(), 5, SLOPE, NONE, 100.0)
    with pytest.raises(ValueError):
        expected_delay(quiet, 5, SLOPE, Tolerance.within(0.0, 4), 100.0)


@pytest.mark.parametrize(
    "change", [SimulatedChange(), SLOPE, SimulatedChange(intercept=0.4), SimulatedChange(-0.3, 1.4)]
)
def test_recalibration_finds_what_was_put_in(change):
    fit = recalibration(expected_table(change))
    assert (fit.intercept, fit.slope) == pytest.approx((change.intercept, change.slope), abs=1e-8)
    result = effect(expected_table(change))
    assert result["slope"]["interval"][0] < change.slope < result["slope"]["interval"][1]


def test_intervals_of_the_effect_cover():
    inside = 0
    for seed in range(200):
        interval = effect(days(seed, 1, 0, SLOPE, 1000)[0])["slope"]["interval"]
        inside += interval[0] <= 0.75 <= interval[1]
    assert 0.90 <= inside / 200 <= 0.99


def test_no_effect_without_data():
    for correct in (np.zeros(15), np.ones(15)):
        alike = UnitTable(np.ones(15), np.linspace(0.1, 0.9, 15), correct, np.ones(15), np.ones(15))
        assert effect(alike)["slope"] is None
    assert effect(UnitTable.empty())["intercept"] is None
    assert effect(UnitTable.empty())["observed_over_expected"] is None


def spoken(state, tables, **more):
    start = state.start_of_change or 0
    result = verdict(state, 3650.0, 3650.0, merged(tables), merged(tables[start:]), **more)
    return json.loads(json.dumps(result, allow_nan=False))


def test_verdict_of_an_alarm():
    tables = days(n_days=80, at=45)
    result = spoken(watched(tables), tables, coverage={"labelled": 0.9})
    assert result["status"] == "alarm"
    assert abs(result["start_of_change"] - 45) <= 7
    assert result["sr"] >= result["threshold"]
    assert result["recommendation"]["action"] == "collect_more" and result["effect"]["selected"]
    assert result["effect"]["slope"]["value"] == pytest.approx(0.75, abs=0.1)
    assert result["coverage"] == {"labelled": 0.9}
    assert len(result["bins"]) == 15


def test_the_effect_is_of_all_cohorts_since_the_change():
    tables = days(n_days=80, at=20)
    state = watched(tables[:40])
    cut = state.start_of_change
    result = verdict(
        state, 3650.0, 3650.0, merged(tables), merged(tables[cut:40]), later=merged(tables[40:])
    )
    assert result["effect"]["n_units"] == merged(tables[cut:]).n_units
    assert result["effect"]["slope"]["value"] == pytest.approx(
        recalibration(merged(tables[cut:])).slope
    )


def test_verdict_without_data_is_not_ok():
    result = spoken(fresh(NONE), [])
    assert result["status"] == "insufficient_data"
    assert result["evidence_log10"] is None
    assert result["recommendation"]["action"] == "collect_more"
    assert all(row["gap"] is None and row["n_units"] == 0 for row in result["bins"])


def test_verdicts_between():
    tables = days(n_days=10, at=10)
    state = watched(tables)
    assert spoken(state, tables)["status"] == "ok"
    reference = merged(tables).occupancy
    moved = advance_watch(begin_watch(reference), 0, np.roll(reference, 3))
    assert spoken(state, tables, shift=moved)["status"] == "watch"
    drifted = days(n_days=80, at=45)
    noted = acknowledge(watched(drifted))
    result = spoken(noted, drifted)
    assert result["status"] == "alarm" and result["acknowledged_at"] is not None


def test_a_large_error_of_few_units_does_not_alarm():
    one = days(n_days=1, at=0, change=SimulatedChange(intercept=1.0), per_day=12)
    assert spoken(watched(one), one)["status"] == "insufficient_data"


@pytest.mark.parametrize(
    ("statuses", "title"),
    [
        (["ok", "ok"], "none"),
        (["alarm", "ok", "ok"], "rater shift"),
        (["alarm", "ok", "insufficient_data"], "rater shift"),
        (["alarm", "alarm", "ok"], "model drift"),
        (["alarm", "alarm"], "model drift"),
        (["alarm", "insufficient_data"], "undecided"),
        ([], "none"),
    ],
)
def test_rater_or_model(statuses, title):
    result = rater_or_model({f"r{i}": {"status": status} for i, status in enumerate(statuses)})
    assert result["title"] == title


def raters_until_alarm(seed, rates, per_day=60, most=400):
    """Three raters of the same cases, each with labels of his own rate; who had alarmed or leant at the first alarm."""
    rng, states = np.random.default_rng(seed), [fresh(NONE) for _ in rates]
    for day in range(most):
        p = rng.beta(0.7, 2.2, per_day)
        for i, rate in enumerate(rates):
            y = (rng.random(per_day) < rate(p, day)).astype(float)
            [table] = simulation.tables([simulation.daily(p[None], y[None], np.ones((1, per_day)))])
            states[i] = advance(states[i], day, table, 4 * 3650.0)
        if any(each.alarmed_at is not None for each in states):
            break
    alarmed = [each for each in states if each.alarmed_at is not None]
    result = {
        f"r{i}": {
            "status": "ok" if each.alarmed_at is None else "alarm",
            "leans": tends_towards(each, alarmed),
        }
        for i, each in enumerate(states)
    }
    return rater_or_model(result)["title"]


def test_the_first_rater_to_alarm_of_a_drifting_model_is_not_blamed():
    drift = simulation.changed(SimulatedChange(slope=0.5), 10)
    titles = [raters_until_alarm(seed, [drift] * 3) for seed in range(12)]
    assert titles.count("rater shift") <= 1 and titles.count("model drift") >= 9


def test_a_rater_who_changes_alone_is_found_out():
    drift = simulation.changed(SimulatedChange(slope=0.5), 10)
    titles = [
        raters_until_alarm(seed, [simulation.calibrated, drift, simulation.calibrated])
        for seed in range(12)
    ]
    assert titles.count("rater shift") >= 11
