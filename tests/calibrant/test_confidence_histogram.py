"""Confidence histograms: against rows, identities between them, temperatures, conversion, bytes."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.accumulators.entropy_cells import normalised_entropy
from calibrant.calibrators.temperature.fit import fit_temperature_exact
from calibrant.calibrators.temperature.histogram_fit import (
    fit_histogram_temperature,
    fold_temperature,
)
from calibrant.calibrators.temperature.losses import (
    EceOptions,
    HistogramLosses,
    TwoClassLosses,
)
from calibrant.calibrators.temperature.surface import loss_curve, loss_surface
from calibrant.core.packing import PackingError
from calibrant.core.pane_validation import check_pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.metrics.uce import inverse_binary_entropy
from calibrant.segmentation.class_histograms import (
    FINE_BINS,
    ConfidenceHistogram,
)
from calibrant.segmentation.histogram_measures import (
    brier,
    calibration_errors,
    nll,
    roc,
    uncertainty_errors,
)
from calibrant.segmentation.histogram_tables import coarse_table
from calibrant.segmentation.histogram_updates import updates_of


def batch_of(seed: int, n: int, n_classes: int = 3, sharp: float = 2.0, **columns: Any) -> Batch:
    """Over-confident logits with one rating each."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=1.3, size=(n, n_classes))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) > rng.random(n)[:, None]).argmax(axis=1)
    given = {"logits": sharp * logits, "labels": labels}
    return Batch.from_columns(given | columns, task="multiclass", n_classes=n_classes).batch


def labels_of(batch: Batch) -> np.ndarray:
    return batch.label_counts.argmax(axis=1)


def naive_error(
    score: np.ndarray, hit: np.ndarray, weight: np.ndarray, bins: int, least: float
) -> dict[str, float]:
    """Row by row over quantised scores, [lo, hi)."""
    mass, gaps = [], []
    total = weight.sum()
    for b in range(bins):
        inside = (score >= b / bins) & (score < (b + 1) / bins)
        w = weight[inside].sum()
        if w >= least and w > 0:
            mass.append(w)
            gaps.append(abs((weight[inside] * (hit[inside] - score[inside])).sum() / w))
    return {
        "ece": float(np.dot(mass, gaps) / np.sum(mass)),
        "full": float(np.dot(mass, gaps) / total),
        "mce": max(gaps),
        "ace": float(np.mean(gaps)),
        "discarded": float(total - np.sum(mass)),
    }


def quantised(score: np.ndarray, n: int = FINE_BINS) -> np.ndarray:
    return (np.minimum(np.floor(score * n), n - 1) + 0.5) / n


@pytest.mark.parametrize("least", [0, 50])
@pytest.mark.parametrize("bins", [16, 20])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_the_rows(least: int, bins: int, weighted: bool) -> None:
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 900) if weighted else np.ones(900)
    batch = batch_of(1, 900, weights=weights)
    p, y = quantised(batch.probabilities), labels_of(batch)
    top = batch.probabilities.argmax(axis=1)
    found = calibration_errors(ConfidenceHistogram.of_batch(batch), bins, least=least)
    assert found["least_of"] == ("mass" if weighted else "samples")
    expected = naive_error(p.max(axis=1), top == y, weights, bins, least)
    for name in ("ece", "mce", "ace"):
        assert found["prediction"][name] == pytest.approx(expected[name], abs=1e-9)
    assert found["prediction"]["discarded_mass"] == pytest.approx(expected["discarded"], abs=1e-9)
    by_class = [naive_error(p[:, k], y == k, weights, bins, least) for k in range(3)]
    for one, wanted in zip(found["by_class"], by_class, strict=True):
        assert one["ece"] == pytest.approx(wanted["ece"], abs=1e-9)
    assert found["classwise"]["ece"] == pytest.approx(
        np.mean([one["ece"] for one in by_class]), abs=1e-9
    )
    everything = naive_error(p.ravel(), np.eye(3)[y].ravel(), np.repeat(weights, 3), bins, least)
    assert found["full"]["ece"] == pytest.approx(everything["ece"], abs=1e-9)
    assert found["full"]["mass"] == pytest.approx(3 * weights.sum())
    complete = calibration_errors(
        ConfidenceHistogram.of_batch(batch), bins, least=least, denominator="full"
    )
    assert complete["prediction"]["ece"] == pytest.approx(expected["full"], abs=1e-9)


