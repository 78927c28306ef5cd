"""References and intervals of every metric are inside its declared range, however few predictions there are."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant.metrics import METRICS

CASES = [(n, seed) for n in (1, 3, 10, 50) for seed in range(3)]


def _rows(n: int, seed: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities and ratings, three of each prediction, of a model that is nearly always right."""
    draws = np.random.default_rng([n, seed])
    probabilities = draws.dirichlet(np.full(n_classes, 0.2), n)
    labels = (probabilities.cumsum(axis=1)[:, None, :-1] < draws.random((n, 3, 1))).sum(axis=2)
    return probabilities, labels


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("n", "seed"), CASES)
def test_numbers_of_every_metric_are_possible(n: int, seed: int, n_classes: int) -> None:
    probabilities, labels = _rows(n, seed, n_classes)
    for single in (False, True):
        given = labels[:, 0] if single else labels
        report = cal.evaluate(probabilities, given, metrics=list(METRICS))
        for slug, found in report.items():
            low, high = METRICS[slug].range
            truth = METRICS[slug].lowest_truth
            least = low if truth is None else truth
            _inside(slug, (found.null_mean, found.null_q95), low, high)
            _inside(slug, found.interval or (), least, high)


def _inside(
    slug: str, values: tuple[float | None, ...], low: float | None, high: float | None
) -> None:
    for value in values:
        if value is None:
            continue
        assert low is None or value >= low, slug
        assert high is None or value <= high, slug


@pytest.mark.parametrize(
    ("scores", "expected"), [([0.6], 1.0), ([0.8, 0.8, 0.8], 1.0), ([0.6] * 10, 0.8)]
)
def test_the_reference_of_accuracy_is_that_of_a_count(scores: list[float], expected: float) -> None:
    """Of ten predictions of .6, at most eight are correct in .954 of samples, at most seven in .833."""
    found = cal.accuracy(scores, [1] * len(scores), ids=list(range(len(scores))))
    assert found.null_q95 == pytest.approx(expected, abs=1e-9)
    assert found.above_null is (found.value > expected + 1e-9)


@pytest.mark.parametrize(("slug", "seed"), [("nixon_ace", 11), ("tace", 12), ("mce", 13)])
def test_calibrated_models_of_two_classes_are_rarely_above_the_reference(
    slug: str, seed: int
) -> None:
    """7 % are promised. Before, it was 10 to 12 %; more than 17 of 200 have a chance of 2 % with 5 %."""
    above = 0
    for run in range(200):
        draws = np.random.default_rng([seed, run])
        score = draws.beta(1.5, 2.5, 150)
        label = (draws.random(150) < score).astype(int)
        above += getattr(cal, slug)(score, label).above_null is True
    assert above <= 17
