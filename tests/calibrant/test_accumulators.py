"""Every accumulator: numbers against the naive version, plain histograms, units in pieces, limits."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators import cells, replicates, scores, temperature, units
from calibrant.accumulators.block import Block
from calibrant.accumulators.unit_sample import MAX_HASHES, UnitSample
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.pane_validation import check_pane
from calibrant.input.input_columns import MAX_WEIGHT
from calibrant.input.score_columns import MAX_LOGIT
from tests.calibrant import reference
from tests.calibrant.data import shapes
from tests.calibrant.panes import (
    FEW,
    SHAPE,
    SPECS,
    a_histogram,
    assert_same,
    batches_of,
    every_spec,
    pane_of,
)

# Numbers against the naive version.


@every_spec
@FEW
@given(options=shapes())
def test_counts(spec: PaneSpec, options: dict[str, Any]) -> None:
    (batch,) = batches_of(spec, options, 1)
    rows = reference.rows_of(batch)
    pane = pane_of(spec, batch)
    assert pane.counts == {
        "n_predictions": batch.n,
        "n_labelled": len(rows),
        "n_ratings": sum(row.n_ratings for row in rows),
        "n_units": len({row.unit for row in rows}),
        "n_majority_ties": sum(row.ratings.count(max(row.ratings)) > 1 for row in rows),
        "n_unit_from_row": 0,
        "n_one_rating": sum(row.n_ratings == 1 for row in rows),
    }
    assert pane["counts"].blocks["counts"].sums[0, 0] == pytest.approx(
        sum(row.weight for row in rows)
    )


@every_spec
@FEW
@given(options=shapes())
def test_score_sums(spec: PaneSpec, options: dict[str, Any]) -> None:
    (batch,) = batches_of(spec, options, 1)
    rows = reference.rows_of(batch)
    block = pane_of(spec, batch)["scores"].blocks["scores"]
    for i, policy in enumerate(reference.POLICIES):
        expected = reference.score_sums(rows, policy) | reference.null_scores(rows, policy)
        np.testing.assert_array_equal(
            block.counts[:, i], reference.as_array(expected, scores.COUNTS)
        )
        wanted = reference.as_array(expected, scores.SUMS)
        np.testing.assert_allclose(block.sums[:, i], wanted, rtol=1e-9, atol=1e-9)


@every_spec
@FEW
@given(options=shapes())
def test_unit_sums(spec: PaneSpec, options: dict[str, Any]) -> None:
    (batch,) = batches_of(spec, options, 1)
    expected = reference.unit_sums(batch)
    block = pane_of(spec, batch)["units"].blocks["bins"]
    for name, column in zip(units.COUNTS + units.SUMS, [*block.counts, *block.sums], strict=True):
        np.testing.assert_allclose(column, expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


@every_spec
@FEW
@given(options=shapes())
def test_replicates(spec: PaneSpec, options: dict[str, Any]) -> None:
    (batch,) = batches_of(spec, options, 1)
    rows = reference.rows_of(batch)
    blocks = pane_of(spec, batch)["replicates"].blocks
    assert ("classes" in blocks) == (spec.n_classes <= 20)
    scope = "positive" if spec.task == "binary" else "top_label"
    for r in {row.replicate for row in rows}:
        own = [row for row in rows if row.replicate == r]
        at = slice(r * 60, r * 60 + 60)
        assert_table(blocks["tables"].sums[:, at], own, scope, 60)
        for k in range(spec.n_classes if "classes" in blocks else 0):
            start = (r * spec.n_classes + k) * 15
            assert_table(blocks["classes"].sums[:, start : start + 15], own, f"class:{k}", 15)
        for i, policy in enumerate(reference.POLICIES):
            expected = reference.as_array(reference.score_sums(own, policy), replicates.SCORE_SUMS)
            np.testing.assert_allclose(
                blocks["scores"].sums[:, r * 4 + i], expected, rtol=1e-9, atol=1e-9
            )
            expected = reference.as_array(reference.null_scores(own, policy), replicates.NULL_SUMS)
            np.testing.assert_allclose(
                blocks["score_nulls"].sums[:, r * 4 + i], expected, rtol=1e-9, atol=1e-9
            )
    assert_products(blocks["unit_products"], 0, reference.unit_products(rows, scope, 60), 60)
    for k in range(spec.n_classes if "classes" in blocks else 0):
        expected = reference.unit_products(rows, f"class:{k}", 15)
        assert_products(blocks["class_unit_products"], k * 120, expected, 15)
    assert blocks["tables"].counts.sum() == len(rows)
    assert blocks["tables"].size == N_REPLICATES * 60


def assert_products(
    block: Block, start: int, expected: dict[tuple[int, int], tuple[float, ...]], bins: int
) -> None:
    """A table of pairs of bins against the naive one."""
    n_pairs = bins * (bins + 1) // 2
    wanted = np.zeros((4, n_pairs))
    places = {pair: i for i, pair in enumerate(combinations_with_replacement(range(bins), 2))}
    for pair, values in expected.items():
        wanted[:, places[pair]] = values
    at = slice(start, start + n_pairs)
    np.testing.assert_array_equal(block.counts[:, at], wanted[:2])
    np.testing.assert_allclose(block.sums[:, at], wanted[2:], rtol=1e-9, atol=1e-9)


def assert_table(sums: np.ndarray, rows: list[reference.Row], scope: str, bins: int) -> None:
    """Columns of `TABLE_SUMS` against the naive table."""
    tables = {
        policy: reference.table(rows, scope, policy, bins, "right") for policy in reference.POLICIES
    }
    wanted = [
        tables[policy][name] for name in ("weight", "confidence") for policy in ("pooled", "mean")
    ]
    wanted += [tables[policy]["correct"] for policy in reference.POLICIES]
    np.testing.assert_allclose(sums, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["binary", "two", "three", "ten"])
@FEW
@given(options=shapes())
def test_temperature_profile(name: str, options: dict[str, Any]) -> None:
    spec = SPECS[name]
    (batch,) = batches_of(spec, options, 1)
    rows = reference.rows_of(batch)
    blocks = pane_of(spec, batch)["temperature"].blocks
    curve = blocks["curve"].sums.reshape(len(temperature.CURVE_SUMS), 4, -1)
    curvature = blocks["curvature"].sums.reshape(len(temperature.CURVATURE_SUMS), 4, -1)
    tables = blocks["tables"].sums.reshape(8, -1, 60)
    for i, policy in enumerate(reference.POLICIES):
        assert blocks["units"].counts[:, i].tolist() == reference.unit_counts(rows, policy)
    scope = "positive" if spec.task == "binary" else "top_label"
    for step in (0, 7, 10, 13, 20):
        beta = float(temperature.BETAS[step])
        for i, policy in enumerate(reference.POLICIES):
            expected = reference.temperature_sums(rows, policy, beta)
            wanted = reference.as_array(expected, temperature.CURVE_SUMS)
            scale = 1.0 + sum(abs(row.weight) * row.n_ratings for row in rows)
            np.testing.assert_allclose(
                curve[:, i, step], wanted, rtol=1e-8, atol=1e-8 * scale, err_msg=policy
            )
            wanted = reference.as_array(expected, temperature.CURVATURE_SUMS)
            np.testing.assert_allclose(
                curvature[:, i, step], wanted, rtol=1e-8, atol=1e-8 * scale, err_msg=policy
            )
        # A score that rounding moves over an edge is another bin: compare what does not depend on it.
        own = reference.scaled(rows, beta)
        for i, policy in ((0, "pooled"), (1, "mean")):
            total = reference.table(own, scope, policy, 1, "right")
            assert tables[i, step].sum() == pytest.approx(total["weight"][0], abs=1e-9)
            assert tables[2 + i, step].sum() == pytest.approx(
                total["confidence"][0], rel=1e-9, abs=1e-9
            )
        for i, policy in enumerate(reference.POLICIES):
            total = reference.table(own, scope, policy, 1, "right")
            if not any(is_tied(row) for row in rows):
                assert tables[4 + i, step].sum() == pytest.approx(total["correct"][0], abs=1e-9)


def is_tied(row: reference.Row) -> bool:
    return sorted(row.p)[-2] > max(row.p) * (1 - 1e-9)


@every_spec
@FEW
@given(options=shapes())
def test_cells_hold_the_scores_that_lie_in_them(spec: PaneSpec, options: dict[str, Any]) -> None:
    (batch,) = batches_of(spec, options, 1)
    pane = pane_of(spec, batch)
    grid = spec.top_grid
    places, counts, sums = pane["top_label"].blocks["cells"].filled()
    expected: dict[int, list[float]] = {}
    for row in reference.rows_of(batch):
        (place,) = grid.locate(np.array([row.p[row.top]]))
        assert grid.lower[place] <= row.p[row.top] <= grid.upper[place]
        expected.setdefault(int(place), []).append(row.p[row.top])
    if not batch.is_logits:  # another softmax may round a score into the next cell
        assert places.tolist() == sorted(expected)
        assert counts[0].tolist() == [len(expected[k]) for k in sorted(expected)]
    assert sums.shape == (len(cells.SUMS), len(places))


# Plain histograms.


def test_histograms_add_and_take_away() -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    one, two = a_histogram(spec, n_units=3), a_histogram(spec, raters="mean", edges="left")
    pane = Pane(spec)
    for histogram in (one, two, one):
        pane.fill_histogram(histogram)
    assert pane.histograms.weight(one.key) == 2 * one.count.sum()
    assert pane.histograms.blocks[one.key].counts[3].sum() == 6
    pane.fill_histogram(one.negated())
    pane.fill_histogram(one.negated())
    assert pane.histograms.blocks[one.key].is_empty
    np.testing.assert_array_equal(pane.histograms.table(two.key)[0], two.count)
    check_pane(pane)
    assert_same(Pane.unpack(pane.pack()).subtract(pane.copy()), Pane(spec))


def test_a_negated_histogram_without_weight_takes_its_predictions_away() -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    nothing = np.zeros(60)
    numbers = nothing.copy()
    numbers[40] = 7
    fields = {
        "count": nothing,
        "sum_confidence": nothing,
        "sum_correct": nothing,
        "n_predictions": numbers,
    }
    histogram = a_histogram(spec, **fields)
    pane = Pane(spec)
    pane.fill_histogram(histogram)
    assert pane.histograms.n_predictions(histogram.key) == 7
    pane.fill_histogram(histogram.negated())
    assert pane.is_empty


def test_finer_histograms_are_added_on_the_grid() -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    fine = a_histogram(PaneSpec("multiclass", 3, grid=120))
    pane = Pane(spec)
    pane.fill_histogram(fine)
    np.testing.assert_allclose(
        pane.histograms.table(fine.key)[1], fine.sum_confidence.reshape(60, 2).sum(axis=1)
    )


# Units in pieces.


def batch_of_units(names: list[str], n_classes: int = 3) -> Batch:
    rows = np.full((len(names), n_classes), 1.0 / n_classes)
    return Batch.from_columns(
        {"probabilities": rows, "labels": [0] * len(names), "units": names}
    ).batch


def test_units_in_pieces_are_counted() -> None:
    spec = SPECS["three"]
    pane = pane_of(spec, batch_of_units(["a", "a", "b"]), batch_of_units(["b", "c"]))
    assert pane.units_split == {"n": 1, "estimated": False}
    assert pane.counts["n_units"] == 4
    pane.subtract(pane_of(spec, batch_of_units(["b", "c"])))
    assert pane.units_split == {"n": 0, "estimated": False}
    assert Pane(spec).units_split == {"n": 0, "estimated": False}


def test_without_names_nothing_is_sampled() -> None:
    (batch,) = batches_of(SPECS["three"], SHAPE | {"units": None}, 1)
    assert pane_of(SPECS["three"], batch)["unit_sample"].is_empty


def test_the_sample_of_units_is_bounded_and_says_that_it_estimates() -> None:
    spec = SPECS["three"]
    names = [f"patient-{i}" for i in range(40_000)]
    once, again = batch_of_units(names), batch_of_units(names[:10_000])
    pane = pane_of(spec, once, again)
    sample = pane["unit_sample"]
    assert isinstance(sample, UnitSample)
    assert MAX_HASHES // 4 < len(sample.hashes) <= MAX_HASHES
    assert pane.units_split["estimated"] is True
    assert abs(pane.units_split["n"] - 10_000) < 5 * 10_000 / np.sqrt(200)
    assert len(sample.pack()) < 16_000
    exact = pane_of(spec, batch_of_units(names[:1024]), batch_of_units(names[:17]))
    assert exact.units_split == {"n": 17, "estimated": False}


def test_samples_of_units_merge_in_any_order() -> None:
    spec = SPECS["three"]
    parts = [pane_of(spec, batch_of_units([f"u{i}" for i in range(k, 6000, 3)])) for k in range(3)]
    parts.append(pane_of(spec, batch_of_units([f"u{i}" for i in range(100)])))
    one = parts[0].copy().merge(parts[1]).merge(parts[2]).merge(parts[3])
    other = parts[3].copy().merge(parts[2]).merge(parts[0]).merge(parts[1])
    assert one["unit_sample"].pack() == other["unit_sample"].pack()
    left = one.subtract(parts[3])["unit_sample"]
    right = parts[0].merge(parts[1]).merge(parts[2])["unit_sample"]
    assert left.pack() == right.pack()


# Limits: no input that is accepted makes a pane that cannot be read again.


@pytest.mark.parametrize("spec", [SPECS["two"], SPECS["ten"]], ids=["two", "ten"])
def test_the_largest_values_overflow_no_sum(spec: PaneSpec) -> None:
    k = spec.n_classes
    rows = np.full((50, k), -MAX_LOGIT)
    rows[:, 0] = MAX_LOGIT
    columns = {
        "logits": rows,
        "weights": [MAX_WEIGHT] * 50,
        "label_counts": np.full((50, k), 1_000_000),
        "units": ["one"] * 50,
    }
    batch = Batch.from_columns(columns, task=spec.task).batch
    pane = pane_of(spec, batch, batch)
    again = Pane.unpack(pane.pack())
    assert_same(again, pane)
    check_pane(again, spec)


def test_the_smallest_probabilities_are_counted_and_finite() -> None:
    spec = SPECS["three"]
    rows = [[1.0, 5e-324, 0.0], [1.0, 0.0, 0.0], [0.0, 5e-324, 1.0]]
    batch = Batch.from_columns({"probabilities": rows, "labels": [1, [1, 2, 2], 0]}).batch
    pane = Pane.unpack(pane_of(spec, batch).pack())
    check_pane(pane, spec)
    block = pane["scores"].blocks["scores"]
    assert block.counts[2].tolist() == [4, 4, 2, 2]
    assert block.sums[3, 0] == pytest.approx(-np.log(5e-324))
