"""Scores on a decimal grid in a narrow type: on the edge that they are rounded from, at every entrance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import calibrant as cal
from calibrant.core.edge_rules import BFLOAT16, EXACT, FLOAT16, FLOAT32
from calibrant.core.grid import equal_width_bin, grid_of
from calibrant.input.narrow_types import Bfloat16Values

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


def bfloat16(values):
    """Values rounded to bfloat16, by their definition: eight bits of a float32."""
    wide = np.asarray(values, np.float32).astype(np.float64)
    unit = 2.0 ** (np.floor(np.log2(np.where(wide > 0, wide, 1.0))) - 7)
    return (np.round(wide / unit) * unit).view(Bfloat16Values)


TYPED = {
    "float16": lambda values: np.array(values, np.float16),
    "bfloat16": bfloat16,
    "arrow float16": lambda values: pa.array(np.array(values, np.float16)),
    "arrow chunks": lambda values: pa.chunked_array(
        [np.array(values[:7], np.float16), np.array(values[7:], np.float16)]
    ),
    "pandas float16": lambda values: pd.Series(values, dtype="float16"),
}


@pytest.mark.parametrize("make", TYPED.values(), ids=TYPED)
def test_scores_of_16_bits_are_on_the_edge_that_they_are_rounded_from(make):
    """Of three and seven tenths: 0.7 is above its edge in float16, and so is 0.3 in bfloat16."""
    scores = make([0.7] * 10 + [0.3] * 10)
    labels = [1] * 7 + [0] * 3 + [1] * 4 + [0] * 6
    pane = cal.Pane.fill(scores, labels)
    for table in (cal.reliability(scores, labels, bins=10), pane.reliability(bins=10)):
        assert [i for i, n in enumerate(table.bin_count) if n] == [2, 6]
    assert cal.Pane.from_bytes(pane.to_bytes()) == pane


def test_edges_that_no_pane_has_are_those_of_the_type_too():
    """Seven raters: of k / 7 in float16, 3 / 7 is above its edge."""
    table = cal.reliability(np.array([3 / 7, 4 / 7], np.float16), [0, 1], bins=7)
    assert [i for i, n in enumerate(table.bin_count) if n] == [2, 3]


def test_by_value_alone_16_bits_are_not_seen():
    scores = np.array([0.7] * 10, np.float16)
    table = cal.reliability(scores.tolist(), [1] * 10, bins=10)
    assert [i for i, n in enumerate(table.bin_count) if n] == [7]


@pytest.mark.parametrize("rule", [EXACT, FLOAT32, FLOAT16, BFLOAT16])
@pytest.mark.parametrize("n_bins", [10, 15, 60, 1200, 3600])
def test_an_edge_of_each_type_has_the_bin_below_it(rule, n_bins):
    """Against the definition, edge by edge; where edges are closer than the type, that of the fewest bins counts."""
    edges = np.arange(1, n_bins) / n_bins
    types = {
        EXACT: edges,
        FLOAT32: edges.astype(np.float32),
        FLOAT16: edges.astype(np.float16),
        BFLOAT16: bfloat16(edges),
    }
    scores = np.asarray(types[rule], np.float64)
    found = equal_width_bin(scores, n_bins, rules=np.full(n_bins - 1, rule, np.uint8))
    expected = []
    for score in scores.tolist():
        on = [k for k in range(1, n_bins) if scores[k - 1] == score]
        on += [n_bins] * (score == 1.0)
        expected.append(max(on, key=lambda k: (np.gcd(k, n_bins), -k)) - 1)
    assert found.tolist() == expected
