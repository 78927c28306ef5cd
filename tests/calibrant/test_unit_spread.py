"""What is known of units' spread when fine bins are put together: sums of squares, and the spread of gaps by them."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.grid import equal_width_bin
from calibrant.drift.calibration import BinnedError
from calibrant.drift.unit_tables import UnitTable, unit_table

BINS = 15


def table_of(
    score: np.ndarray, labels: np.ndarray, units: np.ndarray, bins: int = BINS
) -> UnitTable:
    columns = {"confidences": score, "labels": labels.tolist(), "units": [f"u{i}" for i in units]}
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(Batch.from_columns(columns).batch)
    return unit_table(pane, "pooled", bins)


def naive_squares(score: np.ndarray, units: np.ndarray) -> np.ndarray:
    squares = np.zeros(BINS)
    for unit in set(units.tolist()):
        mine = score[units == unit]
        squares += (np.bincount(equal_width_bin(mine, BINS), minlength=BINS) / len(mine)) ** 2
    return squares


@pytest.mark.parametrize("per_unit", [1, 2, 5, 120])
def test_sums_of_squares_are_never_too_small(per_unit: int) -> None:
    rng = np.random.default_rng(per_unit)
    score, units = rng.random(40 * per_unit), np.repeat(np.arange(40), per_unit)
    labels = (rng.random(len(score)) < score).astype(int)
    table, expected = table_of(score, labels, units), naive_squares(score, units)
    assert (table.squared >= expected * (1.0 - 1e-12)).all()
    if per_unit == 1:
        assert table.squared == pytest.approx(expected)
    if per_unit == 120:
        assert table.squared.sum() < 1.4 * expected.sum()
    fine = table_of(score, labels, units, 60)
    again = fine.moved((np.arange(60) + 0.5) / 60, BINS)
    assert again.squared == pytest.approx(table.squared)


def test_a_calibrated_model_of_whole_cases_lies_within_its_own_reference() -> None:
    # All pixels of a case share one fate, so that gaps vary as widely as 60 cases let them.
    rng = np.random.default_rng(4)
    errors, reference = [], []
    for _ in range(40):
        score = rng.random((60, 60))
        labels = (rng.random((60, 1)) < score).astype(int)
        table = table_of(score.ravel(), labels.ravel(), np.repeat(np.arange(60), 60))
        found = BinnedError.of(table.columns[:4])
        errors.append(float(found.error))
        reference.append(float(found.null_quantile(0.05)))
    assert np.mean(np.array(errors) > np.array(reference)) < 0.15
