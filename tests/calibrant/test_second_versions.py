"""Naive second versions of intervals, survival functions and biases that laws and coverage alone leave open."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import t as student

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import fit
from calibrant.calibrators.row_losses import mean_by_unit
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.estimators.cumulative import ks_survival, kuiper_survival
from calibrant.metrics import compute_metrics
from tests.oracle.batch_sums import FillSums


def batch_of(seed: int, n: int = 400) -> Batch:
    """Scores at the middles of sixty bins, so that the replicates' bins tell them exactly."""
    rng = np.random.default_rng(seed)
    score = (rng.integers(0, 60, n) + 0.5) / 60
    labels = (rng.random(n) < score**1.5).astype(int)
    columns = {"confidences": score, "labels": labels, "ids": [f"{seed}-{i}" for i in range(n)]}
    return Batch.from_columns(columns).batch


def view_of(batch: Batch, raw: bool = True, **pane_query: int) -> View:
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(**pane_query), batch if raw else None)


def area(score: np.ndarray, hit: np.ndarray) -> float:
    difference = score[hit == 1][:, None] - score[hit == 0]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def macro(score: np.ndarray, hit: np.ndarray) -> float:
    return float(np.mean(1.0 - score[hit == 1]) + np.mean(score[hit == 0])) / 2.0


@pytest.mark.parametrize(("slug", "number"), [("auc", area), ("macro_ce", macro)])
def test_intervals_are_the_jackknife_of_rows(
    slug: str, number: Callable[[np.ndarray, np.ndarray], float]
) -> None:
    batch = batch_of(1)
    score, hit = batch.probabilities[:, 1], batch.label_counts[:, 1]
    replicate = FillSums(batch).replicate
    values = np.array(
        [number(score[replicate != r], hit[replicate != r]) for r in np.unique(replicate)]
    )
    n = len(values)
    squares = (values - values.mean()) ** 2
    kurtosis = (squares**2).mean() / squares.mean() ** 2
    freedom = min(n - 1, 2 * n / (kurtosis - 1))
    reach = student.ppf(0.975, freedom) * np.sqrt((n - 1) / n * squares.sum())
    found = compute_metrics(view_of(batch, False), [slug])[slug]
    assert found["interval"] == pytest.approx(
        [number(score, hit) - reach, number(score, hit) + reach], abs=1e-9
    )


@pytest.mark.parametrize("raw", [True, False])
def test_the_squared_error_is_the_mean_product_of_two_deviations(raw: bool) -> None:
    """Sun et al.: products of the deviations of all pairs of different rows of a bin."""
    batch = batch_of(2, 120)
    score, hit = batch.probabilities[:, 1], batch.label_counts[:, 1]
    total = 0.0
    for low in range(10):
        here = (score > low / 10) & (score <= (low + 1) / 10)
        off, n = (hit - score)[here], here.sum()
        total += (off.sum() ** 2 - (off**2).sum()) / (n - 1) / 120
    found = compute_metrics(view_of(batch, raw, bins=10), ["l2_ece_squared"])["l2_ece_squared"]
    assert found["value"] == pytest.approx(total, abs=found.get("error_bound", 0.0) + 1e-12)
    assert found.get("error_bound", 0.0) < 1e-4
    assert found["interval"][0] < found["value"] < found["interval"][1]


@pytest.mark.parametrize("raw", [True, False])
def test_debiased_error_takes_each_bins_own_variance_away(raw: bool) -> None:
    batch = batch_of(2, 120)
    score, hit = batch.probabilities[:, 1], batch.label_counts[:, 1]
    total = 0.0
    for low in range(10):
        here = (score > low / 10) & (score <= (low + 1) / 10)
        rate, n = hit[here].mean(), here.sum()
        total += n / 120 * ((rate - score[here].mean()) ** 2 - rate * (1.0 - rate) / (n - 1))
    found = compute_metrics(view_of(batch, raw, bins=10), ["debiased_ece"])["debiased_ece"]
    assert total > 0
    assert found["value"] == pytest.approx(np.sqrt(total), abs=1e-9)


@pytest.mark.parametrize("x", [0.9, 1.2, 1.4, 1.49, 1.51, 1.8, 3.0])
def test_survival_of_the_range_is_one_series_on_both_sides_of_the_switch(x: float) -> None:
    k = np.arange(1, 400)
    expected = 8.0 * np.sum((-1.0) ** (k - 1) * k * ndtr(-k * x))
    assert kuiper_survival(x) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("x", [0.6, 0.9, 0.99, 1.01, 1.5, 3.0])
def test_survival_of_the_excursion_is_one_series_on_both_sides_of_the_switch(x: float) -> None:
    k = np.arange(400)
    assert ks_survival(x) == pytest.approx(
        4.0 * np.sum((-1.0) ** k * ndtr(-(2 * k + 1) * x)), abs=1e-9
    )


def test_means_by_unit_vary_as_units_do() -> None:
    rng = np.random.default_rng(3)
    unit = np.repeat(np.arange(6), 3)
    values, weight = rng.normal(size=18), np.ones(18)
    # Of equal units the mean over rows is the mean of their means, with its own standard error.
    means = values.reshape(6, 3).mean(axis=1)
    reach = student.ppf(0.975, 5) * means.std(ddof=1) / np.sqrt(6)
    found = mean_by_unit(values, weight, unit, 0.95)
    assert found["interval"] == pytest.approx(
        [means.mean() - reach, means.mean() + reach], abs=1e-12
    )


@pytest.mark.parametrize("method", ["isotonic", "histogram"])
def test_a_map_of_calibrated_scores_loses_on_labels_that_it_has_not_seen(method: str) -> None:
    seen, unseen = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        score = rng.random(300)
        labels = (rng.random(300) < score).astype(int)
        answer = fit(
            method, view_of(Batch.from_columns({"confidences": score, "labels": labels}).batch)
        )
        seen.append(answer["before"]["brier"] - answer["after"]["brier"])
        unseen.append(answer["heldout"]["gain"]["brier"]["value"])
    assert np.mean(unseen) < 0.0 < np.mean(seen)
