"""kdeECE of predictions that share a score and differ in votes and weight: each leaves out its own."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from tests.calibrant import notions_reference as naive
from tests.calibrant.reference import POLICIES, rows_of


@pytest.mark.parametrize("raters", POLICIES)
@pytest.mark.parametrize("leave", ["label", "instance"])
def test_predictions_of_one_score_leave_out_their_own(raters: str, leave: str) -> None:
    rng = np.random.default_rng(3)
    z = rng.multinomial(10, rng.dirichlet(np.ones(3), 25)) / 10
    counts = rng.multinomial(rng.integers(1, 5, 25), z)
    weights = rng.choice([0.5, 1.0, 3.0], 25)
    batch = Batch.from_columns(
        {"probabilities": z, "label_counts": counts, "weights": weights}
    ).batch
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch)
    view = View(pane, PaneQuery(raters=raters, options={"leave": leave}), batch)
    found = compute_metrics(view, ["kde_ece"])["kde_ece"]["value"]
    assert found == pytest.approx(naive.kde(rows_of(batch), raters, leave, 0.02), abs=1e-10)
