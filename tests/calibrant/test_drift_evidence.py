"""Laws of the evidence: it is evidence whatever the dependence inside a unit, and tables are all it needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import betaln, gammaln

from benchmarks.drift_simulation import records, tables
from calibrant import Batch, Pane, PaneSpec
from calibrant.core.label_policies import POLICIES
from calibrant.core.packing import PackingError, pack
from calibrant.drift.bets import Bets, bets_of
from calibrant.drift.confidence_sequence import rate_bounds
from calibrant.drift.evidence import log_bets, log_mixture
from calibrant.drift.false_alarm_rate import FalseAlarms
from calibrant.drift.multiple_testing import flagged, threshold_of
from calibrant.drift.score_shift import (
    advance_watch,
    begin_watch,
    log_shift_evidence,
    pack_watch,
    unpack_watch,
)
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import (
    UnitTable,
    merged,
    unit_table,
)
from calibrant.raters.label_coverage import label_coverage

BINS = 15
BETS = bets_of(BINS)
NONE = Tolerance.within(0.0)


def matrix(bets: Bets) -> np.ndarray:
    """Every bet as one row of shifts, (n_bets, bins): the naive form."""
    rows = list(bets.shifts[: bets.n_global])
    for shift in bets.shifts[bets.n_global :]:
        rows += list(np.diag(shift))
    return np.array(rows)


def naive(weight, confidence, correct, tolerance) -> np.ndarray:
    """The formula, bet by bet and bin by bin."""
    total = np.zeros(BETS.n_bets)
    for j, shifts in enumerate(matrix(BETS)):
        for k, shift in enumerate(shifts):
            if weight[k] == 0:
                continue
            band = tolerance.upper[k] if shift > 0 else tolerance.lower[k]
            p = min(max(confidence[k] / weight[k] + band, 0.0), 1.0)
            total[j] += shift * correct[k] - weight[k] * np.log(1.0 - p + p * np.exp(shift))
    return total


def gain(table: UnitTable, tolerance: Tolerance = NONE) -> np.ndarray:
    return log_bets(table.weight, table.confidence, table.correct, BETS, tolerance)


@st.composite
def unit_tables_drawn(draw) -> UnitTable:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weight = rng.gamma(0.5, 20.0, BINS) * (rng.random(BINS) < 0.8)
    confidence = weight * (np.arange(BINS) + rng.random(BINS)) / BINS
    return UnitTable(weight, confidence, weight * rng.random(BINS), weight, weight)


def test_bets():
    assert BETS.n_bets == 134
    assert np.exp(BETS.log_weights).sum() == pytest.approx(1.0, abs=1e-12)
    assert np.exp(BETS.log_weights[:14]).sum() == pytest.approx(0.5, abs=1e-12)
    shifts = matrix(BETS)
    assert len({tuple(row) for row in np.round(shifts, 12)}) == 134
    assert np.allclose(
        np.sort(shifts[14:][:, 3][shifts[14:][:, 3] != 0]), [-2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2]
    )
    for j, row in enumerate(shifts):
        result = BETS.describe(j)
        if result["kind"] == "local":
            place = round(result["bin"][0] * BINS)
            assert row[place] == result["shift"]
            assert np.count_nonzero(row) == 1
        else:
            assert (np.ptp(row) == 0) == (result["kind"] == "intercept")


@given(unit_tables_drawn(), st.sampled_from([0.0, 0.02, 0.3]))
def test_evidence_equals_the_naive_formula(table, delta):
    tolerance = Tolerance.within(delta)
    expected = naive(table.weight, table.confidence, table.correct, tolerance)
    assert gain(table, tolerance) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(unit_tables_drawn(), unit_tables_drawn(), st.sampled_from([0.0, 0.02]))
def test_pooled_totals_never_hold_more_evidence(one, other, delta):
    tolerance = Tolerance.within(delta)
    together = gain(merged([one, other]), tolerance)
    assert (together <= gain(one, tolerance) + gain(other, tolerance) + 1e-9).all()
    assert gain(merged([other, one]), tolerance) == pytest.approx(together)


@given(unit_tables_drawn())
def test_a_wider_tolerance_holds_less_evidence(table):
    assert (gain(table, Tolerance.within(0.05)) <= gain(table, Tolerance.within(0.02)) + 1e-9).all()


def test_no_units_no_evidence():
    assert (gain(UnitTable.empty()) == 0).all()
    assert log_mixture(gain(UnitTable.empty()), BETS) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_certain_scores_leave_the_evidence_finite(certain):
    weight = np.eye(BINS)[0 if certain == 0 else -1]
    table = UnitTable(weight, certain * weight, (1.0 - certain) * weight, weight, weight)
    assert np.isfinite(gain(table)).all()


def test_one_record_is_the_risk_adjusted_cusum_weight():
    p, odds = 0.31, np.exp(0.4)
    place = int(p * BINS)
    weight = np.eye(BINS)[place]
    for y in (0.0, 1.0):
        table = UnitTable(weight, p * weight, y * weight, weight, weight)
        assert gain(table)[4] == pytest.approx(y * np.log(odds) - np.log(1 - p + p * odds))


def clustered(rng, n, size, comonotone, fractional):
    """Tables of single calibrated units, (n, bins) each: their contributions weigh 1 / size and share their luck."""
    p = rng.beta(0.7, 2.2, (n, size))
    luck = rng.random((n, 1)) if comonotone else rng.random((n, size))
    y = (luck < p).astype(float)
    if fractional:
        y = (y + (rng.random((n, size)) < p)) / 2.0
    place = np.minimum((p * BINS).astype(int), BINS - 1) + BINS * np.arange(n)[:, None]
    columns = [
        np.bincount(place.ravel(), (v / size).ravel(), n * BINS) for v in (np.ones((n, size)), p, y)
    ]
    return [column.reshape(n, BINS) for column in columns]


@pytest.mark.parametrize("fractional", [False, True])
@pytest.mark.parametrize("comonotone", [False, True])
@pytest.mark.parametrize("size", [1, 7])
def test_a_calibrated_unit_multiplies_no_bet_on_average(size, comonotone, fractional):
    n = 10_000
    e = np.exp(
        log_bets(*clustered(np.random.default_rng(3), n, size, comonotone, fractional), BETS, NONE)
    )
    assert (e.mean(axis=0) <= 1.0 + 4.5 * e.std(axis=0) / np.sqrt(n)).all()


def test_a_gap_at_the_end_of_the_tolerance_is_none():
    rng, n, delta = np.random.default_rng(4), 10_000, 0.05
    p = 0.1 + 0.8 * rng.random((n, 1))
    weight = (np.minimum((p * BINS).astype(int), BINS - 1) == np.arange(BINS)).astype(float)
    for sign in (1, -1):
        y = (rng.random((n, 1)) < p + sign * delta).astype(float)
        e = np.exp(log_bets(weight, weight * p, weight * y, BETS, Tolerance.within(delta)))
        assert (e.mean(axis=0) <= 1.0 + 4.5 * e.std(axis=0) / np.sqrt(n)).all()


def test_tolerance_of_a_reference():
    reference = merged(tables(records(1, 1, 500, n_days=10)))
    band = Tolerance.of_reference(reference, 0.02)
    assert (band.lower[reference.weight > 0] <= reference.gap[reference.weight > 0] - 0.02).all()
    assert (band.upper[reference.weight > 0] >= reference.gap[reference.weight > 0] + 0.02).all()
    empty = Tolerance.of_reference(UnitTable.empty(), 0.0)
    assert (empty.lower == -1).all()
    assert (empty.upper == 1).all()
    with pytest.raises(ValueError):
        Tolerance.within(1.0)
    with pytest.raises(ValueError):
        Tolerance(np.ones(3), np.zeros(3)).check()


@pytest.mark.parametrize(
    ("n", "y"), [(100.0, 30.0), (3.5, 0.0), (12.0, 12.0), (0.4, 0.1), (1e6, 5e5)]
)
def test_confidence_sequence_solves_its_equation(n, y):
    low, high = rate_bounds(np.array([n]), np.array([y]), 0.05)

    def excess(m):
        return betaln(1 + y, 1 + n - y) - y * np.log(m) - (n - y) * np.log1p(-m) - np.log(20)

    middle = min(max(y / n, 1e-12), 1 - 1e-12)
    expected_low = brentq(excess, 1e-300, middle) if y else 0.0
    expected_high = brentq(excess, middle, 1 - 1e-16) if y < n else 1.0
    assert (low[0], high[0]) == pytest.approx((expected_low, expected_high), abs=1e-9)


def test_confidence_sequence_holds_at_every_look():
    rng, runs = np.random.default_rng(5), 150
    y = np.cumsum(rng.random((runs, 200)) < 0.2, axis=1).astype(float)
    n = np.broadcast_to(np.arange(1.0, 201.0), y.shape)
    low, high = rate_bounds(n.ravel(), y.ravel(), 0.1)
    missed = ((low > 0.2) | (high < 0.2)).reshape(y.shape).any(axis=1)
    assert missed.mean() <= 0.1
    assert rate_bounds(np.zeros(1), np.zeros(1), 0.1) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "cohort_s", "length"),
    [
        ("1 per P10Y", 86_400, 3650.0),
        ("2 per P1Y", 3600, 4380.0),
        ("1 per P4W", 86_400, 28.0),
        ("1 per P1YT12H", 43_200, 731.0),
    ],
)
def test_false_alarms_are_read(text, cohort_s, length):
    assert FalseAlarms.parse(text).run_length(cohort_s) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "0 per P1Y",
        "1 per P",
        "1 per P1M",
        "1 per P0D",
        "1 per PT",
        "1 per P1DT",
        "-1 per P1Y",
    ],
)
def test_other_words_are_rejected(text):
    with pytest.raises(ValueError):
        FalseAlarms.parse(text)


def test_more_alarms_than_cohorts_are_rejected():
    with pytest.raises(ValueError):
        FalseAlarms.parse("9 per P1W").run_length(86_400)


def test_slices_flagged_as_the_definition_says():
    rng = np.random.default_rng(6)
    for _ in range(50):
        values = dict(zip("abcdefg", rng.normal(1.5, 2.5, 7), strict=True))
        ordered = sorted(values.values(), reverse=True)
        ks = [k for k in range(1, 8) if k * np.exp(ordered[k - 1]) / 7 >= 1 / 0.05]
        assert sorted(flagged(values)) == sorted(
            sorted(values, key=values.get)[::-1][: max(ks, default=0)]
        )
    assert flagged({}) == []
    with pytest.raises(ValueError):
        threshold_of(10.0, 0)


def test_shift_of_scores_is_seen_and_chance_is_not():
    rng, runs = np.random.default_rng(7), 40
    shares = rng.dirichlet(np.full(BINS, 2.0))
    moved = np.roll(shares, 1)
    false = found = 0
    for _ in range(runs):
        reference = rng.multinomial(800, shares).astype(float)
        quiet = loud = begin_watch(reference)
        for day in range(10):
            quiet = advance_watch(quiet, day, rng.multinomial(100, shares).astype(float))
            loud = advance_watch(loud, day, rng.multinomial(100, moved).astype(float))
        false += quiet.anytime_p <= 0.05
        found += loud.anytime_p <= 0.05
    assert false <= 3
    assert found == runs


def test_evidence_of_a_shift_for_a_reference_known_almost_exactly():
    shares, counts = np.array([0.5, 0.3, 0.2]), np.array([12.0, 3.0, 9.0])
    mixed = []
    for c in (10.0, 100.0, 1000.0):
        a = c * shares
        mixed.append(gammaln(c) - gammaln(c + 24.0) + (gammaln(a + counts) - gammaln(a)).sum())
    expected = np.logaddexp.reduce(mixed) - np.log(3) - (counts * np.log(shares)).sum()
    assert log_shift_evidence(counts, 1e12 * shares) == pytest.approx(expected, abs=1e-3)
    assert log_shift_evidence(np.zeros(3), shares) == 0.0


def test_watch_comes_back_from_bytes_and_repeats_change_nothing():
    state = advance_watch(begin_watch(np.arange(20.0, 35.0)), 4, np.ones(BINS))
    assert advance_watch(state, 4, np.ones(BINS)) is state
    again = unpack_watch(pack_watch(state))
    assert pack_watch(again) == pack_watch(state)
    assert again.last == 4
    with pytest.raises(PackingError):
        unpack_watch(pack({}, {}))
    with pytest.raises(ValueError):
        begin_watch(np.ones(BINS))


def pane_of(units: list[str], seed: int = 0) -> Pane:
    rng = np.random.default_rng(seed)
    n = len(units)
    columns = {
        "confidences": rng.random(n).tolist(),
        "labels": [rng.integers(0, 2, 3).tolist() for _ in range(n)],
        "ids": [f"{seed}-{i}" for i in range(n)],
        "units": units,
    }
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(Batch.from_columns(columns, task="binary", n_classes=2).batch)
    return pane


def test_tables_of_a_pane_give_every_unit_weight_one():
    pane = pane_of(["a"] * 40 + ["b"] * 3 + ["c"])
    for raters in POLICIES:
        table = unit_table(pane, raters)
        assert table.check().n_units == pytest.approx(3.0)
        assert table.occupancy.sum() == pytest.approx(3.0)


def test_table_of_merged_panes_is_the_merged_table():
    one, other = pane_of([f"u{i // 2}" for i in range(30)]), pane_of([f"v{i}" for i in range(9)], 1)
    for raters in POLICIES:
        apart = merged([unit_table(one, raters), unit_table(other, raters)])
        complete = unit_table(one.copy().merge(other), raters)
        for name in ("weight", "confidence", "correct", "occupancy"):
            assert getattr(complete, name) == pytest.approx(getattr(apart, name))
        # Of a pane's units less is known when they are put with others'.
        assert (complete.squared >= apart.squared - 1e-12).all()


def test_no_tables_merge_to_an_empty_one():
    assert merged([]).n_units == 0


def test_a_table_with_more_correct_than_weight_is_rejected():
    bad = UnitTable(np.ones(2), np.ones(2), 2.0 * np.ones(2), np.ones(2), np.ones(2))
    with pytest.raises(ValueError):
        bad.check()


def test_label_coverage_counts_predictions():
    pane = Pane(PaneSpec("binary", 2))
    columns = {
        "confidences": [0.01, 0.02, 0.95, 0.96],
        "labels": [0, None, 1, 1],
        "ids": list("abcd"),
    }
    pane.fill_batch(Batch.from_columns(columns, task="binary", n_classes=2).batch)
    result = label_coverage(pane)
    assert result["labelled"] == 0.75
    assert (result["by_bin"][0], result["by_bin"][-1], result["by_bin"][7]) == (0.5, 1.0, None)
    assert label_coverage(Pane(PaneSpec("binary", 2)))["labelled"] is None
