"""Null references in closed form equal those of very many draws, to less than the standard error of 2,000."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.core.query import PaneQuery
from calibrant.inference import closed_null
from calibrant.inference.closed_null import Summands, sum_null_of_gaps
from calibrant.inference.null_reference import quantiles_of
from calibrant.metrics import METRICS
from calibrant.metrics.metric import GapMetric

N_DRAWS = 200_000
# Of the standard error of the 95 % quantile of 2,000 draws: the reference itself has a tenth of that.
TOLERANCE = 0.6


def drawn(statistic, weight, deviation, seed):
    """The reference from 200,000 draws, some at a time."""
    draws = np.random.default_rng(seed)
    found = [
        statistic(
            weight[None],
            np.clip(draws.standard_normal((20_000, *weight.shape)) * deviation, -1.0, 1.0),
        )
        for _ in range(N_DRAWS // 20_000)
    ]
    return np.concatenate(found)


def bins(n_bins, concentration, n, shape, effect, seed):
    """Weights of bins, and the standard deviations of their gaps."""
    draws = np.random.default_rng(seed)
    weight = np.floor(draws.dirichlet(np.full(n_bins, concentration)) * n)[None]
    weight[0, 0] += 1.0
    score = draws.beta(*shape, n_bins)
    deviation = np.sqrt(effect * score * (1.0 - score) / np.maximum(weight, 1.0))
    return weight, deviation * (weight > 0)


SETTINGS = [
    (1, 1.0, 1, (1, 1), 1.0),
    (2, 1.0, 20, (8, 1), 1.0),
    (5, 1.0, 50, (1, 1), 1.0),
    (15, 0.2, 300, (8, 1), 1.0),
    (15, 1.0, 30, (1, 1), 1.0),
    (15, 1.0, 10_000, (8, 1), 20.0),
    (40, 10.0, 2_000, (1, 1), 1.0),
    (60, 0.05, 500, (8, 1), 1.0),
]
QUERY = PaneQuery()
CLOSED = sorted(
    slug
    for slug, metric in METRICS.items()
    if isinstance(metric, GapMetric) and metric.statistic(QUERY)[1] is not None
)


def gap_metric(slug: str) -> GapMetric:
    metric = METRICS[slug]
    assert isinstance(metric, GapMetric)
    return metric


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("slug", ["ace", "debiased_ece", "ece", "mce", "rmsce"])
def test_closed_forms_equal_draws(slug, setting):
    metric = gap_metric(slug)
    weight, deviation = bins(*setting, seed=1)
    second = float((weight * deviation**2).sum() / weight.sum())
    bias = 0.5 * second if metric.bias else 0.0
    statistic, closed = metric.statistic(QUERY, bias)
    close(closed(weight, deviation, 0.95), drawn(statistic, weight, deviation, seed=2))


def close(found, values):
    """Compare mean and quantiles in standard errors of 2,000 draws, from blocks of as many; rounding where they do not vary."""
    wanted = quantiles_of(values)
    blocks = values.reshape(-1, 2_000)
    for name, each in (
        ("mean", blocks.mean(axis=1)),
        ("q95", np.quantile(blocks, 0.95, axis=1)),
        ("limit", np.quantile(blocks, 0.975, axis=1)),
    ):
        difference = abs(getattr(found, name) - getattr(wanted, name))
        assert difference <= TOLERANCE * each.std() + 1e-3 * wanted.q95, name
    assert found.q95_error == 0.0


def test_classwise():
    weight, deviation = (
        np.concatenate(each)
        for each in zip(*(bins(15, 0.5, 300, (1, 8), 1.0, seed) for seed in range(4)), strict=True)
    )
    metric = gap_metric("classwise_ece")

    def statistic(weight, gap):
        return metric.of_class(weight, gap).mean(axis=-1)

    closed = metric.statistic(QUERY)[1]
    close(closed(weight, deviation, 0.95), drawn(statistic, weight, deviation, 3))


def test_every_statistic_of_gaps_that_has_a_closed_form():
    assert [
        *("ace", "adaptive_ece", "all_label_ece", "classwise_ece", "debiased_ece", "ece"),
        *("lp_ece", "mce", "rmsce"),
    ] == CLOSED


@pytest.mark.parametrize("slug", CLOSED)
def test_without_variance_there_is_no_error(slug):
    null = gap_metric(slug).statistic(QUERY)[1](np.ones((1, 3)), np.zeros((1, 3)), 0.95)
    assert tuple(null) == (0.0, 0.0, 0.0, 0.0)


def test_the_scale_is_that_of_the_deviation():
    """Far from the limits of a gap, the reference is proportional to the standard deviations."""
    weight, deviation = np.ones((1, 6)), np.linspace(0.001, 0.01, 6)[None]
    make = sum_null_of_gaps(lambda weight: weight)
    once, twice = make(weight, deviation, 0.9), make(weight, 2.0 * deviation, 0.9)
    assert np.allclose(np.array(twice), 2.0 * np.array(once), rtol=1e-9)
    assert once.mean == pytest.approx(np.sqrt(2.0 / np.pi) * deviation.sum(), rel=1e-12)
    assert once.limit == pytest.approx(once.q95, rel=1e-12)


def test_a_gap_beyond_one_counts_as_one():
    null = gap_metric("mce").statistic(QUERY)[1](np.ones((1, 1)), np.full((1, 1), 3.0), 0.95)
    assert (null.q95, null.limit) == (1.0, 1.0)
    assert 0.7 < null.mean < 1.0


@pytest.mark.parametrize("power", [1, 2])
def test_values_beyond_the_reach_of_the_error_function_change_no_bit(
    power: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(power)
    some = [
        Summands.of(rng.random(n) / n, 10.0 ** rng.uniform(-4.0, 0.0, n), power)
        for n in (1, 2, 15, 64, 90)
    ]
    found = [each.convolved(each.gamma()) for each in some]
    monkeypatch.setattr(closed_null, "_CERTAIN", np.inf)
    for each, distribution in zip(some, found, strict=True):
        everywhere = each.convolved(each.gamma())
        np.testing.assert_array_equal(distribution.values, everywhere.values)
        np.testing.assert_array_equal(distribution.share, everywhere.share)
