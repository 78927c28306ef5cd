"""What a calibrated model would show: drawn outcomes with the kept variance, and how often the truth lies below them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.cells import Cells
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.estimators.isotonic import decompose, each_recalibrated, recalibrated
from calibrant.estimators.smoothing import (
    cosine_coefficients,
    fixed_point,
    grid_coefficients,
    smoothed_error,
)
from calibrant.inference.null_reference import drawn_correct, independent, sorted_quantile
from calibrant.metrics import METRICS, compute_metrics
from calibrant.metrics.formula_metric import scored_cells

CURVES = ("smooth_ece", "corp_miscalibration", "kde_ece", "ks", "kuiper")
UNIT = 50


def view_of(score: np.ndarray, hit: np.ndarray, units: list[str] | None = None) -> View:
    columns = {"confidences": score, "labels": hit.astype(int)}
    batch = Batch.from_columns(columns | ({} if units is None else {"units": units})).batch
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(batch)
    return View(pane, PaneQuery())


def calibrated(kind: str, n_times: int, n_units: int) -> Iterator[View]:
    """Units of fifty predictions that share one fate, at one score, at scores nearby, or anywhere."""
    rng = np.random.default_rng(23)
    names = np.repeat([f"u{i}" for i in range(n_units)], UNIT).tolist()
    for _ in range(n_times):
        score = np.repeat(rng.beta(0.7, 0.7, n_units), UNIT)
        if kind == "nearby":
            score = np.clip(score + 0.02 * rng.normal(size=len(score)), 0.001, 0.999)
        if kind == "anywhere":
            score = rng.beta(0.7, 0.7, len(score))
        fate = np.repeat(rng.random(n_units), UNIT)
        yield view_of(score, fate < score, names)


@pytest.mark.parametrize("kind", ["same", "nearby", "anywhere"])
def test_units_of_one_fate_lie_within_the_reference(kind: str) -> None:
    n_times = 20
    above, ratio = dict.fromkeys(CURVES, 0), dict.fromkeys(CURVES, 0.0)
    for view in calibrated(kind, n_times, 24):
        for slug, answer in compute_metrics(view, CURVES).items():
            assert (answer["null_q95"], answer["null_reason"]) == (None, "units_not_replicated")
            worst = answer["null_worst_case"]
            above[slug] += answer["value"] > worst["q95"]
            ratio[slug] += answer["value"] / worst["mean"] / n_times
    # One in twenty is expected; six or more of twenty has a chance of 3e-4.
    assert max(above.values()) <= 5, above
    if kind == "same":
        assert all(0.8 < r < 1.25 for r in ratio.values()), ratio
    assert all(r < 1.25 for r in ratio.values()), ratio


def test_many_predictions_lie_within_the_reference() -> None:
    # Recalibration and small bandwidths follow noise down to single cells: groups of cells would show too little.
    rng = np.random.default_rng(5)
    score = rng.beta(0.7, 0.7, 200_000)
    for slug, answer in compute_metrics(
        view_of(score, rng.random(len(score)) < score), CURVES[:3]
    ).items():
        assert 0.8 < answer["value"] / answer["null_mean"] < 1.15, slug


def cells_of(view: View) -> Cells:
    return scored_cells(view)


@pytest.mark.parametrize("kind", ["same", "nearby", "anywhere"])
def test_drawn_hits_have_the_kept_variance(kind: str) -> None:
    view = next(calibrated(kind, 1, 40))
    kept = cells_of(view)
    cells = independent(kept)
    hits = drawn_correct(cells, 4000, 1)
    assert (hits >= 0).all()
    assert (hits <= cells.weight * (1 + 1e-12)).all()
    assert cells.weight.sum() == pytest.approx(kept.weight.sum())
    assert cells.null_variance.sum() == pytest.approx(kept.null_variance.sum())
    np.testing.assert_allclose(
        hits.mean(axis=0), cells.confidence, atol=5 * np.sqrt(cells.null_variance.max() / 4000)
    )
    complete = hits.sum(axis=1).var()
    assert complete == pytest.approx(
        kept.null_variance.sum(), rel=0.12
    )  # its standard error is 2 %
    wide = cells.null_variance > 0.05 * cells.null_variance.max()
    np.testing.assert_allclose(hits.var(axis=0)[wide], cells.null_variance[wide], rtol=0.3)


def test_independent_cells_are_left_alone() -> None:
    rng = np.random.default_rng(2)
    score = rng.random(300)
    cells = cells_of(view_of(score, rng.random(300) < score))
    assert independent(cells) is cells
    assert len(independent(cells.select(np.zeros(0, np.int64)))) == 0


def test_miscalibration_of_a_calibrated_model_equals_drawing_one_by_one() -> None:
    rng = np.random.default_rng(3)
    for n, spread in ((40, 1.0), (30_000, 1.0), (30_000, 0.2)):
        score = 1.0 - spread * rng.random(n)
        view = view_of(score, rng.random(n) < score)
        cells = cells_of(view)
        draws = []
        for _ in range(150):
            hits = rng.binomial(cells.count, np.clip(cells.mean, 0.0, 1.0))
            draws.append(
                decompose(
                    cells.weight, np.clip(cells.mean, 0.0, 1.0), hits / cells.weight, "brier"
                ).miscalibration
            )
        answer = compute_metrics(view, ["corp_miscalibration"])["corp_miscalibration"]
        assert answer["null_mean"] == pytest.approx(np.mean(draws), rel=0.1 if n < 100 else 0.04)
        assert answer["null_q95"] == pytest.approx(
            np.quantile(draws, 0.95), rel=0.2 if n < 100 else 0.08
        )


def test_rows_recalibrated_together_are_each_recalibrated() -> None:
    rng = np.random.default_rng(4)
    weight, rates = rng.random(30) + 0.1, rng.random((7, 30))
    rates[0], rates[1] = np.sort(rates[0])[::-1], 0.0
    for row, found in zip(rates, each_recalibrated(weight, rates), strict=True):
        np.testing.assert_allclose(found, recalibrated(weight, row), atol=1e-13)


def test_coefficients_of_a_grid_and_of_scores_agree() -> None:
    difference = np.random.default_rng(6).normal(size=(3, 64)) / 64
    middles = (np.arange(64) + 0.5) / 64
    expected = cosine_coefficients(middles, difference, 64)
    np.testing.assert_allclose(grid_coefficients(difference), expected, atol=1e-12)


def test_the_fixed_point_is_one() -> None:
    rng = np.random.default_rng(7)
    rows = np.concatenate(
        [rng.normal(size=(20, 512)) * 0.003, np.zeros((1, 512)), np.full((1, 512), 1e-7)]
    )
    rows[0, 0] = 0.4
    error, bandwidth = fixed_point(grid_coefficients(rows))
    np.testing.assert_allclose(
        smoothed_error(grid_coefficients(rows), bandwidth), error, rtol=1e-7, atol=1e-15
    )
    np.testing.assert_allclose(error[:-2], bandwidth[:-2], rtol=1e-9)
    assert error[-2] == 0.0
    assert error[-1] < bandwidth[-1]


def test_the_reference_of_every_slug_repeats() -> None:
    rng = np.random.default_rng(9)
    score = rng.beta(0.7, 0.7, 400)
    view = view_of(score, rng.random(400) < score)
    for slug in (*CURVES, "ece"):
        metric = METRICS[slug]
        assert metric.estimate(view, 3).null == metric.estimate(view, 3).null
        found = metric.estimate(view, 3).null
        assert (found == metric.estimate(view, 4).null) == (found.q95_error == 0.0)


@pytest.mark.parametrize("slug", ["brier", "accuracy"])
def test_the_quantile_of_sums_is_that_of_drawn_labels(slug: str) -> None:
    """One prediction per unit: labels drawn from the predictions give the mean and the 95 % quantile."""
    rng = np.random.default_rng(31)
    p = rng.dirichlet(np.full(3, 0.8), 600)
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(Batch.from_columns({"probabilities": p, "labels": np.zeros(600, int)}).batch)
    found = compute_metrics(View(pane, PaneQuery()), [slug])[slug]
    loss = (
        (p**2).sum(axis=1, keepdims=True) - 2.0 * p + 1.0
        if slug == "brier"
        else np.eye(3)[p.argmax(axis=1)]
    )
    drawn = (rng.random((8000, 600, 1)) > p.cumsum(axis=1)[:, :2]).sum(axis=2)
    values = loss[np.arange(600), drawn].mean(axis=1)
    spread = values.std()
    assert found["null_mean"] == pytest.approx(values.mean(), abs=0.05 * spread)
    # The quantile of 8,000 draws has a standard error of 0.024 spreads; 1.96 in place of 1.645 misses by 0.31.
    assert found["null_q95"] == pytest.approx(np.quantile(values, 0.95), abs=0.1 * spread)


def test_quantiles_of_sorted_values_have_the_bits_of_numpy() -> None:
    rng = np.random.default_rng(8)
    for _ in range(400):
        scale = 10.0 ** rng.integers(-6, 6)
        values = np.sort(rng.standard_normal(int(rng.integers(1, 2500))) * scale)
        for share in (0.0, 0.5, 0.95, 0.975, 1.0, *rng.random(3)):
            assert sorted_quantile(values, share) == np.quantile(values, share)
    assert np.isnan(sorted_quantile(np.array([1.0, 2.0, np.nan]), 0.5))