def test_losses_from_centres_and_exact_ones_beside() -> None:
    batch = batch_of(2, 400)
    histogram = ConfidenceHistogram.of_batch(batch)
    p, y = batch.probabilities, labels_of(batch)
    rows = np.arange(400)
    loss, score = nll(histogram), brier(histogram)
    assert loss["sum"] == pytest.approx(-np.log(quantised(p)[rows, y]).sum(), abs=1e-9)
    assert loss["mean"] == pytest.approx(loss["sum"] / 400)
    assert loss["exact_mean"] == pytest.approx(-np.log(p[rows, y]).mean(), abs=1e-12)
    assert loss["largest"] == pytest.approx(10.397, abs=1e-3)
    assert score["exact_mean"] == pytest.approx(
        ((p - np.eye(3)[y]) ** 2).sum(axis=1).mean(), abs=1e-12
    )
    assert score["mean"] == pytest.approx(score["exact_mean"], abs=3 / FINE_BINS)


def test_a_probability_of_zero_is_counted_and_bounded() -> None:
    batch = Batch.from_columns({"probabilities": [[0.0, 1.0], [0.0, 1.0]], "labels": [0, 1]}).batch
    loss = nll(ConfidenceHistogram.of_batch(batch))
    assert loss["zero_probability_weight"] == 1.0
    assert loss["exact_mean"] == 0.0
    assert loss["sum"] == pytest.approx(loss["largest"], abs=1e-4)


def test_close_to_the_panes_metrics() -> None:
    batch = batch_of(3, 3000)
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch)
    metrics = compute_metrics(
        View(pane, PaneQuery(bins=20, edges="left")), ["ece", "classwise_ece", "all_label_ece"]
    )
    found = calibration_errors(ConfidenceHistogram.of_batch(batch, 14400), 20, least=0)
    assert found["prediction"]["ece"] == pytest.approx(metrics["ece"]["value"], abs=1 / 14400)
    assert found["classwise"]["ece"] == pytest.approx(
        metrics["classwise_ece"]["value"], abs=1 / 14400
    )
    assert found["full"]["ece"] == pytest.approx(metrics["all_label_ece"]["value"], abs=1 / 14400)


def test_of_two_classes_the_prediction_histogram_follows_from_the_labels() -> None:
    batch = batch_of(4, 500, 2)
    histogram = ConfidenceHistogram.of_batch(batch)
    half = FINE_BINS // 2
    derived = histogram.label[:, :, half:].sum(axis=0)
    np.testing.assert_array_equal(derived, histogram.prediction[:, half:])
    errors = calibration_errors(histogram, 20)
    assert errors["full"]["ece"] == pytest.approx(errors["prediction"]["ece"], abs=1e-9)


def test_a_tie_of_two_classes_counts_once_and_for_the_lower() -> None:
    batch = Batch.from_columns({"probabilities": [[0.5, 0.5], [0.5, 0.5]], "labels": [0, 1]}).batch
    histogram = ConfidenceHistogram.of_batch(batch)
    assert histogram.prediction.sum() == 2
    assert histogram.prediction[1].sum() == 1


@pytest.mark.parametrize("raters", ["pooled", "mean", "majority", "single"])
def test_several_raters(raters: str) -> None:
    rng = np.random.default_rng(6)
    ratings = rng.integers(0, 3, (200, 3)) + np.array([1, 0, 0])
    rows = {"probabilities": rng.dirichlet(np.ones(3), 200), "label_counts": ratings}
    batch = Batch.from_columns(rows).batch
    histogram = ConfidenceHistogram.of_batch(batch, raters=raters)
    n = ratings.sum() if raters == "pooled" else 200
    assert histogram.label[0].sum() == pytest.approx(n)
    assert histogram.n_samples == n
    assert histogram.label[:, 1].sum() == pytest.approx(n)
    assert histogram.prediction.sum() == pytest.approx(n)


