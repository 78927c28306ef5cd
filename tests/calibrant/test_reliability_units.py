"""Intervals of the bins of a reliability table when rows share units: they cover, and are no wider than the dependence requires."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

UNITS, ROWS, BINS = 60, 40, 5
UNIT_NAMES = np.repeat([f"u{i}" for i in range(UNITS)], ROWS)


def draw(rng: np.random.Generator, dependence: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a calibrated model; each row takes, with this probability, the threshold of its unit instead of its own."""
    p = rng.uniform(0.0, 1.0, UNITS * ROWS)
    own, shared = rng.random(len(p)), np.repeat(rng.random(UNITS), ROWS)
    labels = np.where(rng.random(len(p)) < dependence, shared, own) < p
    return p, labels.astype(int)


def tables(dependence: float, n: int) -> list[list[dict[str, float]]]:
    found = []
    for seed in range(n):
        probabilities, labels = draw(np.random.default_rng(seed), dependence)
        table = cal.reliability(
            probabilities, labels, units=UNIT_NAMES, scope="positive", bins=BINS
        )
        found.append([row for row in table.to_dict()["table"] if row["count"]])
    return found


def coverage(found: list[list[dict[str, float]]]) -> float:
    """Return how often the interval of a bin contains its mean score, the true rate of a calibrated model."""
    rows = [row for table in found for row in table]
    return float(
        np.mean(
            [row["interval"][0] <= row["mean_confidence"] <= row["interval"][1] for row in rows]
        )
    )


@pytest.mark.parametrize("dependence", [0.0, 0.3, 0.7, 1.0])
def test_intervals_of_bins_cover_with_units(dependence):
    assert coverage(tables(dependence, 50)) >= 0.92


def test_units_with_independent_rows_cost_little():
    rows = [row for table in tables(0.0, 10) for row in table]
    shares = [row["n_effective"] / row["n_predictions"] for row in rows]
    assert np.median(shares) > 0.6
    assert max(shares) <= 1.0


def test_rows_of_a_unit_with_one_label_count_as_few():
    rows = [row for table in tables(1.0, 10) for row in table]
    assert np.median([row["n_effective"] for row in rows]) < 2 * UNITS


def test_with_few_units_rows_of_a_unit_count_as_fully_dependent():
    probabilities, labels = draw(np.random.default_rng(1), 0.0)
    some = slice(0, 5 * ROWS)
    table = cal.reliability(probabilities[some], labels[some], units=UNIT_NAMES[some], bins=BINS)
    assert max(row["n_effective"] for row in table.to_dict()["table"]) <= 5.0
