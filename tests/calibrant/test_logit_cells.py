"""Cells of pairs of logits against the naive version, at every width, in any order, and of panes without them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators.logit_cells import MOMENTS, SUMS, LogitCells
from calibrant.accumulators.logits import MAX_CELLS, Logits
from calibrant.core.pane_validation import check_pane
from tests.calibrant import reference
from tests.calibrant.data import shapes
from tests.calibrant.panes import FEW, SHAPE, SPECS, assert_same, batches_of, pane_of

SPEC = SPECS["two"]


def logits_of(pane: Pane) -> Logits:
    part = pane["logits"]
    assert isinstance(part, Logits)
    return part


def naive_cells(batch: Batch, width: float) -> dict[tuple[int, int], np.ndarray]:
    """By cell: predictions and the columns of `SUMS`, row by row."""
    result: dict[tuple[int, int], np.ndarray] = defaultdict(lambda: np.zeros(1 + len(SUMS)))
    labelled = [i for i in range(batch.n) if batch.row_total[i]]
    for i, row in zip(labelled, reference.rows_of(batch), strict=True):
        z = batch.scores[i]
        cell = tuple(int(np.floor(v / width)) for v in z)
        u = [v - width * k for v, k in zip(z, cell, strict=True)]
        moments = [1.0, *u, u[0] ** 2, u[0] * u[1], u[1] ** 2]
        values = [1.0]
        for weight in (row.weight * row.n_ratings, row.weight):
            values += [weight * each for each in moments]
        for policy in reference.POLICIES:
            right = row.weight * row.share(1, policy)
            values += [right, right * u[0], right * u[1]]
        result[cell] += values
    return result


def assert_cells(table: LogitCells, expected: dict[tuple[int, int], np.ndarray]) -> None:
    corners = np.rint(table.corners / table.width).astype(int)
    found = {
        tuple(cell): np.concatenate([counts, sums])
        for cell, counts, sums in zip(corners.T.tolist(), table.counts.T, table.sums.T, strict=True)
    }
    assert found.keys() == expected.keys()
    for cell, values in found.items():
        np.testing.assert_allclose(values, expected[cell], rtol=1e-9, atol=1e-7)


@FEW
@given(options=shapes())
def test_cells_are_those_of_the_rows(options: dict[str, Any]) -> None:
    (batch,) = batches_of(SPEC, options | {"logits": True, "units": None}, 1)
    part = logits_of(pane_of(SPEC, batch))
    expected = naive_cells(batch, 0.25)
    assert part.n_rows() == {
        "cells": int((batch.row_total > 0).sum()),
        "outside": 0,
        "probabilities": 0,
    }
    if expected:
        assert_cells(part.tables[""], expected)


def many(n: int, seed: int = 1, **columns: Any) -> Batch:
    rng = np.random.default_rng(seed)
    rows = rng.normal(0.0, 6.0, (n, 2)).tolist()
    given = {"logits": rows, "labels": rng.integers(0, 2, n).tolist()} | columns
    return Batch.from_columns(given, task=SPEC.task, n_classes=2).batch


def test_wider_cells_are_those_of_the_rows() -> None:
    batch = many(9000)
    table = logits_of(pane_of(SPEC, batch)).tables[""]
    assert table.level >= 2 and table.n_filled <= MAX_CELLS
    assert_cells(table, naive_cells(batch, table.width))
    finer = naive_cells(batch, table.width / 2)
    assert len(finer) > MAX_CELLS


def test_the_width_does_not_depend_on_the_order() -> None:
    few, more, most = many(30, 1), many(1500, 2), many(9000, 3)
    complete = pane_of(SPEC, Batch.concatenate([few, more, most]))
    for order in ((few, more, most), (most, few, more)):
        merged = Pane(SPEC)
        for batch in order:
            merged.merge(pane_of(SPEC, batch))
        assert_same(merged, complete)
        assert logits_of(merged).tables[""].level == logits_of(complete).tables[""].level
    back = complete.subtract(pane_of(SPEC, most)).subtract(pane_of(SPEC, more))
    table = logits_of(back).tables[""]
    assert_cells(table, naive_cells(few, table.width))
    assert back.subtract(pane_of(SPEC, few)).is_empty


def test_cases_beyond_the_bound_share_a_table() -> None:
    n_cases = 3 * Logits.max_cases
    n = 4 * n_cases
    batch = many(n, cases=[f"scan-{i % n_cases}" for i in range(n)])
    part = logits_of(pane_of(SPEC, batch))
    assert 0 < len(part.names) <= Logits.max_cases and part.halvings > 0
    complete = sum(table.sums.sum(axis=1) for table in part.tables.values())
    assert complete[SUMS.index("weight")] == pytest.approx(n)
    name = part.names[0]
    own = np.flatnonzero([f"scan-{i % n_cases}" == name for i in range(n)])
    assert_cells(part.tables[name], naive_cells(batch.take(own), 0.25))
    halves = [pane_of(SPEC, batch.take(np.arange(start, n, 2))) for start in (0, 1)]
    assert_same(halves[1].merge(halves[0]), pane_of(SPEC, batch))
    assert_same(Pane.unpack(halves[1].pack()), pane_of(SPEC, batch))


def test_rows_without_a_cell_are_counted() -> None:
    rows = [[0.0, -1e9], [-3.4e38, 1.0], [2.0**21, 2.0**21], [1.0, 2.0], [2.0**20, 2.0**20 - 5.0]]
    batch = Batch.from_columns({"logits": rows, "labels": [0, 0, 1, 1, 1]}, n_classes=2).batch
    pane = pane_of(SPEC, batch)
    assert logits_of(pane).n_rows() == {"cells": 4, "outside": 1, "probabilities": 0}
    table = logits_of(pane).tables[""]
    assert table.is_masked.tolist() == [False, False, True, True]
    masked = table.sums[:, table.is_masked]
    # Class 0 impossible: the last. Both were rated 0.
    assert masked[SUMS.index("weight")].tolist() == [1.0, 1.0]
    assert not masked[SUMS.index("right_mean")].any()
    probabilities = Batch.from_columns({"probabilities": [[0.5, 0.5]], "labels": [0]}).batch
    pane.fill_batch(probabilities)
    assert logits_of(pane).n_rows()["probabilities"] == 1
    check_pane(pane)
    for rest in (batch, probabilities):
        pane.subtract(pane_of(SPEC, rest))
    assert pane.is_empty


def test_a_pane_that_lacks_them_is_read_and_never_seems_complete() -> None:
    first, second = (many(20, seed) for seed in (1, 2))
    parts = pane_of(SPEC, first).parts()
    del parts["logits"]
    old = Pane.from_parts(SPEC, parts)
    check_pane(old)
    changed = old.subtract(pane_of(SPEC, first.take(np.arange(5)))).merge(pane_of(SPEC, second))
    changed = Pane.unpack(changed.pack())
    assert sum(logits_of(changed).n_rows().values()) != changed.counts["n_labelled"]
    changed.subtract(pane_of(SPEC, first.take(np.arange(5, 20)))).subtract(pane_of(SPEC, second))
    assert changed.is_empty and changed.parts() == {}


@pytest.mark.parametrize(
    ("column", "change"),
    [("first", 3.0), ("second_squared", 20.0), ("right_pooled", 4.0), ("right_first_mean", 30.0)],
)
def test_impossible_moments_are_rejected(column: str, change: float) -> None:
    pane = pane_of(SPEC, *batches_of(SPEC, SHAPE | {"logits": True}, 2))
    check_pane(pane)
    (table,) = logits_of(pane).tables.values()
    table._sums[SUMS.index(column)] = change * table.sums[SUMS.index("weight")] + 1.0
    with pytest.raises(ValueError, match=f"received {column} out of range"):
        check_pane(pane)


def test_other_specs_have_none() -> None:
    assert not Pane(PaneSpec("multiclass", 3)).keeps("logits")
    assert len(MOMENTS) == 6
