"""Scores on a decimal grid in float32: on the edge that they are the nearest float32 of, at every entrance."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.grid import equal_width_bin, grid_of

TENTHS = np.arange(11) / 10


@pytest.mark.parametrize("cells", [10, 60, 1200, 3600])
def test_the_nearest_float32_of_an_edge_has_its_position(cells):
    edges = np.arange(cells + 1) / cells
    narrow = edges.astype(np.float32)
    grid = grid_of(cells)
    assert np.array_equal(grid.locate(narrow.astype(np.float64)), grid.locate(edges))
    between = np.nextafter(narrow, np.float32(0.5)).astype(np.float64)
    off = (between != edges) & (narrow != 0.5)
    assert (grid.locate(between)[off] != grid.locate(edges)[off]).all()


@pytest.mark.parametrize("edges", ["right", "left"])
def test_tenths_have_one_bin_in_both_types(edges):
    wide = equal_width_bin(TENTHS, 10, edges)
    assert np.array_equal(equal_width_bin(TENTHS.astype(np.float32).astype(float), 10, edges), wide)


def _rows(dtype):
    scores = np.array([0.4] * 10 + [0.5] * 10, dtype)
    return scores, [1] * 5 + [0] * 5 + [1] * 4 + [0] * 6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_two_bins_are_not_one(dtype):
    scores, labels = _rows(dtype)
    assert cal.ece(scores, labels, bins=10).value == pytest.approx(0.1, abs=1e-7)
    assert cal.ece(scores.tolist(), labels, bins=10).value == pytest.approx(0.1, abs=1e-7)
    pane = cal.Pane.fill(scores, labels)
    assert pane.evaluate("ece", bins=10)["ece"].value == pytest.approx(0.1, abs=1e-7)


def test_only_the_bin_changes():
    scores, labels = _rows(np.float32)
    table = cal.reliability(scores, labels, bins=10)
    assert table.bin_confidence[3] == pytest.approx(float(np.float32(0.4)), abs=1e-12)
    assert table.bin_confidence[4] == 0.5


def test_a_pane_of_them_is_subtracted_and_read_back():
    scores, labels = _rows(np.float32)
    pane = cal.Pane.fill(scores, labels)
    both = pane + cal.Pane.fill(scores[:5].astype(float), labels[:5])
    assert (both - pane).isclose(cal.Pane.fill(scores[:5], labels[:5]))
    assert cal.Pane.from_bytes(pane.to_bytes()) == pane
