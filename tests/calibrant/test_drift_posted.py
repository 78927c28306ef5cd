"""Plain histograms as evidence: only where every unit has weight one, and then as the predictions would be."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.histogram import Histogram
from calibrant.drift.cohort_tables import has_histograms, posted_table, scalar
from calibrant.drift.unit_tables import unit_table

SPEC = PaneSpec("binary", 2)
PLATT = {
    "scope": "positive",
    "method": "platt",
    "parameters": {"intercept": 0.3, "slope": 0.6, "clip": 1e-12},
}


def histogram_of(spec, kind, score, label, weight, n_units, **more):
    """What a client posts, by a loop over its predictions."""
    count, sums, hits = np.zeros(3600), np.zeros(3600), np.zeros(3600)
    for p, y, w in zip(score, label, weight, strict=True):
        cell = max(int(np.ceil(p * 3600)) - 1, 0)
        count[cell] += w
        sums[cell] += w * p
        hits[cell] += w * y
    fields = {"kind": kind, "bins": 3600, "n_units": n_units}
    tables = {
        "count": count.tolist(),
        "sum_confidence": sums.tolist(),
        "sum_correct": hits.tolist(),
    }
    return Histogram.from_fields(fields | tables | more, spec)


def pane_with(*histograms, spec=SPEC):
    pane = Pane(spec)
    for each in histograms:
        pane.fill_histogram(each)
    return pane


@pytest.fixture(scope="module")
def day():
    rng = np.random.default_rng(3)
    score = rng.beta(0.7, 2.2, 400)
    return score, (rng.random(400) < score).astype(int)


@pytest.mark.parametrize("policy", ["pooled", "mean"])
def test_predictions_of_their_own_units_give_the_table_that_they_give_as_rows(day, policy):
    score, label = day
    rows = Pane(SPEC)
    rows.fill_batch(
        Batch.from_columns({"confidences": score, "labels": label}, task="binary").batch
    )
    halves = [
        histogram_of(SPEC, "positive", score[i::2], label[i::2], np.ones(200), 200, raters=policy)
        for i in (0, 1)
    ]
    table = posted_table(pane_with(*halves), "score", "mean")
    np.testing.assert_allclose(table.columns, unit_table(rows, "mean").columns, atol=1e-9)
    np.testing.assert_array_equal(table.predictions, table.weight)


def test_units_of_several_predictions_count_where_the_client_weighs_them_as_one(day):
    score, label = day
    weight = np.repeat([1 / 2, 1 / 8], 200)
    table = posted_table(
        pane_with(histogram_of(SPEC, "positive", score, label, weight, 125)), "score", "mean"
    )
    naive = np.zeros((3, 15))
    for p, y, w in zip(score, label, weight, strict=True):
        naive[:, max(int(np.ceil(p * 15)) - 1, 0)] += w, w * p, w * y
    np.testing.assert_allclose([table.weight, table.confidence, table.correct], naive, atol=1e-9)
    assert table.n_units == pytest.approx(125.0)


def test_pixels_as_units_are_no_evidence(day):
    score, label = day
    pixels = histogram_of(SPEC, "positive", score, label, np.ones(400), 10)
    assert (
        has_histograms(pane_with(pixels))
        and posted_table(pane_with(pixels), "score", "mean") is None
    )
    named = histogram_of(SPEC, "positive", score, label, np.ones(400), None, unit="patient-1")
    assert posted_table(pane_with(named), "score", "mean") is None
    unnamed = histogram_of(SPEC, "positive", score, label, np.full(400, 1 / 400), None)
    assert posted_table(pane_with(unnamed), "score", "mean") is None


def test_one_histogram_a_unit_that_weighs_it_as_one_is_evidence(day):
    score, label = day
    several = [
        histogram_of(
            SPEC,
            "positive",
            score[i : i + 40],
            label[i : i + 40],
            np.full(40, 1 / 40),
            None,
            unit=f"p{i}",
        )
        for i in range(0, 400, 40)
    ]
    pane = pane_with(*several)
    assert posted_table(pane, "score", "mean").n_units == pytest.approx(10.0)
    pane.fill_histogram(several[0].negated())
    assert posted_table(pane, "score", "mean").n_units == pytest.approx(9.0)


def test_only_histograms_of_what_is_bet_on_speak(day):
    score, label = day
    spec = PaneSpec("multiclass", 3)
    pane = pane_with(
        histogram_of(spec, "class", score, label, np.ones(400), 400, **{"class": 1}), spec=spec
    )
    assert (
        posted_table(pane, "score", "mean") is None
        and posted_table(pane, "class:2", "mean") is None
    )
    assert posted_table(pane, "class:1", "mean").n_units == 400.0
    assert posted_table(Pane(spec), "class:1", "mean") is None and not has_histograms(Pane(spec))


def test_cells_are_mapped_at_their_mean_score(day):
    score, label = day
    pane = pane_with(histogram_of(SPEC, "positive", score, label, np.ones(400), 400))
    table = posted_table(pane, "score", "mean", PLATT)
    mapped = scalar(PLATT, "score", "binary", score)
    assert table.confidence.sum() == pytest.approx(mapped.sum(), abs=1e-3)
    place = np.maximum(np.ceil(mapped * 15).astype(int) - 1, 0)
    # A cell at an end of a bin may fall to the other side as a whole.
    assert np.abs(table.weight - np.bincount(place, minlength=15)).sum() <= 4


def test_what_was_replaced_by_a_later_total_is_gone(day):
    score, label = day
    early = histogram_of(SPEC, "positive", score[:100], label[:100], np.ones(100), 100)
    late = histogram_of(SPEC, "positive", score, label, np.ones(400), 400)
    pane = pane_with(early, early.negated(), late)
    np.testing.assert_allclose(
        posted_table(pane, "score", "mean").columns,
        posted_table(pane_with(late), "score", "mean").columns,
        atol=1e-9,
    )
