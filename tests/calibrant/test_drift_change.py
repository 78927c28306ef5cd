"""The rule of change: against a naive second version, hand values, and the scenarios of users in reduced form."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from scipy.special import expit, logit

from benchmarks.drift.days import Days, autoregressive, normal_logits, simulate, tempered
from benchmarks.drift.detector import NEVER, first_change, found_start
from calibrant.drift.change import (
    DAY_SD,
    SHARES,
    WINDOWS,
    Effects,
    compare_windows,
    find_change,
    start_of_change,
)
from calibrant.drift.unit_tables import DRIFT_BINS

LEVEL = 1.0 / 3650.0


def one_run(seed=0, n_days=40, temperature=2.0, at=30, **settings):
    days = simulate(np.random.default_rng(seed), 1, n_days, tempered(temperature, at), **settings)
    effects = days.effects
    return days, Effects(effects.errors[0], effects.variance[0], effects.third[0])


def within(share):
    return min(max(share, 1 / 60), 59 / 60)


def naive_rates(days):
    """Rates of all days but the last 3 in each bin, with 20 more units at the mean score."""
    sums = (each[0, :-3].sum(0) for each in days.columns[:3])
    return [(y + 20 * within(p / w)) / (w + 20) for w, p, y in zip(*sums, strict=True)]


def naive_effects(weight, confidence, correct, rates=None):
    """Sums of a cohort, bin by bin and direction by direction."""
    bins = []
    for k, (w, p, y) in enumerate(zip(weight, confidence, correct, strict=True)):
        mean = within(p / w if w else 0.5)
        rate = mean if rates is None else rates[k]
        bins.append((mean, y - p, w * rate * (1 - rate)))
    total = sum(v for _, _, v in bins)
    level = sum(g for _, g, _ in bins)
    centre = sum(v * logit(mean) for mean, _, v in bins) / total
    rows = [(level, total)]
    rows.append(
        (
            sum((logit(mean) - centre) * g for mean, g, _ in bins),
            sum((logit(mean) - centre) ** 2 * v for mean, _, v in bins),
        )
    )
    for band in range(5):
        inside = bins[3 * band : 3 * band + 3]
        g, v = sum(each[1] for each in inside), sum(each[2] for each in inside)
        rows.append((g - v * level / total, v * (1 - v / total)))
    return rows


def naive_test(errors, variance, w, margin=0.05):
    """t, degrees of freedom and effects of one direction, cohort by cohort."""
    cut = len(errors) - w
    sides, rest = [], 0.0
    for g, v in ((errors[:cut], variance[:cut]), (errors[cut:], variance[cut:])):
        theta = sum(g) / sum(v)
        residuals = [(a - theta * b) / b**0.5 for a, b in zip(g, v, strict=True)]
        rest += sum(each**2 for each in residuals)
        sides.append((theta, sum(v), residuals))
    m, df = cut, len(errors) - 2
    phi = max(1.0, rest / df)
    before = sides[0][2]
    if m >= 14:
        f = sum(each**2 for each in before) / m
        r = sum(a * b for a, b in pairwise(before)) / (f * m)
        over, lagged = f > 1 + 2 * (2 / m) ** 0.5, r > 2 / m**0.5
        if over and lagged:
            rho = min(0.9, (r + m**-0.5) / (1 - 1 / f))
            phi = 1 + (phi - 1) * (1 + rho) / (1 - rho)
        elif over or lagged:
            rho = min(max(0.0, r - m**-0.5), 0.9)
            phi *= min(9.0, (1 + rho) / (1 - rho))
    gap = max(abs(sides[1][0] - sides[0][0]) - margin, 0.0)
    t = gap / (phi * (1 / sides[0][1] + 1 / sides[1][1])) ** 0.5
    return t, df, sides[0][0], sides[1][0]


def test_effects_equal_a_naive_second_version():
    days, effects = one_run()
    for day in (0, 17, 39):
        wanted = naive_effects(days.weight[0, day], days.confidence[0, day], days.correct[0, day])
        found = np.stack([effects.errors[day], effects.variance[day]], axis=1)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_rated_effects_equal_a_naive_second_version():
    days, _ = one_run()
    effects, rates = Effects.of(*days.columns[:3, 0], rated=True), naive_rates(days)
    assert effects.is_rated and effects[:30].is_rated
    for day in (0, 17, 39):
        wanted = naive_effects(*days.columns[:3, 0, day], rates)
        found = np.stack([effects.errors[day], effects.variance[day]], axis=1)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_few_cohorts_have_the_variance_of_their_scores():
    days, plain = one_run(n_days=23)
    few = Effects.of(*days.columns[:3, 0], rated=True)
    assert not few.is_rated
    np.testing.assert_array_equal(few.variance, plain.variance)


def test_the_variance_of_steady_days_is_known_if_rated():
    days, plain = one_run(temperature=1.0)
    rated = compare_windows(Effects.of(*days.columns[:3, 0], rated=True))
    known = np.isinf(rated.df[0, :, :7])
    assert known.mean() > 0.7 and np.isfinite(compare_windows(plain).df).all()
    assert (rated.tail[0, :, :7][known] <= 2 * scipy.stats.norm.sf(rated.z[0, :, :7][known])).all()


@pytest.mark.parametrize("settings", [{}, {"sd": 0.5}, {"sd": 0.5, "correlation": 0.8}])
def test_tests_equal_a_naive_second_version(settings):
    shifts = autoregressive(np.random.default_rng(1), 1, 40, **settings) if settings else None
    _, effects = one_run(seed=2, effects=shifts)
    found = compare_windows(effects)
    for place, w in enumerate(WINDOWS[:-2]):
        for direction in range(7):
            wanted = naive_test(
                list(effects.errors[:, direction]), list(effects.variance[:, direction]), w
            )
            here = (0, direction, place)
            got = [each[here] for each in (found.t, found.df, found.before, found.after)]
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_an_end_sees_no_later_cohort():
    _, effects = one_run()
    every = compare_windows(effects, np.arange(1, 41))
    for end in (6, 20, 33):
        alone = compare_windows(effects[:end])
        for name in ("t", "z", "df", "before", "after"):
            np.testing.assert_allclose(getattr(every, name)[end - 1], getattr(alone, name)[0])


def test_the_level_is_split_over_directions_and_windows():
    assert SHARES.sum() == pytest.approx(1.0) and SHARES[:2].sum() == pytest.approx(0.5)
    found = compare_windows(one_run()[1])
    tail = np.maximum(
        scipy.stats.t.sf(found.t, np.maximum(found.df, 1)), scipy.stats.norm.sf(found.z)
    )
    place = (0, 1, 4)
    wanted = min(1.0, 2 * tail[place] * 11 / SHARES[1])
    assert found.p[place] == pytest.approx(wanted)


def test_a_hand_value():
    """20 days of variance 25 without errors but for two of 25: θ = 1 against 0, t = .95 / √(1/50 + 1/450)."""
    effects = Effects(np.zeros((20, 7)), np.full((20, 7), 25.0), np.zeros((20, 7)))
    effects.errors[18:, 0] = 25.0
    found = compare_windows(effects)
    assert found.t[0, 0, 1] == pytest.approx(0.95 / (1 / 50 + 1 / 450) ** 0.5)
    assert found.df[0, 0, 1] == 18.0
    assert found.z[0, 0, 1] == pytest.approx(found.t[0, 0, 1], rel=1e-3)


def test_the_tail_of_skewed_counts_is_that_of_a_poisson_variable():
    """Outcomes of probability .02: the tail at a distance is the Poisson probability within a factor of 5 where Student's misses it by more."""
    variance, p = 2.0 * 0.98, 0.02
    third = variance * (1 - 2 * p)
    effects = Effects(np.zeros((60, 7)), np.full((60, 7), variance), np.full((60, 7), third))
    for count in (6, 10, 14):
        effects.errors[-1, 0] = count - 2.0
        found = compare_windows(effects, margin=0.0)
        exact = scipy.stats.poisson.sf(count - 1, 2.0)
        assert 0.2 * exact < found.tail[0, 0, 0] / 2 < 5 * exact
    assert scipy.stats.t.sf(found.t[0, 0, 0], found.df[0, 0, 0]) < exact / 5