def test_equal_mass_bins_hold_equal_mass() -> None:
    histogram = ConfidenceHistogram.of_batch(batch_of(5, 2000))
    table = coarse_table(histogram, "all", 10, binning="equal_mass")
    assert len(table.mass) == 10
    assert np.abs(table.mass - 600).max() < 40
    assert (table.lower[1:] == table.upper[:-1]).all()
    assert (table.mean >= table.lower).all()
    assert (table.mean <= table.upper).all()
    empty = coarse_table(ConfidenceHistogram.empty(3), "all", 10, binning="equal_mass")
    assert empty.errors()["ece"] is None


def test_uncertainty_of_two_classes_has_an_ideal_curve() -> None:
    p = np.linspace(0.001, 0.5, 50)
    entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    np.testing.assert_allclose(inverse_binary_entropy(entropy), p, atol=1e-7)
    np.testing.assert_allclose(inverse_binary_entropy(np.array([0.0, 1.0])), [0.0, 0.5], atol=1e-7)
    calibrated = batch_of(7, 40_000, 2, sharp=1.0)
    found = uncertainty_errors(ConfidenceHistogram.of_batch(calibrated), 20)
    assert found["to_ideal"]["uce"] < 0.015
    assert found["uce"] > 0.1
    batch = batch_of(7, 600)
    p, y = batch.probabilities, labels_of(batch)
    expected = naive_error(
        quantised(normalised_entropy(p)), p.argmax(axis=1) != y, np.ones(600), 20, 50
    )
    three = uncertainty_errors(ConfidenceHistogram.of_batch(batch), 20)
    assert three["uce"] == pytest.approx(expected["ece"], abs=1e-9)
    assert three["to_ideal"] is None


def test_roc_counts_ties_half() -> None:
    batch = batch_of(8, 300, 2)
    score, y = quantised(batch.probabilities[:, 1]), labels_of(batch)
    difference = score[y == 1][:, None] - score[y == 0]
    expected = (difference > 0).mean() + (difference == 0).mean() / 2
    found = roc(ConfidenceHistogram.of_batch(batch))
    assert found["auc"] == pytest.approx(expected, abs=1e-12)
    exact = batch.probabilities[y == 1, 1][:, None] > batch.probabilities[y == 0, 1]
    assert abs(found["auc"] - exact.mean()) <= found["error_bound"] + 1e-12
    assert (found["true_positive_rate"][-1], found["false_positive_rate"][-1]) == (1.0, 1.0)
    assert roc(ConfidenceHistogram.empty(2))["auc"] is None


# State.


def same(one: ConfidenceHistogram, other: ConfidenceHistogram) -> bool:
    names = ("label", "prediction", "uncertainty")
    equal = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return (
        equal
        and one.n_samples == other.n_samples
        and np.allclose(one.exact, other.exact, atol=1e-9)
    )


def merged(histograms: list[ConfidenceHistogram]) -> ConfidenceHistogram:
    return reduce(ConfidenceHistogram.merge, histograms[1:], histograms[0].copy())


def test_parts_add_up_in_any_order_and_can_be_taken_away() -> None:
    batch = batch_of(9, 300)
    complete = ConfidenceHistogram.of_batch(batch)
    pieces = [
        ConfidenceHistogram.of_batch(batch.take(np.arange(a, b)))
        for a, b in ((0, 10), (10, 11), (11, 300))
    ]
    assert same(merged(pieces), complete)
    assert same(merged(pieces[::-1]), complete)
    assert same(complete.copy().subtract(pieces[2]), merged(pieces[:2]))
    assert same(merged([ConfidenceHistogram.empty(3), complete]), complete)
    weighted = ConfidenceHistogram.of_batch(batch_of(9, 300, weights=np.linspace(0.1, 3, 300)))
    assert not weighted.copy().subtract(weighted).label.any()
    with pytest.raises(ValueError, match="expected equal ones"):
        complete.merge(ConfidenceHistogram.empty(3, 64))


