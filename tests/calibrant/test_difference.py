"""Differences of two windows or models: signs, pairs, coverage of the interval."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.guarantees.rows_paired import TwoModels
from calibrant import Batch, Pane, PaneSpec
from calibrant.core.batch_sums import BatchSums
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import PaneQuery, View, compute_metrics
from tests.oracle.panes import fill_part

GAPS = ["ece", "rmsce", "classwise_ece"]
SPEC = PaneSpec("binary", 2)
SLUGS = ["brier", "accuracy", "nll", "ece", "debiased_ece", "mce", "kde_ece", "refinement_loss"]
PANE_QUERY = PaneQuery(bins=10, scope="positive")
READ = ("counts", "positive", "replicates", "scores", "units")


def view_of(p: np.ndarray, y: np.ndarray, units: list[str]) -> View:
    pane = Pane(SPEC)
    pane.fill_batch(Batch.from_columns({"confidences": p, "labels": y, "units": units}).batch)
    return View(pane, PANE_QUERY)


def quick_view_of(p: np.ndarray, y: np.ndarray, units: list[str]) -> View:
    """Of a pane that holds only what Brier score, calibration error and their differences read."""
    batch_sums = BatchSums(
        Batch.from_columns({"confidences": p, "labels": y, "units": units}).batch
    )
    pane = Pane(SPEC)
    for name in READ:
        fill_part(pane[name], batch_sums)
    return View(pane, PANE_QUERY)


def test_the_quick_view_answers_like_the_whole_one() -> None:
    rng = np.random.default_rng(4)
    p, q = rng.random((2, 300))
    columns = [(z, (rng.random(300) < z).astype(int), names(300)) for z in (p, q)]
    quick, complete = ([make(*each) for each in columns] for make in (quick_view_of, view_of))
    found, expected = (differences(*views, ["brier", "ece"]) for views in (quick, complete))
    # The kernel fills whole panes, and numpy these parts: sums may differ in their last digits.
    assert {slug: each.keys() for slug, each in found.items()} == {
        slug: each.keys() for slug, each in expected.items()
    }
    for slug, each in expected.items():
        for name, value in each.items():
            is_number = isinstance(value, (float, list)) and value != []
            assert found[slug][name] == (pytest.approx(value, rel=1e-12) if is_number else value)


def names(n: int, prefix: str = "u") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def sharpened(p: np.ndarray, by: float) -> np.ndarray:
    odds = (p / (1 - p)) ** by
    return odds / (1 + odds)


def test_a_window_differs_from_itself_by_nothing() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(500)
    view = view_of(p, (rng.random(500) < p).astype(int), names(500))
    found = differences(view, view, SLUGS)
    alone = compute_metrics(view, SLUGS)
    for slug in SLUGS:
        assert found[slug]["difference"] == 0.0
        assert found[slug]["value"] == found[slug]["against"] == alone[slug]["value"]
        if slug == "refinement_loss":
            assert found[slug]["difference_reason"].endswith("not_replicated")
        else:
            low, high = found[slug]["difference_interval"]
            assert low <= 0.0 <= high
            if slug in ("brier", "accuracy", "nll"):
                assert (low, high) == pytest.approx((0.0, 0.0), abs=1e-12)
    json.dumps(found, allow_nan=False)


def test_two_models_on_the_same_units_are_distinguished_better_than_on_others() -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(0.02, 0.98, 800)
    y = (rng.random(800) < p).astype(int)
    q = np.clip(p + rng.normal(0, 0.03, 800), 0.01, 0.99)
    other_y = (rng.random(800) < p).astype(int)
    paired = differences(view_of(q, y, names(800)), view_of(p, y, names(800)), SLUGS)
    apart = differences(view_of(q, y, names(800)), view_of(p, other_y, names(800, "v")), SLUGS)
    for slug in ("brier", "nll"):
        widths = [np.ptp(found[slug]["difference_interval"]) for found in (paired, apart)]
        assert widths[0] < widths[1] / 3


@pytest.mark.parametrize("models", [
    TwoModels(60, (1.0, 2.0)), TwoModels(300, (1.0, 2.0)), TwoModels(2000, (1.0, 2.0)),
    TwoModels(300, (1.0, 2.0), raters=5), TwoModels(300, (1.0, 1.0), noise=0.05), TwoModels(300, (1.8, 2.0)),
    TwoModels(300, (1.0, 2.0), n_classes=10), TwoModels(2000, (1.8, 2.0), n_classes=10),
    TwoModels(300, (1.6, 1.0), noise=0.5),
], ids=lambda each: each.text)  # fmt: skip
def test_the_same_rows_make_no_difference_less_certain(models: TwoModels) -> None:
    """One model is calibrated in most settings, so that its interval ends at 0 and the bounds of both are reached at once."""
    widths = np.zeros((2, len(GAPS)))
    for run in range(16):
        rng = np.random.default_rng([3, run])
        one, two, rate = models.draw(rng, models.n)
        _, other, other_rate = models.draw(rng, models.n)
        labels, other_labels = (rng.multinomial(models.raters, each) for each in (rate, other_rate))
        mine = scored(models, one, labels, f"{run}-a")
        sides = (
            scored(models, two, labels, f"{run}-a"),
            scored(models, other, other_labels, f"{run}-b"),
        )
        for i, side in enumerate(sides):
            found = differences(mine, side, GAPS)
            widths[i] += [np.ptp(found[slug]["difference_interval"]) for slug in GAPS]
    assert (widths[0] < 1.05 * widths[1]).all(), widths[0] / widths[1]
    if models.slopes == (1.8, 2.0) and models.n == 2000:
        # Neither interval ends at 0: what both have in common cancels.
        assert (widths[0] < 0.8 * widths[1]).all(), widths[0] / widths[1]


def scored(models: TwoModels, p: np.ndarray, label_counts: np.ndarray, prefix: str) -> View:
    several = models.n_classes > 2
    pane = Pane(PaneSpec("multiclass" if several else "binary", models.n_classes))
    columns = {
        "probabilities" if several else "confidences": models.scores(p),
        "label_counts": label_counts,
        "ids": names(models.n, prefix),
    }
    pane.fill_batch(Batch.from_columns(columns).batch)
    return View(pane, PaneQuery())


# Differences of independent windows are among the default tests of guarantees.
@pytest.mark.parametrize(("by", "is_paired"), [
    (1.3, True),
    *(pytest.param(by, paired, marks=pytest.mark.slow) for by, paired in ((1.3, False), (1.8, False), (1.8, True))),
])  # fmt: skip
def test_the_interval_covers_the_true_difference(by: float, is_paired: bool) -> None:
    """Nominal within six points; of a calibration error against none it may cover more."""
    rng = np.random.default_rng(int(by * 10) + is_paired)
    n, n_runs = 1500, 150

    def run() -> dict:
        p = rng.uniform(0.02, 0.98, n)
        y = (rng.random(n) < p).astype(int)
        if is_paired:
            base = quick_view_of(p, y, names(n))
        else:
            other = rng.uniform(0.02, 0.98, n)
            base = quick_view_of(other, (rng.random(n) < other).astype(int), names(n, "v"))
        return differences(quick_view_of(sharpened(p, by), y, names(n)), base, ["brier", "ece"])

    grid = np.linspace(0.02, 0.98, 200_001)
    bins = np.minimum((sharpened(grid, by) * 10).astype(int), 9)
    gap = np.bincount(bins, grid - sharpened(grid, by), 10)
    truth = {
        "ece": float(np.abs(gap).sum() / len(grid)),
        "brier": float(2 * np.mean((grid - sharpened(grid, by)) ** 2)),
    }
    found = [run() for _ in range(n_runs)]
    for slug, true in truth.items():
        bounds = np.array([each[slug]["difference_interval"] for each in found])
        covered = float(np.mean((bounds[:, 0] <= true) & (true <= bounds[:, 1])))
        assert covered >= 0.89, (slug, covered)
        assert slug == "ece" or covered <= 0.99, (slug, covered)


def test_no_data_on_one_side_is_no_difference() -> None:
    rng = np.random.default_rng(2)
    p = rng.random(100)
    view = view_of(p, (rng.random(100) < p).astype(int), names(100))
    empty = View(Pane(SPEC), PANE_QUERY)
    found = differences(view, empty, ["ece", "brier"])
    for each in found.values():
        assert (each["difference"], each["difference_interval"]) == (None, None)
        assert each["difference_reason"] == "no_data"
