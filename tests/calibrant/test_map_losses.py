"""Losses after a map are those of the mapped rows, also where weighted rows lie on edges of the map's bins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import xlog1py, xlogy

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import apply, fit
from calibrant.core.query import PaneQuery
from calibrant.core.view import View


@pytest.mark.parametrize("method", ["platt", "beta", "isotonic", "histogram", "scaling_binning"])
@pytest.mark.parametrize("raters", ["pooled", "mean"])
def test_losses_after_a_map_are_those_of_its_rows(method: str, raters: str) -> None:
    rng = np.random.default_rng(5)
    score = rng.integers(1, 30, 200) / 30
    ratings = rng.binomial(3, score)
    weight = rng.uniform(0.5, 2.0, 200).round(3)
    columns = {
        "confidences": score,
        "label_counts": np.stack([3 - ratings, ratings], axis=1),
        "weights": weight,
    }
    batch = Batch.from_columns(columns).batch
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(batch)
    answer = fit(method, View(pane, PaneQuery(raters=raters), batch))
    mapped, share = apply(answer, batch), ratings / 3
    brier = np.average(share * (1 - mapped) ** 2 + (1 - share) * mapped**2, weights=weight)
    nll = -np.average(xlogy(share, mapped) + xlog1py(1 - share, -mapped), weights=weight)
    assert answer["after"]["brier"] == pytest.approx(brier, abs=1e-12)
    assert answer["after"]["nll"] == pytest.approx(nll, abs=1e-12)