def test_no_test_without_five_cohorts_before_and_none_of_empty_ones():
    _, effects = one_run(n_days=8, at=4, temperature=9.0)
    found = compare_windows(effects)
    assert (found.t[0, :, WINDOWS.index(5)] == 0).all() and (found.t[0, 1, :3] > 0).all()
    nothing = Effects(np.zeros((9, 7)), np.zeros((9, 7)), np.zeros((9, 7)))
    assert compare_windows(nothing).p.min() == 1.0 and find_change(nothing, LEVEL) is None


def test_the_start_of_a_change_is_found_with_its_range():
    starts = []
    for seed in range(12):
        days, _ = one_run(seed=seed, n_days=40)
        day = first_change(days)[0]
        start, earliest, latest = found_start(days, 0, int(day))
        assert earliest <= start <= latest <= day
        starts.append((start, earliest <= 30 <= latest))
    assert abs(np.median([each for each, _ in starts]) - 30) <= 1
    assert sum(holds for _, holds in starts) >= 8


def test_an_improvement_is_no_alarm():
    days = simulate(
        np.random.default_rng(0), 1, 50, lambda p, day: p if day >= 30 else expit(logit(p) / 2)
    )
    each = days.effects
    effects = Effects(each.errors[0], each.variance[0], each.third[0])
    found = find_change(effects, LEVEL)
    assert found is not None and not found.is_worse and abs(found.start - 30) <= 1
    assert first_change(days)[0] == NEVER


