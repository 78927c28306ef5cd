"""Sums of simulated gaps by the kernel against numpy, and intervals from them against the same statistic as a plain function."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.gap_sums import GapSum
from calibrant.inference.intervals import along_rays, gap_interval
from calibrant.metrics import METRICS, compute_metrics
from calibrant.metrics.calibration_errors import mean_share, weighted_mean_gap
from calibrant.metrics.metric import GapMetric

SHAPES = [(1, 1, 1), (10, 15, 240), (3, 150, 7), (2, 1200, 33)]


def some(shape, seed=0):
    """Factors, truths and noise; some factors are 0."""
    n_truths, n_bins, n_resamples = shape
    rng = np.random.default_rng(seed)
    factors = rng.random((n_bins, n_resamples)) * (rng.random((n_bins, n_resamples)) < 0.8)
    truths = rng.normal(size=(n_truths, n_bins)) / 5.0
    noise = rng.normal(size=(n_bins, n_resamples)) / 9.0
    return [each.astype(np.float32) for each in (factors, truths, noise)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("power", [1, 2])
def test_sums_are_those_of_the_definition(shape, power):
    factors, truths, noise = some(shape)
    found = GapSum(np.asarray, power).simulated(factors, truths, noise)
    for truth, row in zip(truths.astype(float), found, strict=True):
        gaps = np.abs(truth[:, None] + noise.astype(float)) ** power
        assert_allclose(row, (factors * gaps).sum(axis=0), rtol=2e-5)


def gaps_of(n_tables, n_bins, seed):
    """Simulated gaps of tables with some empty bins."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 5, (240, n_tables, n_bins)).astype(float)
    total = weight.sum(axis=0) * (rng.random((n_tables, n_bins)) < 0.9)
    noise = rng.normal(size=weight.shape) / 10.0 * (total > 0)
    return along_rays(total, rng.normal(size=total.shape) / 10.0, weight * (total > 0), noise)


@pytest.mark.parametrize(
    ("name", "n_tables"),
    [("ece", 1), ("ace", 1), ("rmsce", 1), ("debiased_ece", 1), ("classwise_ece", 4)],
)
def test_interval_is_that_of_the_same_statistic_as_a_plain_function(name, n_tables):
    metric = METRICS[name]
    assert isinstance(metric, GapMetric) and isinstance(metric.gaps, GapSum)
    summed = metric.gaps.less(1e-4) if metric.bias else metric.gaps
    for seed in range(5):
        gaps = gaps_of(n_tables, 15, seed)
        plain = gap_interval(lambda w, g: summed(w, g), summed, gaps, 0.95).bounds
        assert gap_interval(summed, summed, gaps, 0.95).bounds == pytest.approx(plain, rel=1e-5)


def test_mean_over_classes_is_the_mean_of_the_classes_own_statistic():
    rng = np.random.default_rng(3)
    weight, gap = rng.integers(0, 9, (2, 4, 15)).astype(float), rng.normal(size=(2, 4, 15))
    found = GapSum(mean_share)(weight, gap)
    assert_allclose(found, weighted_mean_gap(weight, gap).mean(axis=-1))


def test_a_class_without_a_bin_of_enough_predictions_is_left_out():
    """Such a class beside others used to fail."""
    rng = np.random.default_rng(33)
    rows = rng.dirichlet(np.full(3, 0.3), 30)
    labels = rng.integers(0, 3, (30, 5)).tolist()
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(Batch.from_columns({"probabilities": rows, "labels": labels}).batch)
    most = [table.cells.count.max() for table in View(pane, PaneQuery()).class_tables()]
    assert min(most) < max(most)
    query = PaneQuery(min_count=int(max(most)))
    found = compute_metrics(View(pane, query), ["classwise_ece"])["classwise_ece"]
    gaps = np.array(found["by_class"])
    assert found["value"] == pytest.approx(gaps.mean()) and (gaps == 0).any() and (gaps > 0).any()
