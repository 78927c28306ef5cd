"""Intervals of means that few samples decide: few errors, or few heavy weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

import calibrant as cal
from benchmarks.validation.checks import coverage
from benchmarks.validation.settings import Setting, rows_of, view_of
from calibrant.inference.mean_interval import exact_interval
from calibrant.inference.metrics_differences import differences

RNG = np.random.default_rng(8)


def test_a_model_without_an_error_has_the_exact_interval_of_accuracy_and_no_other():
    score = RNG.uniform(0.001, 0.02, 300)
    labels = np.zeros(300, dtype=int)
    accuracy = cal.accuracy(score, labels)
    assert accuracy.value == 1.0
    assert accuracy.interval == pytest.approx((0.025 ** (1 / 300), 1.0))
    assert "Clopper" in accuracy.extra["interval_method"]
    for metric in (cal.brier, cal.nll):
        found = metric(score, labels)
        assert found.interval is None and found.extra["interval_reason"] == "few_errors"


def test_few_errors_of_named_units_have_no_interval():
    """How alike the units are cannot be seen from so few errors."""
    score, labels = RNG.uniform(0.001, 0.02, 300), np.zeros(300, dtype=int)
    labels[:3] = 1
    found = cal.accuracy(score, labels, units=np.arange(300) // 3)
    assert found.interval is None and found.extra["interval_reason"] == "few_errors"


def test_the_second_version_of_the_exact_interval():
    found = exact_interval(0.98, 150.0, 0.9)
    tested = scipy.stats.binomtest(147, 150).proportion_ci(0.9, method="exact")
    assert found == pytest.approx((tested.low, tested.high))


@pytest.mark.parametrize(("n", "given"), [(300, False), (2500, True)])
def test_heavy_weights_need_effective_samples(n, given):
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 0.5, n)
    y = (rng.random(n) < p).astype(int)
    found = cal.brier(p, y, weights=rng.lognormal(0, 1.5, n))
    assert (found.interval is not None) is given
    if not given:
        assert found.extra["interval_reason"] == "too_few_units"


def test_even_weights_of_a_small_window_keep_their_interval():
    p = RNG.beta(0.5, 0.5, 60)
    y = (RNG.random(60) < p).astype(int)
    assert cal.brier(p, y).interval is not None
    assert cal.brier(p, y, weights=np.full(60, 7.0)).interval is not None


def test_bounds_stay_in_the_range_of_the_metric():
    """All but six of eighty are right, which a symmetric interval would answer with more than 1 at 99.9 %."""
    score, labels = np.full(80, 0.2) + RNG.random(80) / 1e3, np.zeros(80, dtype=int)
    labels[:6] = 1
    low, high = cal.accuracy(score, labels, ci=0.999).interval
    assert 0 < low < high <= 1.0


def test_a_difference_of_means_has_an_interval_where_both_sides_can_have_one():
    views = [
        view_of(each, rows_of(each, np.random.default_rng(3)), run)
        for run, each in enumerate(
            (Setting("u-shaped"), Setting("beta"), Setting("accurate", n=100))
        )
    ]
    found = differences(views[0], views[1], ["brier"])["brier"]
    assert found["difference_interval"] is not None
    found = differences(views[0], views[2], ["brier"])["brier"]
    assert found["difference_interval"] is None and found["difference_reason"] == "few_errors"


@pytest.mark.parametrize(
    ("setting", "slug", "least"),
    [
        (Setting("accurate", n=300), "accuracy", 0.93),
        (Setting("accurate", n=1000), "nll", 0.93),
        (Setting("u-shaped", n=300, weights=1.0), "brier", 0.88),
    ],
    ids=lambda each: getattr(each, "text", each),
)
def test_where_an_interval_is_given_it_covers(setting, slug, least):
    """Of 120 runs. Version one's intervals covered .76 of the first two."""
    counts = coverage(setting, (slug,), 31, range(120))
    assert counts[f"{slug}/given"] > 30
    assert counts[f"{slug}/held"] / counts[f"{slug}/given"] >= least
