"""The accuracy to expect of unlabelled predictions: a naive second version, and how often its interval contains the accuracy."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant.drift.unit_tables import UnitTable
from calibrant.results.expected_accuracy import expected_accuracy


def scores_and_labels(
    rng: np.random.Generator, n: int, slope: float, shift: float, of_class_1: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores, and labels whose log-odds are `slope` times those of the scores."""
    logits = rng.normal(shift, 2.0, n)
    logits = logits if of_class_1 else np.abs(logits)
    return 1 / (1 + np.exp(-logits)), rng.random(n) < 1 / (1 + np.exp(-slope * logits))


def naive(known: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> float:
    """Return the mean accuracy of the decision at one half, prediction by prediction: each centre is shifted by the gap of its bin."""

    def centre(score: float) -> float:
        return (np.ceil(score * 60) - 0.5) / 60

    total = 0.0
    for score in asked:
        near = np.ceil(known * 20) == np.ceil(score * 20)
        gap = np.mean([y - centre(s) for s, y in zip(known[near], labels[near], strict=True)])
        mapped = min(max(centre(score) + gap, 0.0), 1.0)
        total += mapped if score > 0.5 else 1.0 - mapped
    return total / len(asked)


def test_a_pane_gives_the_naive_value() -> None:
    rng = np.random.default_rng(4)
    known, labels = scores_and_labels(rng, 900, 0.6, 0.0, of_class_1=True)
    asked, _ = scores_and_labels(rng, 250, 0.6, 0.5, of_class_1=True)
    pane = cal.Pane.fill(
        np.concatenate([known, asked]), [*labels.astype(int).tolist(), *[None] * len(asked)]
    )
    found = pane.expected_accuracy()
    assert found.value == pytest.approx(naive(known, labels, asked), abs=1e-9)
    assert found.extra["n_labelled"] == 900 and found.extra["n_unlabelled"] == 250
    assert found.interval is not None and found.interval[0] < found.value < found.interval[1]


def test_there_is_no_value_of_few_or_of_nothing() -> None:
    rng = np.random.default_rng(5)
    scores, labels = scores_and_labels(rng, 300, 1.0, 0.0, of_class_1=True)
    for n in (150, 300):  # too few labels, and no prediction without one
        pane = cal.Pane.fill(scores, [*labels[:n].astype(int).tolist(), *[None] * (300 - n)])
        assert pane.expected_accuracy().value is None
        assert pane.expected_accuracy().reason == "too_few_units"


@pytest.mark.parametrize("of_class_1", [True, False])
@pytest.mark.parametrize("slope", [1.0, 0.5])
@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("n", [200, 1000, 5000])
def test_the_interval_contains_the_accuracy(
    n: int, slope: float, shift: float, of_class_1: bool
) -> None:
    """Of calibrated and of overconfident models, also where the scores shift: 95 % nominal."""
    rng, covered, runs = np.random.default_rng(n), 0, 300
    for _ in range(runs):
        known, labels = scores_and_labels(rng, n, slope, 0.0, of_class_1)
        asked, outcomes = scores_and_labels(rng, 500, slope, shift, of_class_1)
        table = UnitTable.at_scores(known, np.ones(n), labels.astype(float), 60)
        unlabelled = np.bincount(np.ceil(asked * 60).astype(int) - 1, minlength=60)
        found = expected_accuracy(table, unlabelled.astype(float), of_class_1)
        assert found is not None
        is_right = (asked > 0.5) == outcomes if of_class_1 else outcomes
        covered += found.interval[0] <= is_right.mean() <= found.interval[1]
    assert covered / runs >= 0.91
