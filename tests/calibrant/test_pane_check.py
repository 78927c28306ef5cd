"""What a posted pane is checked for: spec, counts that add up, and ranges of columns; and what is no longer checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from calibrant import CalibrationInputError, Histogram, Pane, PaneSpec
from calibrant.accumulators import cells, scores, units
from calibrant.accumulators.unit_sample import UnitSample
from calibrant.core.pane_validation import check_pane
from tests.calibrant.data import shapes
from tests.calibrant.panes import (
    SHAPE,
    SPECS,
    a_histogram,
    batches_of,
    every_spec,
    pane_of,
)


def filled(name: str = "three", **options: Any) -> Pane:
    return pane_of(SPECS[name], *batches_of(SPECS[name], SHAPE | {"n": 60} | options, 2))


def rejected(pane: Pane, spec: PaneSpec | None = None) -> list[tuple[str, str, str]]:
    with pytest.raises(CalibrationInputError) as caught:
        check_pane(pane, spec)
    return [(o.pointer, o.rule, o.detail) for o in caught.value.violations]


@every_spec
@settings(max_examples=10, deadline=None)
@given(options=shapes())
def test_every_pane_of_predictions_passes(spec: PaneSpec, options: dict[str, Any]) -> None:
    first, second = batches_of(spec, options, 2)
    pane = pane_of(spec, first, second)
    check_pane(pane)
    pane.subtract(pane_of(spec, first))
    check_pane(pane, spec)
    check_pane(Pane.unpack(pane.pack()), spec)


def test_masked_logits_pass() -> None:
    from calibrant import Batch

    rows = np.array([[0.0, -1e9, -3.4e38], [5.0, 1.0, 2.0]])
    pane = pane_of(SPECS["three"], Batch.from_columns({"logits": rows, "labels": [0, 1]}).batch)
    check_pane(pane)


def test_another_spec_is_rejected() -> None:
    (only,) = rejected(filled(), SPECS["ten"])
    assert only[:2] == ("/packed", "spec")


def edit(
    accumulator: str, block: str, kind: str, row: int, change: Callable[[Any], Any]
) -> Callable[[Pane], None]:
    """Change one row of a block where it is filled."""

    def apply(pane: Pane) -> None:
        table = pane[accumulator].blocks[block]
        array = table.counts if kind == "count" else table.sums
        there = table.counts[0] > 0
        array[row, there] = change(array[row, there])

    return apply


def cell(name: str) -> int:
    return cells.SUMS.index(name)


TAMPERED: dict[str, tuple[str, Callable[[Pane], None]]] = {
    "negative counts": ("top_label", edit("top_label", "cells", "count", 0, lambda x: -x)),
    "negative ratings": ("classes", edit("classes", "cells", "count", 1, lambda x: -x)),
    "top_label beyond the others": (
        "top_label",
        edit("top_label", "cells", "count", 0, lambda x: x + 1),
    ),
    "classes beyond the others": ("classes", edit("classes", "cells", "count", 1, lambda x: x + 1)),
    "more labelled": ("counts", edit("counts", "counts", "count", 1, lambda x: x + 1000)),
    "more units than labelled": (
        "counts",
        edit("counts", "counts", "count", 3, lambda x: x + 1000),
    ),
    "fewer ratings": ("counts", edit("counts", "counts", "count", 2, lambda x: x * 0)),
    "infinite weight": ("counts", edit("counts", "counts", "sum", 0, lambda x: x + 1e300)),
    "weight of cells": (
        "top_label",
        edit("top_label", "cells", "sum", cell("weight"), lambda x: x * 1.1),
    ),
    "confidence of another cell": (
        "top_label",
        edit("top_label", "cells", "sum", cell("confidence"), lambda x: x * 0.5),
    ),
    "more correct than weight": (
        "top_label",
        edit("top_label", "cells", "sum", cell("correct_single"), lambda x: x + 9),
    ),
    "negative correct": (
        "classes",
        edit("classes", "cells", "sum", cell("correct_pooled"), lambda x: x - 1),
    ),
    "squares above the hits": (
        "classes",
        edit("classes", "cells", "sum", cell("correct_mean_squared"), lambda x: x + 1),
    ),
    "squared weights": (
        "top_label",
        edit("top_label", "cells", "sum", cell("weight_squared"), lambda x: x * 1e6 + 1e6),
    ),
    "null variance": (
        "top_label",
        edit("top_label", "cells", "sum", cell("null_variance"), lambda x: -1.0 - x),
    ),
    "other hits": (
        "top_label",
        edit("top_label", "cells", "sum", cell("correct_mean"), lambda x: x * 0),
    ),
    "brier": (
        "scores",
        edit("scores", "scores", "sum", scores.SUMS.index("brier"), lambda x: x + 1000),
    ),
    "nll below zero": (
        "scores",
        edit("scores", "scores", "sum", scores.SUMS.index("nll"), lambda x: -x - 1),
    ),
    "occupancy": ("units", edit("units", "bins", "sum", 0, lambda x: x + 1000)),
    "weight of units": ("units", edit("units", "bins", "sum", 1, lambda x: x + 1)),
    "correct of units": (
        "units",
        edit("units", "bins", "sum", units.SUMS.index("correct_mean"), lambda x: x + 5),
    ),
    "labelled of units": ("units", edit("units", "bins", "count", 1, lambda x: x + 1)),
    "scores of replicates": ("replicates", edit("replicates", "scores", "sum", 2, lambda x: x + 1)),
    "tables of replicates": (
        "replicates",
        edit("replicates", "tables", "count", 0, lambda x: x + 1),
    ),
    "classes of replicates": (
        "replicates",
        edit("replicates", "classes", "sum", 3, lambda x: x + 5),
    ),
    "curve counts": ("temperature", edit("temperature", "curve", "count", 0, lambda x: x * 2)),
    "curvature": ("temperature", edit("temperature", "curve", "sum", 3, lambda x: -1 - x)),
    "tables of temperature": (
        "temperature",
        edit("temperature", "tables", "sum", 0, lambda x: x + 1),
    ),
    "a count beyond 2^53": ("scores", edit("scores", "scores", "count", 1, lambda x: x + 2**60)),
}


@pytest.mark.parametrize("name", TAMPERED)
@pytest.mark.parametrize("packed", [False, True])
def test_one_accumulator_changed(name: str, packed: bool) -> None:
    pane = filled()
    check_pane(pane)
    blamed, change = TAMPERED[name]
    change(pane)
    if packed:
        pane = Pane.unpack(pane.pack())
    violations = rejected(pane)
    assert all(pointer == "/packed" for pointer, _, _ in violations)
    assert {rule for _, rule, _ in violations} <= {"negative_count", "count_limit", "disagreement"}
    assert any(blamed in detail for _, _, detail in violations)


@pytest.mark.parametrize("spec", ["binary", "three", "hundred", "listed"])
def test_one_accumulator_missing_or_doubled(spec: str) -> None:
    pane = filled(spec)
    for name in pane.parts():
        if name in (
            "unit_sample",
            "sample",
            "digest",
        ):  # a sample may be smaller than what it is of
            continue
        parts = pane.parts()
        without = Pane.from_parts(
            SPECS[spec], {key: part for key, part in parts.items() if key != name}
        )
        if not pane[name].optional:
            rejected(without)
        doubled = Pane.unpack(pane.pack())
        doubled[name].merge(pane[name])
        rejected(doubled)


def test_units_that_were_never_counted() -> None:
    pane = filled()
    sample = pane["unit_sample"]
    assert isinstance(sample, UnitSample)
    sample.batches = sample.batches + 10
    assert "unit_sample" in rejected(pane)[0][2]
    sample.batches = -sample.batches
    assert "unit_sample" in rejected(pane)[0][2]


def test_histograms_that_cannot_be() -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    for row, change in ((0, -5.0), (1, 100.0), (2, 100.0)):
        pane = Pane(spec)
        histogram: Histogram = a_histogram(spec)
        pane.fill_histogram(histogram)
        check_pane(pane)
        pane.histograms.blocks[histogram.key].sums[row, 40] += change
        assert rejected(pane)[0][1] == "disagreement"
    pane = Pane(spec)
    pane.fill_histogram(a_histogram(spec).negated())
    assert rejected(pane)[0][1] == "negative_count"


@every_spec
def test_every_column_has_a_range(spec: PaneSpec) -> None:
    pane = pane_of(spec, *batches_of(spec, SHAPE | {"units": "cases"}, 1))
    pane.fill_histogram(
        a_histogram(spec, kind="positive" if spec.task == "binary" else "top_label")
    )
    for name in pane.names:
        declared = pane[name].ranges()
        assert set(declared) >= set(pane[name].blocks)
        for key, block in pane[name].blocks.items():
            ranges = declared[key]
            assert len(ranges.of) == block.n_sums, (name, key)
            assert len(ranges.counts) == block.n_counts
            # Without a total, a part of the pane could be missing; these two hold only what clients gave.
            assert (
                ranges.totals
                or name in ("counts", "cases", "delays", "histograms")
                or key.startswith("cells:")
            )
