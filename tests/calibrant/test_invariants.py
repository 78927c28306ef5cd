"""Invariants between accumulators hold in every pane of predictions, and one forged column breaks one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.accumulators import (
    concentration,
    label_bins,
    label_uncertainty,
    rater_pairs,
    scores,
    temperature,
)
from calibrant.accumulators.block import Block
from calibrant.core.pane_validation import check_pane
from tests.calibrant.data import shapes
from tests.calibrant.invariants import broken, invariants_of
from tests.calibrant.panes import SHAPE, SPECS, batches_of, every_spec, pane_of

# What can be half as large again and still have come of predictions: nothing else is kept of it, only bounds.
FREE = {
    "classes": {"null_variance_pooled", "null_variance"},
    "all_labels": {"null_variance_pooled", "null_variance"},
    "concentration": {"weight", "nll_limit", "nll_d1_squared"},  # where a vote was impossible
    "label_bins": {"residual_squared", "ratings_squared"},
    "replicates": {"product_pooled", "product"},  # without classes' tables
    "scores": {"brier_null", "brier_null_variance"},
    "temperature": {"nll_d2", "nll_d1_squared", "brier_d1", "brier_d2", "brier_d1_squared"},
    "positive": {"null_variance_pooled", "null_variance"},
    "units": {
        "occupancy",
        "correct_mean",
        "correct_majority",
        "correct_single",
        "correct_pooled",
    },  # where hits are few
}


def filled(name: str = "three", **options: Any) -> Pane:
    return pane_of(SPECS[name], *batches_of(SPECS[name], SHAPE | {"n": 60} | options, 2))


@every_spec
@settings(max_examples=10, deadline=None)
@given(options=shapes())
def test_they_hold_after_fill_merge_subtract_and_unpack(
    spec: PaneSpec, options: dict[str, Any]
) -> None:
    first, second = (pane_of(spec, batch) for batch in batches_of(spec, options, 2))
    complete = first.copy().merge(second)
    for pane in (first, complete, Pane.unpack(complete.pack()), complete.copy().subtract(first)):
        assert broken(pane) == []


def test_they_hold_of_masked_logits() -> None:
    rows = np.array([[0.0, -1e9, -3.4e38], [5.0, 1.0, 2.0]])
    assert (
        broken(
            pane_of(SPECS["three"], Batch.from_columns({"logits": rows, "labels": [0, 1]}).batch)
        )
        == []
    )


def columns(pane: Pane) -> Iterator[tuple[str, Block, int, str]]:
    """Every column of sums that is not all zero: accumulator, block, number and name."""
    for name in pane.names:
        declared = pane[name].ranges()
        for key, block in pane[name].blocks.items():
            for column, sum_name in enumerate(declared[key].of):
                if block.sums[column].any():
                    yield name, block, column, sum_name


@pytest.mark.parametrize("spec", ["three", "binary", "hundred"])
def test_what_is_half_as_large_again_breaks_one(spec: str) -> None:
    pane, passed = filled(spec), []
    forged = 0
    for name, block, column, sum_name in columns(pane):
        kept = block.sums[column].copy()
        block.sums[column] *= 1.5
        forged += 1
        if not broken(pane) and in_range(pane) and sum_name not in FREE.get(name, ()):
            passed.append((name, sum_name))
        block.sums[column] = kept
    assert broken(pane) == [] and in_range(pane)
    assert forged > 80 and not passed


def in_range(pane: Pane) -> bool:
    try:
        check_pane(pane)
    except CalibrationInputError:
        return False
    return True


@pytest.mark.parametrize(
    ("accumulator", "block", "column", "places", "change", "sentence"),
    [
        ("temperature", "curve", temperature.CURVE_SUMS.index("nll"), slice(3, 4), 1.2, "otherwise than its slopes"),
        ("temperature", "curve", temperature.CURVE_SUMS.index("nll_d1"), slice(8, 9), 3.0, "otherwise than its slopes"),
        ("temperature", "curve", temperature.CURVE_SUMS.index("nll_d1_squared"), slice(None), 1e-3, "square of the slope"),
        ("temperature", "curvature", 1, slice(None), 1e-4, "brier_d1_squared below the square"),
        ("replicates", "unit_products", 1, slice(None), 1.1, "products of units differ between tables"),
        ("replicates", "score_nulls", 0, slice(None), 1.01, "brier_null differs from scores"),
        ("temperature", "tables", temperature.TABLE_SUMS.index("correct_mean"), slice(0, 60), 0.5, "correct_mean differs"),
        ("concentration", "profile", concentration.SUMS.index("nll"), slice(4, 5), 1.3, "nll rises otherwise"),
        ("concentration", "profile", concentration.SUMS.index("nll_d1"), slice(9, 10), 3.0, "rises otherwise"),
        ("label_bins", "bins", label_bins.SUMS.index("residual"), slice(None), 50.0, "square of the residual"),
        ("label_uncertainty", "sums", label_uncertainty.SUMS.index("squared_gap"), slice(None), 1.01, "differ from brier"),
        ("label_uncertainty", "sums", label_uncertainty.SUMS.index("correction"), slice(None), 9.0, "beyond the spread"),
        ("disagreement", "cells", rater_pairs.SUMS.index("epistemic"), slice(None), 1.1, "epistemic differs"),
        ("uncertainty", "cells", 11, slice(None), 1.01, "null_variance differs"),
        ("label_distribution", "sums", 3, slice(None), 1.2, "distance differs from its histogram"),
        ("scores", "scores", scores.SUMS.index("nll"), slice(None), 1.1, "nll at 1 differs"),
        ("positive", "cells", 6, slice(None), 0.5, "differ from those of class 1"),
    ],
)  # fmt: skip
def test_a_sentence_names_what_was_broken(
    accumulator: str, block: str, column: int, places: slice, change: float, sentence: str
) -> None:
    pane = filled("binary" if accumulator == "positive" else "three", weights=False)
    pane[accumulator].blocks[block].sums[column, places] *= change
    assert sentence in "; ".join(broken(pane))


def test_a_slope_of_brier_is_bounded_by_the_curvature_of_nll() -> None:
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(3), 100)
    pane = Pane(SPECS["three"])
    pane.fill_batch(
        Batch.from_columns({"probabilities": rows, "labels": rng.integers(0, 3, 100)}).batch
    )
    assert broken(pane) == []
    pane["temperature"].blocks["curve"].sums[temperature.CURVE_SUMS.index("brier_d1")] *= 40.0
    assert "what nll_d2 allows" in "; ".join(broken(pane))


def test_tables_that_were_moved_to_other_bins() -> None:
    for accumulator, block, sentence in (
        ("replicates", "tables", "other bins than the fine cells"),
        ("units", "bins", "other bins than the fine cells"),
        ("label_bins", "bins", "differ from classes"),
    ):
        pane = filled()
        table = pane[accumulator].blocks[block]
        table.counts[:] = np.roll(table.counts, 1, axis=1)
        assert sentence in "; ".join(broken(pane))


def test_every_accumulator_with_sums_has_invariants() -> None:
    for spec in SPECS.values():
        pane = Pane(spec)
        sentences = {sentence for sentence, _ in invariants_of(pane)}
        for name in set(pane.names) - {"histograms", "cases", "delays", "sample", "unit_sample"}:
            assert any(sentence.startswith(name) for sentence in sentences), name
