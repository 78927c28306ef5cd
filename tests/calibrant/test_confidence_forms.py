"""Confidence histograms as they travel: arrays, updates, the window's own; smoothing; all that is read of one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.core.view import NoResultError, View
from calibrant.metrics import compute_metrics
from calibrant.segmentation.case_tables import CELLS as CASE_CELLS
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from calibrant.segmentation.histogram_measures import smoothed
from calibrant.segmentation.histogram_report import histogram_report
from calibrant.segmentation.histogram_state import complete_rows, confidence_of, left
from calibrant.segmentation.histogram_updates import read_arrays, updates_of


def batch_of(seed: int, n: int = 400, n_classes: int = 3, **columns: Any) -> Batch:
    """Rows with scores on edges, weights of two kinds, several ratings."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.7), n)
    p[::5] = np.round(p[::5] * 20) / 20
    p[::5, 0] = 1.0 - p[::5, 1:].sum(axis=1)
    p = np.clip(p, 0.0, 1.0)
    ratings = np.array(
        [rng.multinomial(rng.integers(1, 4), row) for row in p / p.sum(axis=1, keepdims=True)]
    )
    given = {"probabilities": p, "label_counts": ratings, "weights": rng.choice([1.0, 2.5], n)}
    return Batch.from_columns(given | columns, task="multiclass", n_classes=n_classes).batch


def pane_of(batch: Batch) -> Pane:
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    return pane


@pytest.mark.parametrize("raters", ["pooled", "mean", "majority"])
@pytest.mark.parametrize("bins", [20, 240, 1200])
def test_the_windows_histogram_is_that_of_its_predictions(raters: str, bins: int) -> None:
    batch = batch_of(1)
    found = confidence_of(View(pane_of(batch), left(bins, raters)))
    expected = ConfidenceHistogram.of_batch(batch, bins, raters)
    for name in ("label", "prediction"):
        assert np.allclose(found[name], getattr(expected, name), atol=1e-9)
    if bins <= 240:
        assert np.allclose(found["uncertainty"], expected.uncertainty, atol=1e-9)
    assert list(found["exact"].values()) == pytest.approx(expected.exact)
    assert found["mass"] == pytest.approx(expected.mass)
    assert found["missing"] == ({} if bins <= 240 else {"uncertainty": "bins_not_exact"})
    json.dumps(found, allow_nan=False)


