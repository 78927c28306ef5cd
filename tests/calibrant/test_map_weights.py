"""Maps do not depend on the scale of the weights, at either end of what is accepted."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import MAPS, apply, fit
from calibrant.calibrators.candidate_comparison import recommend
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.input.input_columns import MAX_WEIGHT, MIN_WEIGHT


@pytest.mark.parametrize("method", MAPS)
@pytest.mark.parametrize("weight", [MIN_WEIGHT, MAX_WEIGHT])
def test_the_scale_of_weights_changes_no_map(method: str, weight: float) -> None:
    rng = np.random.default_rng(8)
    p = rng.random(200)
    columns = {
        "confidences": p,
        "labels": (rng.random(200) < p).astype(int),
        "ids": [f"i{i}" for i in range(200)],
    }
    found = []
    for weights in (np.ones(200), np.full(200, weight)):
        pane = Pane.for_window(PaneSpec("binary", 2))
        pane.fill_batch(Batch.from_columns(columns | {"weights": weights}).batch)
        found.append(fit(method, View(pane, PaneQuery())))
        assert recommend(View(pane, PaneQuery()))["recommendation"]["action"] == "none"
    plain, scaled = (apply(each, Batch.from_columns({"confidences": p}).batch) for each in found)
    assert np.abs(plain - scaled).max() < 1e-7
    assert scaled.std() > 0.1
