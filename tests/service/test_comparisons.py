"""The other side of a comparison: which slice and which window of which model it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrant_server.service.http.problems import InvalidQuery
from calibrant_server.service.reads.read_query import EVER, Comparison
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import baseline_slice, sealed_slice
from calibrant_server.workers.store.windows import Window

HOUR, DAY = 3600, 86_400
HOURLY = ModelConfig("default", "m", "binary", 2)
DAILY = replace(HOURLY, model="daily", pane_s=DAY)
MORNING = Window(20 * DAY + 8 * HOUR, 20 * DAY + 12 * HOUR)


def side(against: Against, config: ModelConfig = HOURLY) -> Comparison:
    return Comparison(against, config)


def test_a_model_with_longer_panes_is_read_in_whole_panes() -> None:
    model = Against("model", "daily")
    assert side(model).window_for(MORNING, True, HOUR) == MORNING
    assert side(model, DAILY).window_for(MORNING, True, HOUR) == Window(20 * DAY, 21 * DAY)


def test_a_window_ends_where_the_other_begins() -> None:
    found = side(Against("window", "PT2H")).window_for(MORNING, True, HOUR)
    assert found == Window(MORNING.from_s - 2 * HOUR, MORNING.from_s)
    with pytest.raises(InvalidQuery, match="a window without start"):
        side(Against("window", "PT2H")).window_for(MORNING, False, HOUR)
    with pytest.raises(InvalidQuery):
        side(Against("window", "PT2H")).window_for(Window(0, DAY), True, HOUR)


@pytest.mark.parametrize("slice_", ["", "site:A", sealed_slice(""), sealed_slice("site:A")])
def test_a_baseline_is_one_for_all_slices_and_others_have_the_same(slice_: str) -> None:
    baseline = side(Against("baseline", "b"))
    assert baseline.slice_for(slice_) == baseline_slice("b")
    assert baseline.window_for(MORNING, True, HOUR) == EVER
    assert side(Against("model", "other")).slice_for(slice_) == slice_
    assert side(Against("window", "P1D")).slice_for(slice_) == slice_
    assert side(Against("reference")).slice_for(slice_) in (
        sealed_slice(""),
        sealed_slice("site:A"),
    )
