"""Simulations, with fixed seeds, of intervals and references that once missed their promise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

import calibrant as cal

RUNS = 100


def _softmax(logits: np.ndarray) -> np.ndarray:
    return np.asarray(scipy.special.softmax(logits, axis=1))


def _labels(draws: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    reached = rates.cumsum(axis=1)[:, :-1]
    return np.asarray((reached < draws.random((len(rates), 1))).sum(axis=1))


def _binary(seed: int, run: int, n: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng([seed, run])
    score = draws.beta(1.5, 2.5, n)
    rate = scipy.special.expit(slope * scipy.special.logit(score))
    return score, (draws.random(n) < rate).astype(int)


def test_the_calibration_loss_of_many_sparse_bins_is_unbiased_and_covered() -> None:
    """Where bins of one prediction kept their square, the mean was .012 and the interval held 0 in .36 of runs."""
    total = held = 0.0
    for run in range(RUNS):
        draws = np.random.default_rng([21, run])
        probabilities = _softmax(1.5 * draws.normal(size=(300, 10)))
        found = cal.calibration_loss(probabilities, _labels(draws, probabilities))
        assert found.interval is not None
        total += found.value
        held += found.interval[0] <= 0.0 <= found.interval[1]
    assert abs(total / RUNS) < 0.002
    assert held >= 0.87 * RUNS


@pytest.mark.parametrize(("slope", "truth"), [(1.0, 0.046892), (0.7, 0.029316)])
def test_discrimination_is_covered(slope: float, truth: float) -> None:
    """Truths are quadratures of E[(q - E q)^2]. The promise is .93; without the correction it was .85, always too high."""
    found = [cal.corp_discrimination(*_binary(22, run, 150, slope)) for run in range(RUNS)]
    bounds = np.array([each.interval for each in found])
    above = int((bounds[:, 0] > truth).sum())
    assert above + int((bounds[:, 1] < truth).sum()) <= 0.13 * RUNS
    assert above <= 0.07 * RUNS
    corrected = np.mean([each.extra["corrected"] for each in found])
    assert corrected == pytest.approx(truth, abs=0.006)


def test_the_uncertainty_of_a_base_rate_near_a_half_is_covered() -> None:
    """The normal interval of r (1 - r) held 1/4 in almost no run of r = 1/2."""
    held = 0
    for run in range(RUNS):
        draws = np.random.default_rng([23, run])
        found = cal.corp_uncertainty(draws.random(150), draws.integers(0, 2, 150))
        held += found.interval[0] <= 0.25 <= found.interval[1]
    assert held >= 0.87 * RUNS


@pytest.mark.parametrize(("slope", "truth"), [(1.0, 0.0), (0.4, 0.00891)])
def test_the_kernel_error_is_covered_and_never_negative(slope: float, truth: float) -> None:
    """It was .88 to .90, with intervals above the truth; and 6 to 8 % of intervals were entirely below 0."""
    bounds = np.array(
        [cal.skce(*_binary(24, run, 200, slope), kernel_width=0.3).interval for run in range(RUNS)]
    )
    assert (bounds >= 0.0).all()
    assert ((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])).mean() >= 0.87


@pytest.mark.parametrize("slug", ["skce", "canonical_ce"])
def test_references_of_several_ratings_are_those_of_as_many(slug: str) -> None:
    """With one drawn label, the reference was that of one rater, and no model of 20 raters was above it."""
    found = []
    for slope in (1.0, 0.6):
        draws = np.random.default_rng([25, 0])
        probabilities = _softmax(2.0 * draws.normal(size=(200, 3)))
        rates = _softmax(slope * np.log(probabilities))
        counts = np.array([draws.multinomial(20, rate / rate.sum()) for rate in rates])
        found.append(getattr(cal, slug)(probabilities, label_counts=counts))
    assert (
        found[0].null_q95
        < 0.5 * getattr(cal, slug)(probabilities, _labels(draws, probabilities)).null_q95
    )
    assert found[1].value > 2.0 * found[1].null_q95
    if slug == "skce":
        assert found[1].interval[0] > 0.0


def test_a_paired_difference_of_errors_is_covered_and_not_wider_than_an_unpaired_one() -> None:
    """Two models of the same rows, against the same numbers of rows that the models do not share."""
    runs, truth = 60, 0.0623
    widths, apart, held = [], [], 0
    for run in range(runs):
        draws = np.random.default_rng([26, run])
        odds, error = 1.6 * draws.normal(size=300), draws.normal(size=300)
        labels = (draws.random(300) < scipy.special.expit(odds)).astype(int)
        sides = (
            scipy.special.expit((odds + 0.3 * error) / 0.6),
            scipy.special.expit(odds - 0.5 * error),
        )
        found = cal.compare(*sides, labels, metrics="ece")["ece"]
        widths.append(np.ptp(found.interval))
        one, two = (
            cal.Pane.fill(side, labels, units=[f"{i}-{row}" for row in range(300)])
            for i, side in enumerate(sides)
        )
        apart.append(np.ptp(one.compare(two, "ece")["ece"].interval))
        held += found.interval[0] <= truth <= found.interval[1]
    assert np.mean(widths) < np.mean(apart)
    assert held >= 0.87 * runs


def test_the_number_of_units_decides_whether_there_is_an_interval() -> None:
    """At n = 55, 8 of 40 sets of names had one, and 100 patients of 10 predictions none."""
    draws = np.random.default_rng(27)
    score = draws.beta(1.5, 2.5, 50)
    labels = (draws.random(50) < score).astype(int)
    for names in range(20):
        ids = [f"{names}-{row}" for row in range(50)]
        assert cal.ece(score, labels, ids=ids).interval is not None
        few = cal.ece(score[:49], labels[:49], ids=ids[:49])
        assert (few.interval, few.extra["interval_reason"]) == (None, "too_few_units")
        assert cal.brier(score[:40], labels[:40], ids=ids[:40]).interval is not None
        assert cal.brier(score[:39], labels[:39], ids=ids[:39]).interval is None
    low, high = few.extra["range"]
    assert 0.0 <= low < high and "too few" in few.extra["range_caution"]
    assert "range" not in cal.ece(score[:9], labels[:9]).extra


def test_patients_of_ten_predictions_have_an_interval_that_contains_the_truth() -> None:
    held = 0
    for run in range(RUNS):
        draws = np.random.default_rng([28, run])
        patient = np.repeat(np.arange(100), 10)
        score = draws.beta(1.5, 2.5, 100)[patient]
        luck = np.where(draws.random(1000) < 0.7, draws.random(100)[patient], draws.random(1000))
        found = cal.ece(score, (luck < score).astype(int), units=[f"{run}-{i}" for i in patient])
        held += found.interval[0] <= 0.0 <= found.interval[1]
    assert held >= 0.87 * RUNS


def test_a_value_above_its_interval_is_shown_with_the_corrected_one() -> None:
    """The interval of an error that chance explains is that of `corrected`; it is not widened to the value."""
    score, labels = _binary(29, 4, 150, 1.0)
    found = cal.mce(score, labels)
    corrected = found.extra["corrected"]
    assert found.interval[0] <= corrected <= found.interval[1]
    assert corrected < 0.9 * found.value
    assert found.extra["bias"] == "biased upward at this n"
    means = np.array(
        [
            [each.value, each.extra["corrected"]]
            for each in (cal.ece(*_binary(30, run, 1000, 0.6)) for run in range(40))
        ]
    ).mean(axis=0)
    edges = np.arange(16) / 15
    fine = np.random.default_rng(31).beta(1.5, 2.5, 2_000_000)
    gap = scipy.special.expit(0.6 * scipy.special.logit(fine)) - fine
    place = np.clip(np.searchsorted(edges, fine) - 1, 0, 14)
    truth = np.abs(np.bincount(place, gap, 15)).sum() / len(fine)
    assert abs(means[1] - truth) < 0.6 * abs(means[0] - truth)
