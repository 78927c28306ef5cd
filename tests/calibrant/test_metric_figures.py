"""Figures of metrics over time and by slice: each number at its place, and a reason without data."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from calibrant.figures.base import BLUE, ORANGE
from calibrant.figures.estimates import draw_metrics
from calibrant.figures.images import image
from tests.service.figure_marks import Figure

START = datetime.fromisoformat("2026-10-30T00:00:00+00:00")
ECE = {"value": 0.05, "interval": [0.02, 0.08], "null_mean": 0.02, "null_q95": 0.04}
ACCURACY = {"value": 0.8, "interval": None, "null_mean": 0.9, "null_q95": 0.95}


def series(n: int = 5) -> dict:
    rows = [
        {
            "window": {"from": (START + timedelta(days=i)).isoformat(), "to": "unused"},
            "n_predictions": 100 + i,
            "n_labelled": 40 + i,
            "metrics": {"accuracy": ACCURACY, "ece": ECE | {"value": 0.05 + i / 100}},
        }
        for i in range(n)
    ]
    return {"model": "m", "every_s": 86_400, "series": rows}


def test_panels_over_time_have_the_numbers_of_the_parts() -> None:
    figure = draw_metrics(series())
    error, share, volume = figure.axes
    [line] = [each for each in error.lines if each.get_color() == BLUE]
    np.testing.assert_allclose(line.get_ydata(), [0.05, 0.06, 0.07, 0.08, 0.09])
    assert error.collections[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(0.04)
    by_colour = {each.get_color(): each.get_ydata() for each in share.lines}
    np.testing.assert_allclose(by_colour[BLUE], [0.8] * 5)
    np.testing.assert_allclose(by_colour[ORANGE], [0.9] * 5)
    heights = [[bar.get_height() for bar in bars] for bars in volume.containers]
    assert heights == [[100, 101, 102, 103, 104], [40, 41, 42, 43, 44]]
    texts = Figure.of(image(figure)).texts
    assert {"ECE", "accuracy", "predictions", "2026-10-30", "Over time of m"} <= set(texts)


def test_a_part_with_few_labels_is_hollow_and_does_not_set_the_axis() -> None:
    found = series(6)
    for row, n in zip(found["series"], (40, 40, 40, 40, 2, 0), strict=True):
        row["n_labelled"] = n
    found["series"][4]["metrics"]["ece"] = ECE | {"value": 0.9}
    error, *_ = draw_metrics(found).axes
    [line] = [each for each in error.lines if each.get_color() == BLUE]
    assert np.isnan(line.get_ydata()[4:]).all() and np.isfinite(line.get_ydata()[:4]).all()
    assert error.get_ylim()[1] < 0.2
    [hollow] = [each for each in error.collections if each.get_label() == "few labels"]
    np.testing.assert_allclose(hollow.get_offsets()[0, 1], error.get_ylim()[1])


def test_events_are_named_within_the_axis_only() -> None:
    found = series(9)
    events = [
        {"kind": "scanner", "name": name, "at": (START + timedelta(days=day)).isoformat()}
        for name, day in (("before", -1), ("early", 1), ("late", 7), ("after", 12))
    ]
    error, *_ = draw_metrics(found | {"events": events}).axes
    sides = {each.get_text(): each.get_horizontalalignment() for each in error.texts}
    assert sides == {"scanner: early": "left", "scanner: late": "right"}


def test_without_parts_or_without_values_it_says_so() -> None:
    empty = series(0) | {"reason": "no_data"}
    assert "Nothing to draw: no data" in Figure.of(image(draw_metrics(empty))).texts
    without = series(2)
    for row in without["series"]:
        row["metrics"] = {"ece": {"value": None, "reason": "no_data"}}
    assert len(draw_metrics(without).axes) == 1  # the volume


def test_slices_have_their_error_interval_and_reference() -> None:
    slices = {
        value: {"metrics": {"ece": ECE | {"value": at}}, "n_labelled": 1200}
        for value, at in (("A", 0.05), ("B" * 40, 0.1))
    }
    slices["C"] = {"metrics": {"ece": {"value": None}}, "n_labelled": 0}
    [axes] = draw_metrics({"model": "m", "by": "site", "slices": slices}).axes
    dots = [each.get_xdata()[0] for each in axes.lines if each.get_marker() == "o"]
    assert sorted(dots) == [0.05, 0.1]
    names = [each.get_text() for each in axes.get_yticklabels()]
    assert names == [f"{'B' * 21}…, n = 1,200", "A, n = 1,200"]
    none = draw_metrics({"model": "m", "by": "site", "slices": {}})
    assert "Nothing to draw: no data" in Figure.of(image(none)).texts


def test_a_window_has_its_metrics() -> None:
    found = draw_metrics({"model": "m", "n": 5, "metrics": {"ece": ECE, "accuracy": ACCURACY}})
    assert [len(axes.get_yticklabels()) for axes in found.axes] == [1, 1]
