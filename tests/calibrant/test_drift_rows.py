"""Tables from rows: units once in a cohort, classes with shared units, mapped scores; what they describe."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.label_policies import POLICIES
from calibrant.drift.cohort_tables import row_table, scalar, scores_of, side_of
from calibrant.drift.unit_tables import unit_table
from calibrant.raters.label_coverage import label_counts

BINS = 15
PLATT = {
    "method": "platt",
    "scope": "positive",
    "class": None,
    "parameters": {"slope": 0.5, "intercept": 0.3, "clip": 1e-12},
}
TEMPERATURE = {
    "method": "temperature",
    "scope": "full",
    "class": None,
    "parameters": {"temperature": 2.0},
}


def drawn(seed=0, n=60, n_units=25, n_classes=3):
    """Rows that share units, some unlabelled, with up to four ratings."""
    rng = np.random.default_rng(seed)
    labels = [
        rng.integers(0, n_classes, rng.integers(1, 5)).tolist() if rng.random() < 0.8 else None
        for _ in range(n)
    ]
    columns = {
        "probabilities": rng.dirichlet(np.ones(n_classes), n),
        "labels": labels,
        "ids": [f"i{i}" for i in range(n)],
        "units": [f"u{rng.integers(n_units)}" for _ in range(n)],
    }
    return columns, Batch.from_columns(columns, n_classes=n_classes).batch


def naive(columns, raters, scope, single):
    """Row by row: each labelled row of a unit has its share of the weight of one."""
    labelled = [i for i, ratings in enumerate(columns["labels"]) if ratings]
    amount = {i: len(columns["labels"][i]) if raters == "pooled" else 1 for i in labelled}
    total = Counter()
    for i in labelled:
        total[columns["units"][i]] += amount[i]
    sums = np.zeros((3, BINS))
    squared = defaultdict(float)
    for i in labelled:
        p, ratings = columns["probabilities"][i], columns["labels"][i]
        class_index = int(np.argmax(p)) if scope == "score" else int(scope.split(":")[1])
        share = ratings.count(class_index) / len(ratings)
        if raters == "majority":
            own_ratings = [ratings.count(k) for k in range(len(p))]
            share = float(own_ratings.index(max(own_ratings)) == class_index)
        elif raters == "single":
            share = float(single[i] == class_index)
        place = int(np.ceil(p[class_index] * BINS)) - 1
        weight = amount[i] / total[columns["units"][i]]
        sums[:, place] += weight, weight * p[class_index], weight * share
        squared[columns["units"][i], place] += weight
    squares = np.zeros(BINS)
    for (_, place), weight in squared.items():
        squares[place] += weight**2
    return np.vstack([sums, squares])


@pytest.mark.parametrize("raters", POLICIES)
@pytest.mark.parametrize("scope", ["score", "class:2"])
def test_rows_equal_the_naive_sums(raters, scope):
    columns, batch = drawn()
    table = row_table(batch, scope, raters)
    expected = naive(columns, raters, scope, batch.chosen_rating)
    np.testing.assert_allclose(table.columns[:4], expected, atol=1e-12)
    assert table.n_units == pytest.approx(
        len({u for u, r in zip(columns["units"], columns["labels"], strict=True) if r})
    )
    assert table.occupancy.sum() == pytest.approx(len(set(columns["units"])))
    assert table.columns[5:].sum(axis=1).tolist() == [
        60,
        sum(r is not None for r in columns["labels"]),
    ]
    if scope == "score":
        pane = Pane(PaneSpec("multiclass", 3))
        pane.fill_batch(batch)
        kept = unit_table(pane, raters)
        np.testing.assert_allclose(table.columns[:3], kept.columns[:3], atol=1e-12)
        np.testing.assert_array_equal(table.columns[5:], label_counts(pane))


def test_the_order_of_rows_is_nothing():
    _, batch = drawn()
    one, other = (
        row_table(b, "score", "mean") for b in (batch, batch.take(np.arange(batch.n)[::-1]))
    )
    np.testing.assert_allclose(one.columns, other.columns, atol=1e-12)


def test_what_a_map_speaks_of():
    _, batch = drawn()
    softened = batch.probabilities**0.5
    softened /= softened.sum(axis=1, keepdims=True)
    score, class_index = scores_of(batch, "score", TEMPERATURE)
    np.testing.assert_allclose(score, softened.max(axis=1))
    np.testing.assert_array_equal(class_index, batch.probabilities.argmax(axis=1))
    np.testing.assert_allclose(scores_of(batch, "class:1", TEMPERATURE)[0], softened[:, 1])
    top = PLATT | {"scope": "top_label"}
    p = batch.probabilities.max(axis=1)
    np.testing.assert_allclose(scores_of(batch, "score", top)[0], expit(0.3 + 0.5 * logit(p)))
    np.testing.assert_allclose(scores_of(batch, "class:1", top)[0], batch.probabilities[:, 1])
    one = PLATT | {"scope": "class", "class": 1}
    np.testing.assert_allclose(
        scores_of(batch, "class:1", one)[0], expit(0.3 + 0.5 * logit(batch.probabilities[:, 1]))
    )
    np.testing.assert_allclose(scores_of(batch, "class:2", one)[0], batch.probabilities[:, 2])
    assert [side_of(PLATT, class_index) for class_index in (1, 0, None)] == [1, -1, 0]
    binary = Batch.from_columns({"confidences": [0.2, 0.9]}, task="binary").batch
    np.testing.assert_allclose(
        scores_of(binary, "class:0", PLATT)[0], 1 - scores_of(binary, "score", PLATT)[0]
    )
    for scope in ("score", "class:0"):
        raw = scores_of(binary, scope)[0]
        np.testing.assert_allclose(
            scalar(PLATT, scope, "binary", raw), scores_of(binary, scope, PLATT)[0]
        )
    assert scalar(TEMPERATURE, "score", "multiclass", p) is None


def test_a_table_at_mapped_scores_is_near_that_of_mapped_rows():
    rng = np.random.default_rng(12)
    p = rng.beta(0.7, 2.2, 2000)
    columns = {"confidences": p, "labels": (rng.random(2000) < p).astype(int)}
    batch = Batch.from_columns(columns, task="binary").batch
    fine = row_table(batch, "score", "mean", bins=600)
    moved = fine.moved(scalar(PLATT, "score", "binary", fine.mean_confidence), fine.n_bins)
    exact = row_table(batch, "score", "mean", PLATT, bins=600)
    assert moved.n_units == exact.n_units and moved.correct.sum() == exact.correct.sum()
    assert moved.confidence.sum() == pytest.approx(exact.confidence.sum(), rel=1e-3)


def platt(score):
    return expit(0.3 + 0.5 * logit(np.clip(score, 1e-12, 1 - 1e-12)))
