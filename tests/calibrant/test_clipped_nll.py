"""NLL with a floor: another number than the exact one, under its own key, with an interval where enough ratings decide it."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

RNG = np.random.default_rng(3)
P = RNG.dirichlet(np.full(4, 0.2), 400)
P[:30, 0], P[:30, 1:] = 0.0, 1 / 3
RATINGS = [list(RNG.choice(4, RNG.integers(1, 4), p=[0.4, 0.3, 0.2, 0.1])) for _ in range(400)]
WEIGHTS = RNG.uniform(0.5, 2.0, 400)


def naive(floor: float, by_row: bool) -> float:
    total = mass = 0.0
    for row, ratings, weight in zip(P, RATINGS, WEIGHTS, strict=True):
        each = weight / len(ratings) if by_row else weight
        total += sum(-each * np.log(max(row[k], floor)) for k in ratings)
        mass += each * len(ratings)
    return total / mass


@pytest.mark.parametrize("floor", [1e-15, 1e-3, 0.2])
@pytest.mark.parametrize("raters", ["pooled", "mean"])
def test_value_equals_the_naive_version(floor: float, raters: str) -> None:
    found = cal.nll(P, RATINGS, floor=floor, raters=raters, weights=WEIGHTS)
    assert float(found) == pytest.approx(naive(floor, raters == "mean"), rel=1e-12)
    below = sum(P[i, k] < floor for i, row in enumerate(RATINGS) for k in row)
    assert found.extra["n_clipped"] == below


def test_it_is_never_called_nll() -> None:
    found = cal.evaluate(P, RATINGS, "nll,nll(floor=1e-7)")
    assert list(found) == ["nll", "nll(floor=1e-07)"]
    assert found["nll"].value is None and found["nll(floor=1e-07)"].extra["exact"] is None
    assert cal.nll(P, RATINGS, floor=1e-7).name == "nll(floor=1e-07)"


def test_a_floor_below_every_probability_changes_nothing() -> None:
    scores = np.clip(P[:, 0], 0.01, 0.99)
    labels = [row[0] == 0 for row in RATINGS]
    exact, found = cal.nll(scores, labels), cal.nll(scores, labels, floor=1e-7)
    assert float(found) == float(exact) == found.extra["exact"]
    assert found.interval == exact.interval


def test_stored_sums_say_that_they_cannot_give_it() -> None:
    found = cal.Pane.fill(P, RATINGS).evaluate("nll(floor=1e-7)")["nll(floor=1e-07)"]
    assert found.reason == "needs_rows" and "POST /v1/score" in (found.detail or "")


def drawn(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Every tenth score is 0, where three in ten labels are 1."""
    rng = np.random.default_rng(seed)
    scores = np.sqrt(rng.uniform(0, 1, n))
    labels = (rng.random(n) < scores).astype(int)
    zero = rng.random(n) < 0.1
    scores[zero], labels[zero] = 0.0, rng.random(zero.sum()) < 0.3
    return scores, labels


def test_the_interval_contains_the_truth() -> None:
    """The exact mean: .9 of the loss of calibrated square roots, and .1 of that of zeros."""
    u = (np.arange(200_000) + 0.5) / 200_000
    s = np.sqrt(u)
    truth = 0.9 * -(s * np.log(s) + (1 - s) * np.log1p(-s)).mean() + 0.1 * 0.3 * -np.log(1e-7)
    held = 0
    for seed in range(100):
        found = cal.nll(*drawn(seed, 600), floor=1e-7, ids=np.arange(600))
        assert found.interval is not None
        held += found.interval[0] <= truth <= found.interval[1]
    assert held >= 88


def test_unlucky_windows_of_few_rows_at_risk_have_no_interval() -> None:
    """Of 50 rows with five scores of 0, only windows with five clipped ratings had an interval, which contained the truth in .75."""
    given = [
        cal.nll(*drawn(seed, 50), floor=1e-7, ids=np.arange(50)).interval for seed in range(60)
    ]
    assert given == [None] * 60


def test_two_clipped_ratings_that_decide_have_no_interval() -> None:
    """The jackknife knows nothing of the third, which would add 16 nats."""
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.2, 0.8, 300)
    labels = (rng.random(300) < scores).astype(int)
    scores[:20], labels[:20] = 0.0, 0
    for n_wrong in (0, 2):
        labels[:n_wrong] = 1
        found = cal.nll(scores, labels, floor=1e-7, ids=np.arange(300))
        assert found.interval is None and found.extra["interval_reason"] == "few_errors"


def test_a_difference_is_of_the_clipped_losses() -> None:
    scores, labels = drawn(0, 600)
    raised = np.clip(scores, 0.05, 0.95)
    found = cal.compare(scores, raised, labels, "nll(floor=0.001)", ids=np.arange(600))
    rated = [np.where(labels == 1, each, 1 - each) for each in (scores, raised)]
    first, second = (-np.log(np.maximum(each, 0.001)).mean() for each in rated)
    assert found["nll(floor=0.001)"].value == pytest.approx(first - second, abs=1e-12)