def test_one_case_has_its_labels_alone() -> None:
    batch = batch_of(2, cases=[f"scan-{i % 3}" for i in range(400)])
    view = View(pane_of(batch), left(CASE_CELLS // 5, "pooled"))
    found = confidence_of(view, case="scan-1")
    own = batch.take(np.arange(400) % 3 == 1)
    assert np.allclose(
        found["label"], ConfidenceHistogram.of_batch(own, CASE_CELLS // 5).label, atol=1e-9
    )
    assert found["prediction"] is None
    assert found["missing"]["prediction"] == "not_kept_by_case"
    with pytest.raises(NoResultError, match="unknown_case"):
        confidence_of(view, case="scan-9")


def test_what_is_sent_is_answered_again() -> None:
    """Out of one model, into another: the same histogram, and the same errors from it."""
    batch = batch_of(3)
    first = pane_of(batch)
    sent = confidence_of(View(first, left(1200, "pooled")))
    spec = PaneSpec("multiclass", 3, grid=1200)
    second = Pane(spec)
    for update in updates_of(read_arrays(sent, 3), spec):
        second.fill_histogram(update)
    again = confidence_of(View(second, left(1200, "pooled")))
    assert np.allclose(again["label"], sent["label"])
    assert np.allclose(again["prediction"], sent["prediction"])
    assert again["missing"] == dict.fromkeys(("uncertainty", "exact"), "not_in_histogram")
    questions = left(20, "pooled")
    slugs = ["ece", "classwise_ece", "mce"]
    kept, came = (compute_metrics(View(pane, questions), slugs) for pane in (first, second))
    for slug in slugs:
        # Only the centres of fine bins travelled.
        assert came[slug]["value"] == pytest.approx(kept[slug]["value"], abs=0.5 / 1200)


def test_exact_sums_travel_with_their_arrays() -> None:
    batch = batch_of(6)
    result = confidence_of(View(pane_of(batch), left(240, "pooled")))
    arrays = {name: result[name] for name in ("label", "prediction", "uncertainty", "exact")}
    found = histogram_report(read_arrays(json.loads(json.dumps(arrays))), bins=20, least=0)
    loss = compute_metrics(View(pane_of(batch), left(15, "pooled")), ("nll", "brier"))
    for slug in ("nll", "brier"):
        expected = (
            loss[slug]["value"] if loss[slug]["value"] is not None else loss[slug]["finite_value"]
        )
        assert found[slug]["exact_mean"] == pytest.approx(expected, abs=1e-9)
    without = histogram_report(
        read_arrays({name: arrays[name] for name in arrays if name != "exact"}), bins=20, least=0
    )
    assert without["nll"]["exact_mean"] is None and without["nll"]["mean"] == found["nll"]["mean"]


@pytest.mark.parametrize(
    ("exact", "rule"),
    [
        ({"nll": 1.0}, "number"),
        ([1.0, 2.0, 0.5, 0.0], "number"),
        ({"nll": -1.0, "nll_weight": 2.0, "brier": 0.5, "zero_probability_weight": 0.0}, "number"),
        ({"nll": "x", "nll_weight": 2.0, "brier": 0.5, "zero_probability_weight": 0.0}, "number"),
        ({"nll": 1.0, "nll_weight": 3.0, "brier": 0.5, "zero_probability_weight": 0.0}, "mass"),
    ],
)
def test_exact_sums_of_other_samples_are_rejected(exact: Any, rule: str) -> None:
    label = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]
    with pytest.raises(CalibrationInputError) as rejection:
        read_arrays({"label": label, "exact": exact})
    assert (rejection.value.violations[0].pointer, rejection.value.violations[0].rule) == (
        "/exact",
        rule,
    )


def test_two_classes_need_no_prediction() -> None:
    batch = batch_of(4, n_classes=2, probabilities=np.random.default_rng(4).dirichlet([1, 1], 400))
    histogram = ConfidenceHistogram.of_batch(batch, 1000)
    found = read_arrays({"label": histogram.label.tolist()})
    assert np.allclose(found.prediction, histogram.prediction)
    binary = PaneSpec("binary", 2, grid=500)
    kinds = [(each.kind, each.class_index) for each in updates_of(found, binary)]
    assert kinds == [("class", 0), ("class", 1), ("positive", None), ("top_label", None)]
    pane = Pane(binary)
    for update in updates_of(found, binary):
        pane.fill_histogram(update)
    assert compute_metrics(View(pane, left(10, "pooled")), ["ece"])["ece"]["value"] is not None


HALVES = {"label": [[[0, 2.0], [1, 0]], [[0, 1], [2.0, 0]]]}


@pytest.mark.parametrize(
    ("fields", "pointer", "rule"),
    [
        ({}, "/label", "shape"),
        ({"label": [[1, 2], [3, 4]]}, "/label", "shape"),
        ({"label": [[[1, 0], [0, 1]]]}, "/label", "shape"),
        ({"label": [[[1], [0]], [[0], [1]]]}, "/label", "shape"),
        ({"label": [[[1, 0], ["a", 0]], [[0, 0], [1, 0]]]}, "/label", "shape"),
        ({"label": [[[1, 0], [0, 0]], [[0, 0], [0, -1]]]}, "/label", "number"),
        ({"label": [[[1, 0], [0, 0]], [[0, 0], [0, 2]]]}, "/label/1", "mass"),
        ({"label": [[[1, 0], [0, 0]], [[0, 1], [0, 0]]]}, "/label", "mass"),
        (HALVES | {"prediction": [[1.0], [1.0]]}, "/prediction", "shape"),
        (HALVES | {"prediction": [[0, 1.0], [0, 1.0]]}, "/prediction", "mass"),
        (HALVES | {"uncertainty": [[0, 9.0], [0, 1.0]]}, "/uncertainty", "mass"),
        ({"label": [[[0, 1.0], [0, 0]], [[0, 0], [0, 1.0]]]}, "/prediction", "mass"),
        ({"label": [[[1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1]]]}, "/prediction", "required"),
    ],
)
def test_arrays_that_contradict_each_other_are_rejected(
    fields: dict[str, Any], pointer: str, rule: str
) -> None:
    with pytest.raises(CalibrationInputError) as rejected:
        read_arrays(fields)
    assert (rejected.value.violations[0].pointer, rejected.value.violations[0].rule) == (
        pointer,
        rule,
    )


def test_arrays_of_other_classes_are_rejected() -> None:
    with pytest.raises(CalibrationInputError, match="4 classes"):
        read_arrays(HALVES, 4)


def naive_smoothed(mass: np.ndarray, width: int) -> np.ndarray:
    """Each bin's mass handed out one by one; what falls beyond an end comes back."""
    n, total = len(mass), np.zeros(len(mass))
    for i, value in enumerate(mass):
        for step in range(-width, width + 1):
            place = i + step
            place = -1 - place if place < 0 else 2 * n - 1 - place if place >= n else place
            total[place] += value * (width + 1 - abs(step)) / (width + 1) ** 2
    return total


@pytest.mark.parametrize("width", [0, 1, 4, 9])
def test_smoothing_moves_mass_and_loses_none(width: int) -> None:
    mass = np.random.default_rng(5).random((2, 3, 12))
    found = smoothed(mass, width)
    assert found.sum(axis=2) == pytest.approx(mass.sum(axis=2))
    for place in np.ndindex(2, 3):
        assert found[place] == pytest.approx(naive_smoothed(mass[place], width))
    assert np.array_equal(smoothed(mass, 0), mass)
    assert smoothed(np.ones(12), width) == pytest.approx(np.ones(12))


@pytest.mark.parametrize("width", [-1, 13, 101])
def test_widths_out_of_range_are_rejected(width: int) -> None:
    with pytest.raises(CalibrationInputError):
        smoothed(np.ones(12), width)


def test_smoothing_leaves_the_state_as_it_is() -> None:
    pane = pane_of(batch_of(6))
    before = pane.pack()
    plain, wide = (confidence_of(View(pane, left(60, "pooled")), smoothing=s) for s in (0, 5))
    assert pane.pack() == before
    assert np.allclose(wide["label"], smoothed(np.array(plain["label"]), 5))
    assert wide["mass"] == plain["mass"]


def test_all_that_is_read_of_one_histogram() -> None:
    two, three = (ConfidenceHistogram.of_batch(batch_of(7, n_classes=k)) for k in (2, 3))
    found = histogram_report(two, bins=10, least=5)
    json.dumps(found, allow_nan=False)
    assert found["temperature"]["temperature"] is not None
    assert len(found["curve"]["temperature"]) == len(found["curve"]["nll"]) == 96
    assert found["errors"]["bins"] == 10
    assert len(found["roc"]) == 2 and 0 <= found["roc"][1]["auc"] <= 1
    more = histogram_report(three)
    json.dumps(more, allow_nan=False)
    assert (more["temperature"], more["curve"], len(more["roc"])) == (None, None, 3)
    bare = histogram_report(read_arrays({"label": three.label, "prediction": three.prediction}))
    assert bare["uncertainty"] is None
    assert bare["nll"]["exact_mean"] is None
    assert bare["errors"] == more["errors"] | {"least_of": bare["errors"]["least_of"]}
    full = histogram_report(
        read_arrays(
            {"label": three.label, "prediction": three.prediction, "uncertainty": three.uncertainty}
        )
    )
    assert full["uncertainty"] == more["uncertainty"]


def test_nothing_is_read_of_nothing() -> None:
    empty = histogram_report(ConfidenceHistogram.empty(2, 100))
    json.dumps(empty, allow_nan=False)
    assert empty["nll"]["mean"] is None
    assert empty["temperature"]["reason"] == "no_data"


def test_histograms_of_every_class_speak_of_all_labels() -> None:
    batch, spec = batch_of(8), PaneSpec("multiclass", 3, grid=1200)
    complete, sent, lacking = Pane(spec), Pane(spec), Pane(spec)
    complete.fill_batch(batch)
    updates = updates_of(ConfidenceHistogram.of_batch(batch, 14400), spec)
    for update in updates:
        sent.fill_histogram(update)
        if update.class_index != 1:
            lacking.fill_histogram(update)
    pane_query = left(20, "pooled")
    found, expected, nothing = (
        compute_metrics(View(pane, pane_query), ["all_label_ece"])["all_label_ece"]
        for pane in (sent, complete, lacking)
    )
    assert found["value"] == pytest.approx(expected["value"], abs=0.5 / 14400)
    assert (found["n_ratings"], found["weight_in_histograms"]) == (
        updates[0].count.sum().round(),
        updates[0].count.sum(),
    )
    assert (nothing["value"], nothing["reason"]) == (None, "not_in_histogram")
    sent.fill_batch(batch)
    twice = compute_metrics(View(sent, pane_query), ["all_label_ece"])["all_label_ece"]
    assert twice["value"] == pytest.approx(expected["value"], abs=1e-3)
    assert twice["n_ratings"] == found["n_ratings"] + expected["n_ratings"]
    scope_all = compute_metrics(View(complete, replace(pane_query, scope="all")), ["ece"])["ece"]
    assert scope_all["value"] == expected["value"]


def test_posted_uncertainty_is_stored_and_scored() -> None:
    """Of 2^14 bins on the 240 of the state, each sum is within half a fine bin; kept cells and histograms add."""
    batch, spec = batch_of(8), PaneSpec("multiclass", 3)
    complete, sent = Pane(spec), Pane(spec)
    complete.fill_batch(batch)
    histogram = ConfidenceHistogram.of_batch(batch)
    for update in updates_of(histogram, spec):
        sent.fill_histogram(update)
    pane_query = left(20, "pooled")
    found, expected = (
        compute_metrics(View(pane, pane_query), ["uce"])["uce"] for pane in (sent, complete)
    )
    assert found["value"] == pytest.approx(expected["value"], abs=1e-3)
    assert found["weight_in_histograms"] == pytest.approx(histogram.mass)
    assert (found["null_mean"], found["null_reason"]) == (None, "not_in_histogram")
    again = Pane.unpack(sent.pack()).merge(complete)
    twice = compute_metrics(View(again, pane_query), ["uce"])["uce"]
    assert twice["value"] == pytest.approx(expected["value"], abs=1e-3)
    shown = confidence_of(View(sent, pane_query))
    naive = histogram.uncertainty.sum(axis=1)
    assert np.array(shown["uncertainty"]).sum(axis=1) == pytest.approx(naive, rel=1e-12)
    other = compute_metrics(View(sent, replace(pane_query, edges="right")), ["uce"])["uce"]
    assert (other["value"], other["reason"]) == (None, "not_in_histogram")


def test_a_complete_sample_gives_the_publications_bins() -> None:
    batch, spec = batch_of(8), PaneSpec("multiclass", 3)
    pane = Pane(spec, sample_bytes=1 << 20)
    pane.fill_batch(batch)
    rows = complete_rows(pane, 1 << 14)
    assert rows is not None and complete_rows(pane, 120) is None
    found = confidence_of(View(pane, left(1 << 14, "pooled"), rows))
    expected = ConfidenceHistogram.of_batch(batch)
    assert found["source"] == "sample"
    for name in ("label", "prediction", "uncertainty"):
        assert np.array(found[name]) == pytest.approx(getattr(expected, name), abs=1e-12)
    part = Pane(spec, sample_bytes=1 << 10)
    part.fill_batch(batch)
    assert complete_rows(part, 1 << 14) is None
