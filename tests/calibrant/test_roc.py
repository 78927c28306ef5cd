"""The area under the ROC curve: against all pairs, from cells within its bound, from histograms, laws of the curve."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant import Batch, Histogram, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.estimators.roc_curve import area, rates
from calibrant.metrics import compute_metrics
from calibrant.results.roc import roc_curve

Rows = tuple[np.ndarray, np.ndarray]


def drawn(seed: int, n: int = 400, n_classes: int = 2) -> Rows:
    """Rows with ties, and up to three ratings each as counts."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.8), n)
    p[::4] = np.round(p[::4], 1)
    p /= p.sum(axis=1, keepdims=True)
    ratings = np.array([rng.multinomial(rng.integers(1, 4), row) for row in p])
    return p, ratings


def view_of(rows: Rows, raw: bool = False, **pane_query: object) -> View:
    p, ratings = rows
    task = "binary" if p.shape[1] == 2 else "multiclass"
    columns = {"confidences": p[:, 1]} if task == "binary" else {"probabilities": p}
    batch = Batch.from_columns(columns | {"label_counts": ratings}, task=task).batch
    pane = Pane(PaneSpec(task, p.shape[1]))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(**pane_query), batch if raw else None)  # type: ignore[arg-type]


def naive(score: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> float:
    """Every pair of a hit and a miss."""
    total = 0.0
    for i, s in enumerate(score):
        for j, t in enumerate(score):
            total += right[i] * wrong[j] * ((s > t) + 0.5 * (s == t))
    return total / right.sum() / wrong.sum()


def masses(p: np.ndarray, ratings: np.ndarray, scope: str, raters: str) -> tuple[np.ndarray, ...]:
    n = ratings.sum(axis=1)
    shares = {
        "pooled": ratings,
        "mean": ratings / n[:, None],
        "majority": np.eye(p.shape[1])[ratings.argmax(axis=1)],
    }[raters]
    class_index = p.argmax(axis=1) if scope == "top_label" else np.full(len(p), int(scope[-1]))
    at = np.arange(len(p))
    return p[at, class_index], shares[at, class_index], shares.sum(axis=1) - shares[at, class_index]


@pytest.mark.parametrize("scope", ["top_label", "class:0", "class:2"])
@pytest.mark.parametrize("raters", ["pooled", "mean", "majority"])
def test_equals_the_naive_version(scope: str, raters: str) -> None:
    rows = drawn(3, 150, 3)
    expected = naive(*masses(*rows, scope, raters))
    view = view_of(rows, True, scope=scope, raters=raters)
    found = compute_metrics(view, ["auc"])["auc"]
    assert found["value"] == pytest.approx(expected, abs=1e-12)
    assert roc_curve(view).auc == pytest.approx(expected, abs=1e-12)
    kept = view_of(rows, scope=scope, raters=raters)
    from_cells = compute_metrics(kept, ["auc"])["auc"]
    assert abs(from_cells["value"] - expected) <= from_cells["error_bound"] + 1e-12
    if scope == "top_label":
        by_class = [naive(*masses(*rows, f"class:{k}", raters)) for k in range(3)]
        assert found["by_class"] == pytest.approx(by_class)
        assert found["mean_over_classes"] == pytest.approx(np.mean(by_class))


def test_the_bound_holds_where_scores_crowd_in_cells() -> None:
    p, ratings = drawn(5, 300)
    crowded = 0.5 + (p - 0.5) * 2e-3
    view = view_of((crowded, ratings))
    found = roc_curve(view).to_dict()
    expected = naive(*masses(crowded, ratings, "class:1", "pooled"))
    assert found["error_bound"] > 0.01
    assert 1e-6 < abs(found["auc"] - expected) <= found["error_bound"]


def test_scores_that_are_equal_as_probabilities_are_ties() -> None:
    """In float32 the probabilities are 1 from logits of 17 on; as logits they are ranked up to 36, and beyond if divided."""
    logits = np.array([-1.0, 15.0, 18.0, 24.0, 30.0, 40.0, 60.0, 90.0])
    labels = np.array([0, 1, 0, 0, 1, 0, 1, 1])
    narrow = 1.0 / (1.0 + np.exp(-logits.astype(np.float32)))
    assert narrow.dtype == np.float32 and (narrow[2:] == 1.0).all() and narrow[1] < 1.0
    right, wrong = labels.astype(float), 1.0 - labels
    ranked, tied = naive(logits, right, wrong), naive(narrow, right, wrong)
    assert (ranked, tied) == (12 / 16, 8.5 / 16)
    assert cal.auc(narrow, labels).value == tied
    for given in (logits, logits.astype(np.float32), logits[:, None]):
        assert cal.auc(logits=given, labels=labels).value == naive(
            np.minimum(logits, 37.0), right, wrong
        )
        assert cal.auc(logits=given / 4.0, labels=labels).value == ranked


def test_curve_and_area_agree() -> None:
    found = roc_curve(view_of(drawn(7)), points=10_000).to_dict()
    true, false = found["true_positive_rate"], found["false_positive_rate"]
    assert (true[0], false[0], found["threshold"][0]) == (0.0, 0.0, None)
    assert (true[-1], false[-1]) == (1.0, 1.0)
    assert (np.diff(true) >= 0).all() and (np.diff(false) >= 0).all()
    assert (np.diff(found["threshold"][1:]) < 0).all()
    assert np.trapezoid(true, false) == pytest.approx(found["auc"])
    few = roc_curve(view_of(drawn(7)), points=20).to_dict()
    assert len(few["threshold"]) <= 20
    assert few["auc"] == found["auc"]
    assert set(zip(few["true_positive_rate"], few["false_positive_rate"], strict=True)) <= set(
        zip(true, false, strict=True)
    )


def test_thresholds_are_those_of_predictions() -> None:
    p = np.array([0.1, 0.4, 0.4, 0.8])
    rows = (np.stack([1 - p, p], axis=1), np.array([[1, 0], [1, 0], [0, 1], [0, 1]]))
    found = roc_curve(view_of(rows, True)).to_dict()
    assert found["threshold"] == [None, 0.8, 0.4, 0.1]
    assert found["true_positive_rate"] == [0.0, 0.5, 1.0, 1.0]
    assert found["false_positive_rate"] == [0.0, 0.0, 0.5, 1.0]
    assert found["auc"] == 0.875


def test_from_plain_histograms() -> None:
    p, ratings = drawn(9, 500)
    score, right, wrong = masses(p, ratings, "class:1", "pooled")
    place = np.minimum((score * 3600).astype(int), 3599)
    columns = {
        "count": np.bincount(place, right + wrong, 3600),
        "sum_confidence": np.bincount(place, (right + wrong) * score, 3600),
        "sum_correct": np.bincount(place, right, 3600),
    }
    spec = PaneSpec("binary", 2)
    pane = Pane(spec)
    fields = {"kind": "positive", "bins": 3600, "edges": "left"} | {
        k: v.tolist() for k, v in columns.items()
    }
    pane.fill_histogram(Histogram.from_fields(fields, spec))
    view = View(pane, PaneQuery(edges="left"))
    found = roc_curve(view).to_dict()
    expected = naive(score, right, wrong)
    assert found["error_bound"] < 0.01
    assert abs(found["auc"] - expected) <= found["error_bound"]
    assert compute_metrics(view, ["auc"])["auc"]["value"] == found["auc"]


@pytest.mark.parametrize(("label", "reason"), [(1, "one_outcome"), (None, "no_data")])
def test_without_pairs_there_is_a_reason(label: int | None, reason: str) -> None:
    pane = Pane(PaneSpec("binary", 2))
    if label is not None:
        pane.fill_batch(
            Batch.from_columns({"confidences": [0.2, 0.9], "labels": [label] * 2}).batch
        )
    view = View(pane, PaneQuery())
    found = roc_curve(view).to_dict()
    assert (found["auc"], found["threshold"], found["reason"]) == (None, [], reason)
    metric = compute_metrics(view, ["auc"])["auc"]
    assert (metric["value"], metric["reason"]) == (None, reason)


def test_reversed_scores_mirror_the_area() -> None:
    rng = np.random.default_rng(1)
    right, wrong = rng.random(30), rng.random(30)
    assert area(right, wrong) == pytest.approx(1.0 - area(right[::-1], wrong[::-1]))
    assert area(right, wrong) == pytest.approx(1.0 - area(wrong, right))
    true, false = rates(right, wrong)
    assert np.trapezoid(true, false) == pytest.approx(float(area(right, wrong)))


def test_interval_covers_and_null_is_of_a_calibrated_model() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for seed in range(40):
        p = rng.random(300)
        y = rng.random(300) < p
        rows = (np.stack([1 - p, p], axis=1), np.stack([~y, y], axis=1).astype(int))
        found = compute_metrics(view_of(rows), ["auc"], seed)["auc"]
        # Of uniform scores and calibrated labels the area is 5/6.
        held += found["interval"][0] <= 5 / 6 <= found["interval"][1]
        assert abs(found["null_mean"] - 5 / 6) < 0.05
        assert found["null_q95"] > found["null_mean"]
    assert held >= 34
