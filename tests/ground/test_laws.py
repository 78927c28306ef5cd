"""Sums that no predictions could have left: one column of one accumulator forged, everything else as it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.accumulators import (
    accumulators,
    concentration,
    disagreement,
    label_bins,
    label_uncertainty,
    temperature,
)
from calibrant.accumulators.block import Block
from calibrant.checking import check_pane
from calibrant.errors import CalibrationInputError
from calibrant.laws import laws_of
from tests.ground.panes import SPECS
from tests.ground.test_pane_check import filled

# What can be half as large again and still have come of predictions: nothing else is kept of it, only bounds.
FREE = {
    "classes": {"null_variance_pooled", "null_variance"},
    "all_labels": {"null_variance_pooled", "null_variance"},
    "concentration": {"weight", "nll_limit", "nll_d1_squared"},  # where a vote was impossible
    "label_bins": {"residual_squared", "ratings_squared"},
    "scores": {"brier_null", "brier_null_variance"},
    "temperature": {"nll_d2", "nll_d1_squared", "brier_d1"},
    "positive": {"null_variance_pooled", "null_variance"},
    "units": {"occupancy", "correct_mean", "correct_majority", "correct_single", "correct_pooled"},  # where hits are few
}


def columns(pane: Pane) -> Iterator[tuple[str, Block, int, str]]:
    """Every column of sums that is not all zero: accumulator, block, number and name."""
    for name in pane.names:
        module = __import__(f"calibrant.accumulators.{name}", fromlist=["SUMS"])
        if name in ("top_label", "positive", "classes", "all_labels"):
            from calibrant.accumulators import cells as module
        names = {"curve": "CURVE_SUMS", "tables": "TABLE_SUMS", "scores": "SCORE_SUMS"}
        for key, block in pane[name].blocks.items():
            listed = getattr(module, names.get(key, "SUMS"), None) or getattr(module, "SUMS", None) or ()
            for column in range(block.n_sums):
                if block.sums[column].any():
                    yield name, block, column, listed[column] if column < len(listed) else str(column)


@pytest.mark.parametrize("spec", ["three", "binary", "hundred"])
def test_what_is_half_as_large_again_is_refused(spec: str) -> None:
    pane, passed = filled(spec), []
    check_pane(pane)
    forged = 0
    for name, block, column, sum_name in columns(pane):
        kept = block.sums[column].copy()
        block.sums[column] *= 1.5
        forged += 1
        try:
            check_pane(pane)
            if sum_name not in FREE.get(name, ()):
                passed.append((name, sum_name))
        except CalibrationInputError:
            pass
        block.sums[column] = kept
    check_pane(pane)
    assert forged > 80 and not passed


def told(pane: Pane) -> str:
    with pytest.raises(CalibrationInputError) as caught:
        check_pane(pane)
    return "; ".join(offence.detail for offence in caught.value.offences)


@pytest.mark.parametrize(
    ("accumulator", "block", "column", "places", "change", "law"),
    [
        ("temperature", "curve", temperature.CURVE_SUMS.index("nll"), slice(3, 4), 1.2, "otherwise than its slopes"),
        ("temperature", "curve", temperature.CURVE_SUMS.index("nll_d1"), slice(8, 9), 3.0, "otherwise than its slopes"),
        ("temperature", "curve", temperature.CURVE_SUMS.index("nll_d1_squared"), slice(None), 1e-3, "square of the slope"),
        ("temperature", "curve", temperature.CURVE_SUMS.index("brier"), slice(2, 3), 9.0, "brier out of range"),
        ("temperature", "tables", temperature.TABLE_SUMS.index("correct_mean"), slice(0, 60), 0.5, "correct_mean differs"),
        ("concentration", "profile", concentration.SUMS.index("nll"), slice(4, 5), 1.3, "nll rises otherwise"),
        ("concentration", "profile", concentration.SUMS.index("nll_d1"), slice(9, 10), 3.0, "rises otherwise"),
        ("label_bins", "bins", label_bins.SUMS.index("residual"), slice(None), 50.0, "square of the residual"),
        ("label_bins", "bins", label_bins.SUMS.index("correct_ratings_squared"), slice(None), 30.0, "ratings_squared out"),
        ("label_uncertainty", "sums", label_uncertainty.SUMS.index("squared_gap"), slice(None), 1.01, "differ from brier"),
        ("label_uncertainty", "sums", label_uncertainty.SUMS.index("correction"), slice(None), 9.0, "correction out"),
        ("disagreement", "cells", disagreement.SUMS.index("predicted"), slice(None), 1.1, "outside its cell"),
        ("disagreement", "cells", disagreement.SUMS.index("epistemic"), slice(None), 1.1, "epistemic differs"),
        ("uncertainty", "cells", 11, slice(None), 1.01, "null_variance differs"),
        ("label_distribution", "sums", 3, slice(None), 1.2, "distance differs from its histogram"),
        ("scores", "scores", 6, slice(None), -1.0, "brier_null_variance is negative"),
    ],
)  # fmt: skip
def test_each_law_names_what_broke_it(
    accumulator: str, block: str, column: int, places: slice, change: float, law: str
) -> None:
    pane = filled()
    pane[accumulator].blocks[block].sums[column, places] *= change
    assert law in told(pane)


def test_a_slope_of_brier_is_bounded_by_the_curvature_of_nll() -> None:
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(3), 100)
    pane = Pane(SPECS["three"])
    pane.fill_batch(Batch.from_columns({"probabilities": rows, "labels": rng.integers(0, 3, 100)}).batch)
    check_pane(pane)
    pane["temperature"].blocks["curve"].sums[temperature.CURVE_SUMS.index("brier_d1")] *= 40.0
    assert "what nll_d2 allows" in told(pane)


def test_tables_that_were_moved_to_other_bins() -> None:
    for accumulator, block, law in (
        ("replicates", "tables", "other bins than the fine cells"),
        ("units", "bins", "other bins than the fine cells"),
        ("label_bins", "bins", "differ from classes"),
    ):
        pane = filled()
        table = pane[accumulator].blocks[block]
        table.counts[:] = np.roll(table.counts, 1, axis=1)
        assert law in told(pane)


def test_every_accumulator_has_laws() -> None:
    for spec in SPECS.values():
        pane = Pane(spec)
        sentences = {sentence for sentence, _ in laws_of(pane)}
        for name in set(accumulators()) & set(pane.names) - {"histograms", "cases"}:
            assert any(sentence.startswith(name) for sentence in sentences), name
        check_pane(pane)
