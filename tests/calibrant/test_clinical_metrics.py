"""Observed-to-expected ratio, calibration intercept and slope, ICI, net benefit and AURC: values by hand, by scikit-learn and naively."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import calibrant as cal
from calibrant.calibrators.cell_fits import log_odds
from calibrant.metrics.aurc import area, best
from calibrant.metrics.ici import spline_terms, weighted_quantiles

N = 4000
RNG = np.random.default_rng(3)
ODDS = RNG.normal(-1.0, 1.5, N)
SCORES = 1.0 / (1.0 + np.exp(-ODDS))
OUTCOMES = (RNG.random(N) < 1.0 / (1.0 + np.exp(-(0.3 + 0.7 * ODDS)))).astype(int)
WEAK = ("oe_ratio", "calibration_intercept", "calibration_slope")


def test_ratio_intercept_and_slope_by_hand() -> None:
    """Half of the scores are 1/4 and half 3/4; outcomes 2 of 4 and 3 of 4."""
    scores, outcomes = [0.25] * 4 + [0.75] * 4, [1, 1, 0, 0, 1, 1, 1, 0]
    assert cal.oe_ratio(scores, outcomes).value == pytest.approx(5 / 4)
    slope = cal.calibration_slope(scores, outcomes)
    # logit 1/2 = 0 and logit 3/4 = ln 3 at log odds of −ln 3 and ln 3.
    assert slope.value == pytest.approx(0.5)
    assert slope.extra["intercept"] == pytest.approx(np.log(3) / 2)
    a = cal.calibration_intercept(scores, outcomes).value
    rates = 1 / (1 + np.exp(-(a + np.log([1 / 3, 3.0]))))
    assert 4 * rates.sum() == pytest.approx(5)


def test_slope_is_that_of_scikit_learn() -> None:
    other = LogisticRegression(C=1e12, tol=1e-12, max_iter=1000).fit(ODDS[:, None], OUTCOMES)
    found = cal.calibration_slope(SCORES, OUTCOMES)
    assert found.value == pytest.approx(float(other.coef_[0, 0]), rel=1e-5)
    assert found.extra["intercept"] == pytest.approx(float(other.intercept_[0]), abs=1e-5)


def test_state_gives_what_rows_give() -> None:
    names = [*WEAK, "ici", "aurc", "net_benefit(threshold=0.2)"]
    rows = cal.evaluate(SCORES, OUTCOMES, names)
    state = cal.Pane.fill(SCORES, OUTCOMES).evaluate(names)
    for name in names:
        assert state[name].value == pytest.approx(rows[name].value, abs=2e-3), name
    assert state["aurc"].value == pytest.approx(
        rows["aurc"].value, abs=state["aurc"].extra["error_bound"]
    )


@pytest.mark.parametrize(
    ("outcomes", "slug", "reason"),
    [
        ([1, 1, 1, 1], "calibration_intercept", "one_outcome"),
        ([0, 0, 1, 1], "calibration_slope", "separable"),
    ],
)
def test_what_determines_no_value(outcomes: list[int], slug: str, reason: str) -> None:
    assert getattr(cal, slug)([0.2, 0.2, 0.8, 0.8], outcomes).reason == reason


@pytest.mark.parametrize("n", [150, 600])
def test_intervals_contain_the_truth(n: int) -> None:
    """Of 150 samples each at least .89 (promised .93, two standard errors of .02) contain ratio, intercept and slope."""
    rng = np.random.default_rng(n)
    many = rng.normal(-1.0, 1.5, 400_000)
    rates, truths = 1 / (1 + np.exp(-(0.3 + 0.7 * many))), {}
    truths["oe_ratio"] = rates.sum() / (1 / (1 + np.exp(-many))).sum()
    truths["calibration_slope"] = 0.7
    truths["calibration_intercept"] = _intercept(many, rates)
    hits = dict.fromkeys(truths, 0)
    for _ in range(150):
        odds = rng.normal(-1.0, 1.5, n)
        outcomes = rng.random(n) < 1 / (1 + np.exp(-(0.3 + 0.7 * odds)))
        report = cal.evaluate(1 / (1 + np.exp(-odds)), outcomes.astype(int), list(truths))
        for slug, truth in truths.items():
            low, high = report[slug].interval or (np.nan, np.nan)
            hits[slug] += bool(low <= truth <= high)
    assert min(hits.values()) >= 0.89 * 150, hits


def _intercept(odds: np.ndarray, rates: np.ndarray) -> float:
    low, high = -5.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if (1 / (1 + np.exp(-(middle + odds)))).sum() < rates.sum()
            else (low, middle)
        )
    return low


def test_few_outcomes_have_no_interval() -> None:
    scores = np.full(400, 0.01) + np.arange(400) * 1e-5
    outcomes = np.zeros(400, int)
    outcomes[[20, 200, 380]] = 1
    for slug in WEAK:
        found = getattr(cal, slug)(scores, outcomes, ids=np.arange(400).astype(str))
        assert found.interval is None and found.extra["interval_reason"] == "few_errors"


def test_index_is_the_distance_from_the_curve_of_scikit_learn() -> None:
    knots = weighted_quantiles(ODDS, np.ones(N), np.array([0.05, 0.35, 0.65, 0.95]))
    terms = spline_terms(ODDS, knots)[1:].T
    terms = (terms - terms.mean(axis=0)) / terms.std(axis=0)
    curve = LogisticRegression(C=1e12, tol=1e-12, max_iter=5000).fit(terms, OUTCOMES)
    distance = np.abs(curve.predict_proba(terms)[:, 1] - SCORES)
    found = cal.ici(SCORES, OUTCOMES)
    assert found.value == pytest.approx(distance.mean(), rel=1e-4)
    assert found.extra["e90"] == pytest.approx(np.sort(distance)[int(0.9 * N) - 1], rel=1e-3)
    assert found.above_null


@pytest.mark.parametrize("seed", [3, 5, 7])
def test_index_of_certain_scores_is_that_of_the_best_curve(seed: int) -> None:
    """Log odds of a confident model are large, and so are those of its curve."""
    rng = np.random.default_rng(seed)
    n = 800
    scores = rng.dirichlet(np.full(3, 0.1), n).max(axis=1)
    outcomes = (rng.random(n) < scores).astype(int)
    odds = log_odds(scores)
    knots = weighted_quantiles(odds, np.ones(n), np.array([0.05, 0.35, 0.65, 0.95]))
    design = np.linalg.qr(spline_terms(odds, knots).T)[0] * np.sqrt(n)

    def loss(at: np.ndarray) -> float:
        return float((np.logaddexp(0.0, design @ at) - outcomes * (design @ at)).mean())

    def slope(at: np.ndarray) -> np.ndarray:
        return np.asarray(design.T @ (1.0 / (1.0 + np.exp(-design @ at)) - outcomes) / n)

    best = minimize(loss, np.zeros(4), jac=slope, method="BFGS", options={"gtol": 1e-9})
    curve = 1.0 / (1.0 + np.exp(-design @ best.x))
    found = cal.ici(scores, outcomes)
    assert found.value == pytest.approx(float(np.abs(curve - scores).mean()), rel=1e-4)


def test_outcomes_that_scores_separate_have_the_limit_or_no_curve() -> None:
    assert cal.ici([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]).value == pytest.approx(0.15)
    assert cal.ici([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]).value == 0.0
    rng = np.random.default_rng(1)
    scores = rng.dirichlet(np.full(3, 0.05), 800).max(axis=1)
    found = cal.ici(scores, (rng.random(800) < scores).astype(int))
    assert (found.value, found.reason) == (None, "separable")


@pytest.mark.parametrize("certain", [False, True])
def test_calibrated_models_are_seldom_above_the_reference_of_the_index(certain: bool) -> None:
    rng = np.random.default_rng(5)
    above = 0
    for _ in range(100):
        scores = (
            rng.dirichlet(np.full(3, 0.1), 400).max(axis=1) if certain else rng.beta(0.7, 2.2, 400)
        )
        above += bool(cal.ici(scores, (rng.random(400) < scores).astype(int)).above_null)
    assert above <= 0.07 * 100 + 2 * np.sqrt(100 * 0.07 * 0.93)


@pytest.mark.parametrize("threshold", [0.1, 0.2, 0.37, 0.5])
def test_net_benefit_counts_decisions(threshold: float) -> None:
    acted = threshold <= SCORES
    benefit = (acted & (OUTCOMES == 1)).mean() - (acted & (OUTCOMES == 0)).mean() * threshold / (
        1 - threshold
    )
    found = cal.net_benefit(SCORES, OUTCOMES, threshold=threshold)
    assert found.value == pytest.approx(benefit, abs=1e-12)
    assert found.interval is not None and found.interval[0] < benefit < found.interval[1]
    prevalence = OUTCOMES.mean()
    assert found.extra["treat_all"] == pytest.approx(
        prevalence - (1 - prevalence) * threshold / (1 - threshold)
    )


def test_a_score_at_the_threshold_is_acted_on() -> None:
    for scores in ([0.3, 0.2], np.array([0.3, 0.2], np.float32)):
        assert cal.net_benefit(scores, [1, 1], threshold=0.3).value == pytest.approx(0.5)


def naive_area(confidence: np.ndarray, wrong: np.ndarray) -> float:
    order = np.argsort(-confidence, kind="stable")
    return float((np.cumsum(wrong[order]) / np.arange(1, len(wrong) + 1)).mean())


def test_area_under_risk_and_coverage_equals_the_naive_version() -> None:
    confidence, wrong = np.maximum(SCORES, 1 - SCORES), (SCORES > 0.5) != (OUTCOMES == 1)
    found = cal.aurc(SCORES, OUTCOMES)
    assert found.value == pytest.approx(naive_area(confidence, wrong), rel=1e-12)
    assert found.extra["excess"] == pytest.approx(found.value - best(wrong.mean()))
    assert found.interval is not None and found.interval[0] < found.value < found.interval[1]


def test_area_of_ties_is_the_mean_over_their_orders() -> None:
    """Two right and one wrong of equal confidence after one right: the means of 3 orders."""
    orders = [(0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0)]
    expected = sum(Fraction(sum(order[: i + 1]), i + 1) for order in orders for i in range(4)) / 12
    found = area(np.array([3.0, 1.0]), np.array([1.0, 0.0]), np.array([3.0, 1.0]))
    assert float(found) == pytest.approx(float(expected))


def test_best_area_is_that_of_a_perfect_order() -> None:
    wrong = (np.arange(20_000) < 5_000).astype(float)
    assert best(0.25) == pytest.approx(naive_area(wrong * -1.0, wrong), abs=1e-4)