def test_saved_histograms_are_read_back(tmp_path: Path) -> None:
    histogram = ConfidenceHistogram.of_batch(
        batch_of(11, 200, weights=np.linspace(0, 2, 200)), 1000
    )
    histogram.save(tmp_path / "case.calb")
    again = ConfidenceHistogram.load(tmp_path / "case.calb")
    assert same(again, histogram)
    assert again.is_weighted
    assert again.pack() == histogram.pack()
    with pytest.raises(PackingError):
        ConfidenceHistogram.unpack(Pane(PaneSpec("binary", 2)).pack())
    with pytest.raises(PackingError):
        ConfidenceHistogram.unpack(histogram.pack()[:-3])


def test_empty_histograms_have_no_numbers() -> None:
    empty = ConfidenceHistogram.empty(2)
    assert nll(empty)["mean"] is None
    assert brier(empty)["mean"] is None
    assert calibration_errors(empty)["prediction"]["ece"] is None
    assert calibration_errors(empty)["classwise"]["ece"] is None
    assert uncertainty_errors(empty)["uce"] is None
    assert fit_histogram_temperature(empty)["reason"] == "no_data"


def test_perfect_predictions() -> None:
    batch = Batch.from_columns(
        {"probabilities": np.eye(3)[[0, 1, 2] * 30], "labels": [0, 1, 2] * 30}
    ).batch
    errors = calibration_errors(ConfidenceHistogram.of_batch(batch))
    assert errors["prediction"]["ece"] == pytest.approx(0.5 / FINE_BINS)
    assert errors["prediction"]["mce"] == pytest.approx(0.5 / FINE_BINS)


# Conversion.


def test_updates_of_the_service() -> None:
    batch, spec = batch_of(12, 500), PaneSpec("multiclass", 3)
    histogram = ConfidenceHistogram.of_batch(batch, 14400)
    sent, filled = Pane(spec), Pane(spec)
    filled.fill_batch(batch)
    for update in updates_of(histogram, spec, case="scan"):
        sent.fill_histogram(update)
    check_pane(sent)
    pane_query = PaneQuery(bins=20, edges="left")
    slugs = ["ece", "classwise_ece"]
    got, wanted = (compute_metrics(View(pane, pane_query), slugs) for pane in (sent, filled))
    for slug in slugs:
        assert got[slug]["value"] == pytest.approx(wanted[slug]["value"], abs=1 / 14400)
    cases = compute_metrics(View(sent, pane_query), ["ml1_ece"])["ml1_ece"]
    assert cases["n_cases"] == 1
    with pytest.raises(CalibrationInputError):
        updates_of(ConfidenceHistogram.of_batch(batch, 600), spec)


# Temperatures.


def test_the_temperature_is_that_of_the_rows() -> None:
    batch = batch_of(13, 4000, 2)
    histogram = ConfidenceHistogram.of_batch(batch)
    by_nll, by_brier = (fit_histogram_temperature(histogram, name) for name in ("nll", "brier"))
    for found, objective in ((by_nll, "nll"), (by_brier, "brier")):
        exact = fit_temperature_exact(batch, objective=objective)["temperature"]
        assert found["temperature"] == pytest.approx(exact, rel=2e-3)
        assert found["after"][objective] < found["before"][objective]
        assert not found["at_bound"]
    by_ece = fit_histogram_temperature(histogram, "ece", EceOptions(least=50))
    assert by_ece["plateau"][0] <= by_ece["temperature"] <= by_ece["plateau"][1]
    curve = loss_curve(
        HistogramLosses(histogram, EceOptions()), np.array([by_ece["temperature"], 0.5, 1.0, 4.0])
    )
    assert min(curve["ece"]) == curve["ece"][0] == pytest.approx(by_ece["after"]["ece"])
    fine = loss_curve(
        HistogramLosses(histogram, EceOptions()),
        by_nll["temperature"] + np.array([0.0, -1e-3, 1e-3]),
    )
    assert min(fine["nll"]) == fine["nll"][0]


def test_temperatures_at_the_end_of_the_range() -> None:
    right = Batch.from_columns({"confidences": [0.6] * 60, "labels": [1] * 60}).batch
    wrong = Batch.from_columns({"confidences": [0.9] * 60, "labels": [0, 1] * 30}).batch
    for batch, expected in ((right, 0.5), (wrong, 10.0)):
        for objective in ("nll", "brier"):
            found = fit_histogram_temperature(ConfidenceHistogram.of_batch(batch), objective)
            assert (found["temperature"], found["at_bound"]) == (expected, True)


