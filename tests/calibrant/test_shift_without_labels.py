"""A shift of the scores is found although no label is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from calibrant import Batch
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.drift.unit_tables import unit_table
from calibrant.drift.unlabelled_scores import window_shift


def occupancy(seed, n, mean):
    score = expit(np.random.default_rng(seed).normal(mean, 2.0, n))
    pane = Pane(PaneSpec("binary", 2, 3600))
    pane.fill_batch(Batch.from_columns({"confidences": score.tolist()}, task="binary").batch)
    return unit_table(pane, "mean").occupancy


@pytest.mark.parametrize(("mean", "is_shifted"), [(1.2, True), (0.0, False)])
def test_a_shift_is_found_without_labels(mean, is_shifted):
    found = window_shift(occupancy(1, 1400, mean), occupancy(2, 1400, 0.0))
    assert found is not None and found.is_shifted is is_shifted


def test_the_statistic_is_the_chi_squared_one_of_equal_shares():
    now, before = np.array([30.0, 40.0, 0.0, 30.0]), np.array([30.0, 50.0, 0.0, 120.0])
    found = window_shift(now, before)
    assert found is not None and found.is_shifted and found.psi > found.limit
    assert not window_shift(before, before).is_shifted


def test_few_predictions_are_no_shift():
    assert window_shift(occupancy(1, 40, 3.0), occupancy(2, 1400, 0.0)) is None
