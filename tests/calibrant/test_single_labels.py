"""The pass over rows with one label each against the fill of a checked batch: blocks, results, and what is left to the reader."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.input.arrays import read_arrays
from calibrant.input.single_labels import single_labels
from calibrant.kernel import single_labels as passes
from calibrant.kernel.single_labels import FILLED, pane_of
from calibrant.library_arguments import filled, view_of_rows
from calibrant.library_of_panes import report_of
from calibrant.metrics import METRICS, accumulators_for, requested

SHAPES = [
    (1, 2),
    (7, 3),
    (1001, 2),
    (3000, 10),
    (500, 9),
    (400, 17),
    (300, 100),
    (200, 137),
    (150, 300),
    (40, 1000),
]
MEMORY_LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "every other row": lambda p: np.repeat(p, 2, axis=0)[::2],
    "every other column": lambda p: np.repeat(p, 2, axis=1)[:, ::2],
    "backwards": lambda p: np.ascontiguousarray(p[::-1, ::-1])[::-1, ::-1],
}


def rows(n, k, dtype=np.float64, seed=0):
    """Return a softmax, certain rows and rows on edges among it, and labels, some of which have probability 0."""
    rng = np.random.default_rng(seed)
    odds = np.exp(2.0 * rng.normal(size=(n, k)))
    p = odds / odds.sum(axis=1, keepdims=True)
    p[rng.random(n) < 0.05] = np.eye(k)[k - 1]
    p[rng.random(n) < 0.05] = np.full(k, 1.0 / k)
    return p.astype(dtype), rng.integers(0, k, n)


def assert_same_panes(found, expected):
    for name in expected.names:
        for block_name, block in found[name].blocks.items():
            other = expected[name].blocks[block_name]
            assert np.array_equal(block.counts, other.counts), (name, block_name)
            scale = np.abs(other.sums).max(axis=1, initial=0.0)
            error = np.abs(block.sums - other.sums).max(axis=1, initial=0.0)
            assert (error <= 1e-12 * scale).all(), (name, block_name)


@pytest.mark.parametrize("layout", MEMORY_LAYOUTS.values(), ids=MEMORY_LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_equal_those_of_a_checked_batch(layout, dtype, monkeypatch):
    monkeypatch.setattr(passes, "ROWS_OF_TABLE", 900)
    for n, k in SHAPES:
        p, y = rows(n, k, dtype)
        found = pane_of(single_labels({"probabilities": layout(p), "labels": y}), FILLED)
        assert_same_panes(found, filled(read_arrays(p, y), FILLED))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_scores_of_class_1_equal_those_of_a_checked_batch(dtype):
    p, y = rows(2000, 2, dtype)
    for scores in (p[:, 1], np.ascontiguousarray(p[:, 1])):
        for labels in (y, y.astype(np.uint8), np.repeat(y, 2)[::2]):
            found = pane_of(single_labels({"probabilities": scores, "labels": labels}), FILLED)
            assert_same_panes(found, filled(read_arrays(scores, labels), FILLED))


@pytest.mark.parametrize("k", [1, 3, 30])
def test_results_of_every_metric_equal_those_of_a_checked_batch(k):
    """Every metric that reads no more than the pass fills, with its interval and its reference."""
    p, y = rows(3000, max(k, 2), seed=k)
    p = p[:, 1] if k == 1 else p
    batch = read_arrays(p, y)
    scope = "positive" if k == 1 else "top_label"
    slugs = [slug for slug in METRICS if accumulators_for(["ece", slug], scope) <= FILLED]
    assert {"ece", "mce", "brier", "nll", "accuracy"} <= set(slugs)
    keys = [each.key for each in requested(slugs)]
    expected = report_of(view_of_rows(batch, PaneQuery(), keys), keys)
    found = cal.evaluate(p, y, slugs)
    for slug in slugs:
        one, other = found[slug], expected[slug]
        assert one.reason == other.reason, slug
        for name in ("value", "interval", "null_mean", "null_q95"):
            mine, theirs = getattr(one, name), getattr(other, name)
            assert (mine is None) == (theirs is None), (slug, name)
            if mine is not None:
                np.testing.assert_allclose(
                    mine, theirs, rtol=1e-9, atol=1e-12, err_msg=f"{slug} {name}"
                )
    assert str(found) == str(expected)


@pytest.mark.parametrize("k", [1, 2, 3, 30])
@pytest.mark.parametrize("slug", ["ece", "brier", "nll", "accuracy"])
def test_scores_of_rows_with_one_label_are_of_the_pass(k, slug, monkeypatch):
    p, y = rows(300, max(k, 2), seed=k)
    checked = []
    monkeypatch.setattr("calibrant.library_arguments.filled", lambda *given: checked.append(given))
    assert getattr(cal, slug)(p[:, 1] if k == 1 else p, y).n == 300
    assert not checked


NOT_SIMPLE = {
    "a value below 0 by rounding": [[-1e-7, 1.0]],
    "a value above 1 by rounding": [[0.0, 1.0 + 1e-7]],
    "a sum of two decimals": [[0.33, 0.33, 0.33]],
}


@pytest.mark.parametrize("row", NOT_SIMPLE.values(), ids=NOT_SIMPLE)
def test_rows_that_are_adjusted_are_left_to_the_reader(row):
    scores = np.array(row * 3)
    found = cal.evaluate(scores, np.array([0, 1, 1]), "ece")
    expected = cal.evaluate(scores.tolist(), [0, 1, 1], "ece")
    assert str(found) == str(expected) and found.to_dict() == expected.to_dict()


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        ([[0.5, 0.5], [np.nan, 0.5]], [0, 1]),
        ([[0.5, 0.5], [np.inf, 0.5]], [0, 1]),
        ([[0.5, 0.5], [0.6, 0.5]], [0, 1]),
        ([[0.5, 0.5], [1.5, -0.5]], [0, 1]),
        ([[0.5, 0.5], [0.6, 0.4]], [0, 2]),
        ([[0.5, 0.5], [0.6, 0.4]], [0, -1]),
    ],
)
def test_invalid_rows_have_the_error_of_the_reader(scores, labels):
    with pytest.raises(CalibrationInputError) as expected:
        read_arrays(scores, labels)
    with pytest.raises(CalibrationInputError) as found:
        cal.ece(np.array(scores), np.array(labels))
    assert str(found.value) == str(expected.value)


def test_rows_are_read_where_they_are():
    """Tables take 1.5 MB, and labels that are int64 already nothing."""
    p, y = rows(400_000, 10)
    cal.ece(p[:1000], y[:1000])
    tracemalloc.start()
    cal.ece(p, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * p.nbytes


@pytest.mark.parametrize("threads", ["2", "3", "7"])
def test_sums_do_not_depend_on_the_number_of_threads(threads, monkeypatch):
    monkeypatch.setattr(passes, "ROWS_OF_TABLE", 500)
    p, y = rows(3333, 4)
    given = single_labels({"probabilities": p, "labels": y})
    monkeypatch.setenv("CALIBRANT_THREADS", "1")
    expected = pane_of(given, FILLED)
    monkeypatch.setenv("CALIBRANT_THREADS", threads)
    found = pane_of(given, FILLED)
    for name in expected.names:
        for block_name, block in expected[name].blocks.items():
            assert np.array_equal(found[name].blocks[block_name].sums, block.sums)
    p[3000] = 2.0
    assert pane_of(given, FILLED) is None


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
def test_another_number_of_threads_is_rejected(given, monkeypatch):
    monkeypatch.setattr(passes, "ROWS_OF_TABLE", 500)
    monkeypatch.setenv("CALIBRANT_THREADS", given)
    with pytest.raises(ValueError, match="expected a positive integer"):
        cal.ece(*rows(3333, 4))
