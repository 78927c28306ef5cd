"""Series of metrics: one result per part."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant_server.workers.queries.kind import Inputs
from calibrant_server.workers.queries.kinds.metrics_series import (
    MetricsSeriesQuery,
    compute,
)
from calibrant_server.workers.store.windows import DatedPane, Window
from tests.workers.driving import MODEL

HOUR_S = 3600


def inputs_of(n_hours):
    """So many hourly panes, all alike."""
    rng = np.random.default_rng(1)
    columns = {
        "probabilities": rng.dirichlet(np.ones(3), 20),
        "labels": rng.integers(0, 3, 20).tolist(),
    }
    pane = Pane(MODEL.spec())
    pane.fill_batch(Batch.from_columns(columns, task="multiclass").batch)
    panes = [DatedPane(hour * HOUR_S, HOUR_S, pane) for hour in range(n_hours)]
    return Inputs(MODEL, Window(0, n_hours * HOUR_S), panes=panes)


def series(n_hours, every_s=HOUR_S, metrics="accuracy,brier"):
    return compute(MetricsSeriesQuery(metrics=metrics, every_s=every_s), inputs_of(n_hours))


@pytest.mark.parametrize(("every_s", "n_parts"), [(HOUR_S, 48), (24 * HOUR_S, 2)])
def test_each_part_has_its_window_and_metrics(every_s, n_parts):
    found = series(48, every_s)["series"]
    assert len(found) == n_parts
    assert {each["n_predictions"] for each in found} == {20 * 48 // n_parts}
    assert all(each["metrics"].keys() == {"accuracy", "brier"} for each in found)
