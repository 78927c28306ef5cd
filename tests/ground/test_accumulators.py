"""Laws that every accumulator of the folder obeys, and each one's numbers against the naive version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant import Batch, Histogram, Pane, PaneSpec
from calibrant.accumulators import (
    Accumulator,
    accumulators,
    cells,
    replicates,
    scores,
    temperature,
    units,
)
from calibrant.accumulators.sample import PANE_BYTES, Sample
from calibrant.accumulators.unit_sample import MOST_HASHES, UnitSample
from calibrant.checking import check_pane
from calibrant.filling import N_REPLICATES
from calibrant.input.columns import MOST_LOGIT, MOST_WEIGHT
from tests.ground import reference
from tests.ground.data import random_batch, shapes

SPECS = {
    "binary": PaneSpec("binary", 2),
    "two": PaneSpec("multiclass", 2),
    "three": PaneSpec("multiclass", 3),
    "ten": PaneSpec("segmentation", 10),
    "hundred": PaneSpec("multiclass", 100),
    "listed": PaneSpec("multiclass", 100, listed_classes=(3, 70)),
    "odd": PaneSpec("multiclass", 4, grid=7),
}
SOME = settings(max_examples=12, deadline=None)
FEW = settings(max_examples=5, deadline=None)
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def arrays_of(part: Accumulator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything that an accumulator holds: counts that must be equal, sums that must be near."""
    if isinstance(part, UnitSample):
        return {"hashes": part.hashes, "batches": part.batches, "halvings": part.halvings}, {}
    if isinstance(part, Sample):
        return part.arrays() | {"halvings": part.halvings}, {}
    counts = {
        f"{name} {i}": block.filled()[i] for name, block in part.blocks.items() for i in (0, 1)
    }
    return counts, {name: block.filled()[2] for name, block in part.blocks.items()}


def assert_same(one: Pane, other: Pane, *, tolerance: float = 1e-9) -> None:
    assert one.names == other.names
    for name in one.names:
        (counts, sums), (counts2, sums2) = arrays_of(one[name]), arrays_of(other[name])
        assert counts.keys() == counts2.keys()
        for key, values in counts.items():
            np.testing.assert_array_equal(values, counts2[key], err_msg=f"{name} {key}")
        for key, values in sums.items():
            scale = 1.0 + np.abs(sums2[key]).max(axis=1, initial=0.0, keepdims=True)
            assert (np.abs(values - sums2[key]) <= tolerance * scale).all(), f"{name} {key}"


def pane_of(spec: PaneSpec, *batches: Batch) -> Pane:
    pane = Pane(spec)
    for batch in batches:
        pane.fill(batch)
    return pane


def batches_of(spec: PaneSpec, options: dict[str, Any], how_many: int) -> list[Batch]:
    """Batches of one shape whose units are complete in each."""
    given = {key: value for key, value in options.items() if key not in ("seed", "n")}
    given["binary"] = spec.task == "binary" and not given["logits"]
    rng = np.random.default_rng(options["seed"])
    return [random_batch(rng, spec, options["n"], prefix=f"{j}.", **given) for j in range(how_many)]


def a_histogram(spec: PaneSpec, **fields: Any) -> Histogram:
    bins = spec.grid
    count = np.zeros(bins)
    count[bins // 2 :] = 2.0
    middle = (np.arange(bins) + 0.5) / bins
    given = {
        "kind": "top_label",
        "bins": bins,
        "count": count,
        "sum_confidence": count * middle,
        "sum_correct": count / 2,
    }
    return Histogram.from_fields(given | fields, spec)


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
    whole = pane_of(spec, Batch.concatenate(batches))
    assert_same(Pane(spec).merge(panes[0]).merge(panes[1]).merge(panes[2]), whole)
    assert_same(panes[2].copy().merge(panes[0].copy().merge(panes[1])), whole)
    assert_same(pane_of(spec, batches[1], batches[2], batches[0]), whole)


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
    assert_same(pane, at_threshold_of(pane, pane_of(spec, first)))


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


SHAPE = {
    "seed": 5, "n": 30, "logits": False, "weights": True, "units": "units", "most_raters": 3, "unlabelled": 0.2,
}  # fmt: skip


@every_spec
@pytest.mark.parametrize("sparse", [False, True])
def test_copies_are_independent(spec: PaneSpec, sparse: bool) -> None:
    one, two = batches_of(spec, SHAPE, 2)
    pane = pane_of(spec, one)
    if sparse:
        pane = Pane.unpack(pane.pack())
    twin = pane.copy()
    twin.fill(two)
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
    with pytest.raises(ValueError, match="do not add"):
        Pane(SPECS["two"]).merge(Pane(SPECS["three"]))
    with pytest.raises(ValueError, match="do not add"):
        Pane(SPECS["binary"]).subtract(Pane(SPECS["two"]))
    (batch,) = batches_of(SPECS["three"], SHAPE, 1)
    with pytest.raises(ValueError, match="does not fill"):
        Pane(SPECS["two"]).fill(batch)


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
        "n_majority_ties": sum(row.votes.count(max(row.votes)) > 1 for row in rows),
        "n_unit_from_row": 0,
        "n_one_rating": sum(row.n_ratings == 1 for row in rows),
    }
    assert pane["counts"].blocks["counts"].sums[0, 0] == pytest.approx(
        sum(row.weight for row in rows)
    )


