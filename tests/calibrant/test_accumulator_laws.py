"""Laws of every accumulator: merge, order, split, subtract, empty, packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators import accumulators
from calibrant.core.pane_validation import check_pane
from tests.calibrant.data import shapes
from tests.calibrant.panes import (
    FEW,
    SHAPE,
    SOME,
    SPECS,
    assert_same,
    batches_of,
    every_spec,
    pane_of,
)


def test_every_file_of_the_folder_is_found() -> None:
    assert set(accumulators()) >= {
        "all_labels", "classes", "counts", "histograms", "positive", "replicates", "scores", "temperature", "top_label",
        "sample", "unit_sample", "units",
    }  # fmt: skip


@every_spec
@SOME
@given(options=shapes())
def test_merge_is_the_fill_of_the_concatenation_in_any_order(
    spec: PaneSpec, options: dict[str, Any]
) -> None:
    batches = batches_of(spec, options, 3)
    panes = [pane_of(spec, batch) for batch in batches]
    complete = pane_of(spec, Batch.concatenate(batches))
    assert_same(Pane(spec).merge(panes[0]).merge(panes[1]).merge(panes[2]), complete)
    assert_same(panes[2].copy().merge(panes[0].copy().merge(panes[1])), complete)
    assert_same(pane_of(spec, batches[1], batches[2], batches[0]), complete)


@every_spec
@FEW
@given(options=shapes())
def test_order_of_rows_does_not_matter(spec: PaneSpec, options: dict[str, Any]) -> None:
    (batch,) = batches_of(spec, options, 1)
    shuffled = batch.take(np.random.default_rng(options["seed"]).permutation(batch.n))
    assert_same(pane_of(spec, shuffled), pane_of(spec, batch))


@every_spec
@FEW
@given(options=shapes(), cut=st.floats(0, 1))
def test_splits_by_unit_add_up(spec: PaneSpec, options: dict[str, Any], cut: float) -> None:
    (batch,) = batches_of(spec, options, 1)
    first = batch.unit_hash < np.quantile(batch.unit_hash.astype(float), cut)
    one, other = pane_of(spec, batch.take(first)), pane_of(spec, batch.take(~first))
    assert_same(one.merge(other), pane_of(spec, batch))


@every_spec
@SOME
@given(options=shapes())
def test_subtract_gives_back_what_was(spec: PaneSpec, options: dict[str, Any]) -> None:
    first, second = batches_of(spec, options, 2)
    pane = pane_of(spec, first, second).subtract(pane_of(spec, second))
    complete = pane_of(spec, first, second)
    assert_same(pane, at_threshold_of(pane, pane_of(spec, first)), largest=complete)


def at_threshold_of(pane: Pane, other: Pane) -> Pane:
    """The other with the sample's threshold of the first: subtraction does not raise it again."""
    if pane.keeps("sample"):
        threshold = Pane(pane.spec)
        threshold.sample.halvings = pane.sample.halvings
        other.merge(threshold)
    return other


@every_spec
@FEW
@given(options=shapes())
def test_dropped_cells_leave_no_dust(spec: PaneSpec, options: dict[str, Any]) -> None:
    first, second = batches_of(spec, options, 2)
    second = second.take(second.row_total > 0)
    bare = Batch.from_columns(
        {"probabilities": np.full((1, spec.n_classes), 1.0 / spec.n_classes)}, task=spec.task
    ).batch
    pane = (
        pane_of(spec, bare, first, second)
        .subtract(pane_of(spec, second))
        .subtract(pane_of(spec, first))
    )
    assert pane.counts["n_predictions"] == 1
    assert pane["counts"].blocks["counts"].sums[0, 0] == 0.0
    assert not pane["units"].blocks["bins"].sums[1:].any()
    pane.subtract(pane_of(spec, bare))
    assert pane.is_empty
    for name in pane.names:
        for block in pane[name].blocks.values():
            assert not block.counts.any()
            assert not block.sums.any()
    assert pane.parts() == {}


@every_spec
def test_empty_is_zero(spec: PaneSpec) -> None:
    (batch,) = batches_of(spec, SHAPE, 1)
    empty = pane_of(spec, batch.take(np.zeros(0, np.int64)))
    assert empty.is_empty
    assert_same(empty, Pane(spec))
    assert_same(pane_of(spec, batch).merge(empty), pane_of(spec, batch))
    assert_same(Pane.unpack(Pane(spec).pack()), Pane(spec))
    check_pane(Pane(spec))


@every_spec
@pytest.mark.parametrize("sparse", [False, True])
def test_copies_are_independent(spec: PaneSpec, sparse: bool) -> None:
    one, two = batches_of(spec, SHAPE, 2)
    pane = pane_of(spec, one)
    if sparse:
        pane = Pane.unpack(pane.pack())
    twin = pane.copy()
    twin.fill_batch(two)
    assert_same(pane, pane_of(spec, one))
    pane.subtract(pane_of(spec, one))
    assert pane.is_empty
    assert_same(twin, pane_of(spec, one, two))


@every_spec
@SOME
@given(options=shapes())
def test_packing_keeps_every_bit(spec: PaneSpec, options: dict[str, Any]) -> None:
    (batch,) = batches_of(spec, options, 1)
    pane = pane_of(spec, batch)
    again = Pane.unpack(pane.pack())
    assert_same(again, pane, tolerance=1e-300)
    assert again.pack() == pane.pack()
    check_pane(again, spec)


@every_spec
@pytest.mark.parametrize("sparse", [False, True])
def test_a_pane_added_to_itself_is_twice_the_pane(spec: PaneSpec, sparse: bool) -> None:
    (batch,) = batches_of(spec, SHAPE, 1)
    pane = pane_of(spec, batch)
    if sparse:
        pane = Pane.unpack(pane.pack())
    pane.merge(pane)
    assert_same(pane, pane_of(spec, batch, batch))
    pane.subtract(pane)
    assert pane.is_empty


def test_panes_of_other_specs_do_not_add() -> None:
    with pytest.raises(ValueError, match="cannot be added"):
        Pane(SPECS["two"]).merge(Pane(SPECS["three"]))
    with pytest.raises(ValueError, match="cannot be added"):
        Pane(SPECS["binary"]).subtract(Pane(SPECS["two"]))
    (batch,) = batches_of(SPECS["three"], SHAPE, 1)
    with pytest.raises(ValueError, match="does not fill"):
        Pane(SPECS["two"]).fill_batch(batch)