def test_curves_of_histogram_and_rows_agree() -> None:
    batch = batch_of(14, 800, 2)
    temperatures = np.array([0.5, 1.0, 2.0, 10.0])
    options = EceOptions(least=0)
    kept = loss_curve(HistogramLosses(ConfidenceHistogram.of_batch(batch), options), temperatures)
    exact = loss_curve(TwoClassLosses.of_batch(batch, options), temperatures)
    p, y = batch.probabilities, labels_of(batch)
    assert exact["nll"][1] == pytest.approx(-np.log(p[np.arange(800), y]).mean(), abs=1e-12)
    assert exact["brier"][1] == pytest.approx(
        ((p - np.eye(2)[y]) ** 2).sum(axis=1).mean(), abs=1e-12
    )
    top = p.argmax(axis=1)
    assert exact["ece"][1] == pytest.approx(
        naive_error(p.max(axis=1), top == y, np.ones(800), 20, 0)["ece"], abs=1e-9
    )
    for name, tolerance in (("nll", 2e-3), ("brier", 2e-4), ("ece", 5e-3)):
        np.testing.assert_allclose(kept[name], exact[name], atol=tolerance)


def test_surfaces_contain_the_curve() -> None:
    batch = batch_of(15, 500, 2)
    losses = HistogramLosses(ConfidenceHistogram.of_batch(batch), EceOptions())
    along, up = np.array([0.5, 1.0, 3.0]), np.array([1.0, 3.0])
    surface, curve = loss_surface(losses, along, up), loss_curve(losses, up)
    for name in ("nll", "brier", "ece"):
        assert np.shape(surface[name]) == (2, 3)
        assert [surface[name][0][1], surface[name][1][2]] == pytest.approx(curve[name], abs=1e-12)
    probabilities = Batch.from_columns(
        {"probabilities": batch.probabilities, "labels": labels_of(batch)}
    ).batch
    rows = loss_surface(TwoClassLosses.of_batch(probabilities, EceOptions()), along, up)
    np.testing.assert_allclose(surface["nll"], rows["nll"], atol=5e-3)
    logits = loss_surface(TwoClassLosses.of_batch(batch, EceOptions()), along, up)
    zed = batch.scores / np.array([3.0, 1.0])
    expected = np.log(np.exp(zed).sum(axis=1)) - zed[np.arange(500), labels_of(batch)]
    assert logits["nll"][0][2] == pytest.approx(expected.mean(), abs=1e-12)


def test_a_folded_temperature_divides_the_logits() -> None:
    rng = np.random.default_rng(0)
    weights, bias, x = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4)
    w, b = fold_temperature(weights, bias, 1.7)
    np.testing.assert_allclose(w @ x + b, (weights @ x + bias) / 1.7)


def test_what_cannot_be_answered_is_rejected() -> None:
    three, two = (
        ConfidenceHistogram.of_batch(batch_of(1, 20)),
        ConfidenceHistogram.of_batch(batch_of(1, 20, 2)),
    )
    for rejected in (
        lambda: HistogramLosses(three, EceOptions()),
        lambda: fit_histogram_temperature(two, "log"),
        lambda: EceOptions(bins=0),
        lambda: EceOptions(denominator="half"),
        lambda: loss_curve(HistogramLosses(two, EceOptions()), np.array([0.0])),
        lambda: loss_surface(TwoClassLosses.of_batch(batch_of(1, 20), EceOptions())),
        lambda: coarse_table(two, "label", label=2),
        lambda: coarse_table(two, "other"),
        lambda: coarse_table(two, bins=FINE_BINS + 1),
        lambda: coarse_table(two, binning="other"),
        lambda: calibration_errors(two, denominator="half"),
        lambda: fold_temperature(np.ones(1), np.ones(1), 0.0),
        lambda: ConfidenceHistogram.empty(1),
        lambda: ConfidenceHistogram.empty(2, 1),
    ):
        with pytest.raises(CalibrationInputError):
            rejected()
    with pytest.raises(ValueError, match="expected 2"):
        two.fill(batch_of(1, 20))
