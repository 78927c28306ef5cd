"""Soft labels: means over shares, against sums in numpy; shares of a number of ratings are these ratings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import calibrant as cal
from calibrant.metrics import METRICS

RNG = np.random.default_rng(3)
N, K = 90, 4
P = RNG.dirichlet(np.ones(K), N)
SHARES = np.array([RNG.dirichlet(0.2 + p) for p in P])
DRAWN = np.array([RNG.choice(K, p=p) for p in P])
COUNTS = np.array([RNG.multinomial(5 if i % 2 else 7, p) for i, p in enumerate(P)])


def losses(p: Any) -> tuple[float, float]:
    """Brier score and NLL: Σ_k s_k · loss(k), the mean over rows."""
    brier = sum(SHARES[:, k] * ((p - np.eye(K)[k]) ** 2).sum(axis=1) for k in range(K))
    return float(np.mean(brier)), float(-(SHARES * np.log(p)).sum(axis=1).mean())


def naive_ece(bins: int = 15) -> float:
    top, score = P.argmax(axis=1), P.max(axis=1)
    gap = SHARES[np.arange(N), top] - score
    place = np.ceil(score * bins).astype(int) - 1
    return sum(abs(gap[place == b].sum()) for b in range(bins)) / N


@pytest.mark.parametrize("raters", ["pooled", "mean"])
def test_scores_are_means_over_shares(raters: str) -> None:
    found = cal.evaluate(P, label_shares=SHARES, raters=raters)
    assert [found[each].value for each in ("brier", "nll")] == pytest.approx(losses(P), abs=1e-9)
    assert found["ece"].value == pytest.approx(naive_ece(), abs=1e-9)
    accuracy = SHARES[np.arange(N), P.argmax(axis=1)].mean()
    assert found["accuracy"].value == pytest.approx(accuracy, abs=1e-9)
    assert {(each.n, each.n_ratings) for each in found.values()} == {(N, N)}
    assert all(each.null_mean is None and each.above_null is None for each in found.values())
    assert found["brier"].interval is not None and found["ece"].interval is None
    assert found["debiased_ece"].reason == "label_shares"
    assert (found.n_ratings, found.n_labelled, found.detectable) == (N, N, None)


def test_every_metric_is_a_mean_over_shares_or_is_refused() -> None:
    """Shares that are quarters of 4 ratings, and the same ratings: equal values, if there is one."""
    counts = RNG.multinomial(4, np.ones(K) / K, N)
    for slug in METRICS:
        if slug in ("ml1_ace", "ml1_ece", "ml1_mce", "dice"):
            continue
        found = cal.evaluate(P, label_shares=counts / 4, metrics=slug, ids=range(N))[slug]
        if found.reason == "label_shares":
            continue
        expected = cal.evaluate(P, label_counts=counts, metrics=slug, ids=range(N))[slug]
        assert found.value == pytest.approx(expected.value, abs=1e-8), slug
        assert found.null_q95 is None, slug


def test_the_temperature_minimises_the_mean_over_shares() -> None:
    temperature = cal.fit_temperature(P, label_shares=SHARES)

    def nll(t: float) -> float:
        p = P ** (1 / t)
        return losses(p / p.sum(axis=1, keepdims=True))[1]

    t = float(temperature)
    assert nll(t) <= min(nll(t * 0.9999), nll(t * 1.0001))
    assert temperature.to_dict()["n_ratings"] == N
    one = cal.fit_temperature(P, label_shares=np.eye(K)[DRAWN], objective="brier")
    assert float(one) == pytest.approx(
        float(cal.fit_temperature(P, DRAWN, objective="brier")), rel=1e-6
    )


def test_shares_of_a_number_of_ratings_are_ratings() -> None:
    number = COUNTS.sum(axis=1)
    shares = COUNTS / number[:, None]
    expected = cal.evaluate(P, label_counts=COUNTS).to_dict()
    assert cal.evaluate(P, label_shares=shares, n_ratings=number).to_dict() == expected
    found = cal.evaluate(P, label_shares=np.round(shares, 2), n_ratings=number.tolist())
    assert found["ece"].to_dict() == expected["metrics"]["ece"]
    weights = cal.fit_map(P, label_shares=shares, n_ratings=number, method="temperature")
    assert weights(P).shape == P.shape


def test_one_number_per_row_frames_and_reliability() -> None:
    p, q = P[:, 0], SHARES[:, 0]
    found = cal.evaluate(p, label_shares=q, metrics="brier")["brier"]
    expected = 2 * np.mean(q * (1 - p) ** 2 + (1 - q) * p**2)
    assert found.value == pytest.approx(expected, abs=1e-9)
    frame = cal.nll(pd.DataFrame(P), label_shares=pd.DataFrame(SHARES))
    assert frame.value == pytest.approx(losses(P)[1], abs=1e-9)
    table = cal.reliability(P, label_shares=SHARES, bins=1)
    accuracy = SHARES[np.arange(N), P.argmax(axis=1)].mean()
    assert table.bin_accuracy[0] == pytest.approx(accuracy, abs=1e-9)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"raters": "majority"}, "raters: Received raters='majority' with label_shares"),
        ({"raters": "single"}, "expected pooled or mean"),
        ({"labels": [0] * N}, "Received both labels and label_shares"),
        ({"label_shares": SHARES[:, :3] / SHARES[:, :3].sum(axis=1, keepdims=True)}, "3"),
        ({"label_shares": np.full((N, K), 1 / K) * 0.9}, "Received shares with sum 0.9; expected 1"),
        ({"label_shares": np.full((N, K), 3.0)}, "Received a value outside [0, 1]; expected a share. If these are numbers of ratings"),
        ({"n_ratings": [3] * N}, "no multiples of 1 / n_ratings"),
        ({"n_ratings": [2.5] * N}, "Received 2.5 ratings; expected an integer from 0 to 1000000."),
        ({"label_shares": None, "labels": [0] * N, "n_ratings": [1] * N}, "Received n_ratings without label_shares"),
    ],
)  # fmt: skip
def test_errors(more: dict[str, Any], message: str) -> None:
    with pytest.raises(cal.CalibrationInputError) as error:
        cal.ece(P, **{"label_shares": SHARES} | more)
    assert message in str(error.value)
    with pytest.raises(cal.CalibrationInputError, match="without n_ratings"):
        cal.fit_map(P, label_shares=SHARES)
