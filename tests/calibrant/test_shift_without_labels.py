"""A shift of the scores is a watch although no label is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from calibrant import Batch
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.drift.comparison import compare


def window(seed, n, mean):
    score = expit(np.random.default_rng(seed).normal(mean, 2.0, n))
    columns = {"confidences": score.tolist()}
    pane = Pane(PaneSpec("binary", 2, 3600))
    pane.fill_batch(Batch.from_columns(columns, task="binary").batch)
    return pane


@pytest.mark.parametrize(("mean", "status"), [(1.2, "watch"), (0.0, "insufficient_data")])
def test_a_shift_is_a_watch_without_labels(mean, status):
    found = compare(window(1, 1400, mean), window(2, 1400, 0.0))
    assert found["status"] == status
    assert ("calibration is not known" in found["reason"]) is (status == "watch")


def test_few_predictions_are_no_shift():
    assert compare(window(1, 40, 3.0), window(2, 1400, 0.0))["status"] == "insufficient_data"