@every_spec
@SOME
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
    assert blocks["tables"].counts.sum() == len(rows)
    assert blocks["tables"].size == N_REPLICATES * 60


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
    tables = blocks["tables"].sums.reshape(8, -1, 60)
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
    assert MOST_HASHES // 4 < len(sample.hashes) <= MOST_HASHES
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
    rows = np.full((50, k), -MOST_LOGIT)
    rows[:, 0] = MOST_LOGIT
    columns = {
        "logits": rows,
        "weights": [MOST_WEIGHT] * 50,
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


# The kept sample of whole predictions.

TEN = PaneSpec("multiclass", 10)


def named(rng: np.random.Generator, n: int, n_classes: int = 10, prefix: str = "", **more: Any) -> Batch:
    columns = {
        "probabilities": rng.dirichlet(np.full(n_classes, 0.4), n),
        "labels": rng.integers(0, n_classes, n),
        "ids": [f"{prefix}{i}" for i in range(n)],
    }
    return Batch.from_columns(columns | more).batch


def test_the_sample_is_every_prediction_below_the_threshold_and_bounded() -> None:
    batch = named(np.random.default_rng(1), 20_000, units=[f"u{i // 3}" for i in range(20_000)])
    pane = pane_of(TEN, batch)
    kept = pane.sample
    assert 0 < kept.halvings < 12
    chosen = np.flatnonzero(batch.prediction_hash < np.uint64(1 << (64 - kept.halvings)))
    assert kept.n == len(chosen) > 90
    assert len(kept.pack()) <= PANE_BYTES
    rows = kept.batch()
    order = np.argsort(batch.prediction_hash[chosen])
    np.testing.assert_allclose(rows.probabilities, batch.probabilities[chosen][order], rtol=1e-14)
    np.testing.assert_array_equal(rows.votes.klass, batch.votes.klass[chosen][order])
    np.testing.assert_array_equal(rows.unit_hash, batch.unit_hash[chosen][order])
    # One halving less would not have fitted.
    more = batch.take(batch.prediction_hash < np.uint64(1 << (65 - kept.halvings)))
    assert more.n * (8 * 10 + 32 + 4) > PANE_BYTES


def test_the_sample_does_not_depend_on_how_predictions_came() -> None:
    batch = named(np.random.default_rng(2), 6000)
    whole = pane_of(TEN, batch)["sample"].pack()
    parts = [pane_of(TEN, batch.take(np.arange(k, 6000, 7))) for k in range(7)]
    merged = Pane(TEN)
    for part in parts[::-1]:
        merged.merge(part)
    assert merged["sample"].pack() == whole
    window = Pane.for_window(TEN)
    for part in parts:
        window.merge(part)
    assert window.sample.halvings == max(part.sample.halvings for part in parts)
    assert window.sample.n > merged.sample.n
    at_once = Pane(TEN).merge_all(parts)
    assert_same(at_once, merged)
    assert Pane.for_window(TEN).merge_all(parts)["sample"].pack() == window["sample"].pack()


def test_samples_that_share_ids_merge_at_once_as_one_after_the_other() -> None:
    """Corrections and repetitions: other rows of the same ids, and the very same rows."""
    batch = named(np.random.default_rng(2), 900)
    turned = replace(batch, scores=batch.scores[::-1].copy())
    parts = [pane_of(TEN, each) for each in (batch, turned, batch.take(np.arange(50)), batch)]
    merged = Pane(TEN)
    for part in parts:
        merged.merge(part)
    assert Pane(TEN).merge_all(parts)["sample"].pack() == merged["sample"].pack()
    assert merged.sample.n > merged.sample.batch().n


def test_a_corrected_prediction_takes_its_own_place() -> None:
    """Both versions are held while it lasts, and cost the bound no halving."""
    spec = TEN
    rng = np.random.default_rng(3)
    batch = named(rng, 250)
    pane = pane_of(spec, batch)
    assert (pane.sample.n, pane.sample.halvings) == (250, 0)
    corrected = Batch.from_columns(
        {"probabilities": batch.probabilities, "labels": rng.integers(0, 10, 250), "ids": batch.ids}
    ).batch
    pane.merge(pane_of(spec, corrected)).subtract(pane_of(spec, batch))
    assert_same(pane, pane_of(spec, corrected))
    assert pane.sample.halvings == 0
    pane.subtract(pane_of(spec, corrected.take(np.arange(100))))
    assert pane.sample.n == 150


def test_the_same_prediction_again_and_again_takes_one_place() -> None:
    rows = {"probabilities": [[0.5, 0.25, 0.25]] * 4000, "labels": [0] * 4000}
    batch = Batch.from_columns(rows).batch
    pane = pane_of(SPECS["three"], batch, batch)
    assert (pane.sample.n, pane.sample.halvings, len(pane.sample.batch().scores)) == (8000, 0, 1)
    assert pane.sample.batch().weights.tolist() == [8000.0]


def test_logits_and_probabilities_stand_side_by_side_in_a_sample() -> None:
    spec = SPECS["three"]
    logits = Batch.from_columns({"logits": [[-800.0, 0.0, 800.0]], "labels": [0]}).batch
    plain = Batch.from_columns({"probabilities": [[0.0, 0.25, 0.75]], "labels": [1]}).batch
    pane = pane_of(spec, logits, plain)
    rows = Pane.unpack(pane.pack()).sample.batch()
    found = {tuple(row) for row in rows.scores}
    assert found == {(-800.0, 0.0, 800.0), (-np.inf, np.log(0.25), np.log(0.75))}
    assert not Pane(SPECS["binary"]).sample.n
    assert Pane(PaneSpec("multiclass", 1000)).keeps("sample")
    assert not Pane(PaneSpec("multiclass", 1001)).keeps("sample")