def test_a_reference_as_one_block_gives_before_from_the_first_day():
    days = simulate(np.random.default_rng(0), 20, 45, tempered(2.0, 30))
    block = days.before(30).effects.total
    live = Days(*(each[:, 30:] for each in (*days.columns[:3], days.occupancy)))
    assert np.median(first_change(live, block=block)) + 1 <= 7
    assert (first_change(live) == NEVER).mean() > 0.9
    first = compare_windows(live.effects, [1], block).variance[:, 0, 0, 0]
    chance = 1 / live.effects.variance[:, 0, 0] + 1 / block.variance[:, 0, 0]
    np.testing.assert_allclose(first - chance, DAY_SD**2)


def test_start_with_a_block_may_be_the_first_live_cohort():
    days = simulate(np.random.default_rng(3), 1, 40, tempered(2.0, 30))
    effects = days.effects
    one = Effects(*(each[0] for each in (effects.errors, effects.variance, effects.third)))
    assert start_of_change(one[30:], 1, one[:30].total)[1] == 0


@pytest.mark.parametrize(("temperature", "median", "late"), [(2.0, 3, 7), (1.6, 5, 12)])
def test_changes_are_found_in_days(temperature, median, late):
    days = simulate(np.random.default_rng(5), 40, 60, tempered(temperature, 30))
    delay = first_change(days) - 29
    assert np.median(delay) <= median and np.quantile(delay, 0.95) <= late and delay.min() >= 1


def test_scores_of_exactly_one_need_no_run_in():
    rate = lambda p, day: np.full(p.shape, 0.12 if day >= 30 else 0.999)  # noqa: E731
    ones = lambda rng, shape, day: np.ones(shape)  # noqa: E731
    days = simulate(np.random.default_rng(0), 20, 35, rate, ones)
    assert (first_change(days) <= 31).all() and (first_change(days) >= 30).all()


@pytest.mark.parametrize("settings", [{}, {"per_day": 20}, {"scores": normal_logits(1.0, -5.0)}])
def test_a_year_without_a_change_is_quiet(settings):
    days = simulate(np.random.default_rng(7), 20, 365, **settings)
    assert (first_change(days) < NEVER).mean() <= 0.15


def test_tables_may_be_finer():
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 9, (6, 60)).astype(float)
    mean = (np.arange(60) + 0.5) / 60
    fine = Effects.of(weight, weight * mean, weight * 0.4)
    coarse = Effects.of(*(each.reshape(6, DRIFT_BINS, 4).sum(2) for each in (weight, weight * mean, weight * 0.4)))  # fmt: skip
    np.testing.assert_allclose(fine.errors[:, 0], coarse.errors[:, 0])
