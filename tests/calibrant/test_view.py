"""Views answer what the definitions say, whether the state is kept cells or raw rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.core.cells import Table, equal_mass_groups
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from tests.calibrant import reference
from tests.calibrant.data import shapes
from tests.calibrant.panes import SPECS, a_histogram, batches_of, every_spec

COLUMNS = (
    "count",
    "predictions",
    "weight",
    "confidence",
    "correct",
    "correct_squared",
    "weight_squared",
    "null_variance",
)
policies = pytest.mark.parametrize("raters", reference.POLICIES)
both_edges = pytest.mark.parametrize("edges", ["right", "left"])
SOME = settings(max_examples=4, deadline=None)


def scopes_of(spec: PaneSpec) -> list[str]:
    kept = [f"class:{k}" for k in spec.stored_classes[:3]]
    return ["top_label", "all", *kept, *(["positive"] if spec.n_classes == 2 else [])]


def exact_bins(spec: PaneSpec, scope: str) -> list[int]:
    exact = spec.grid_for(scope).exact_bins
    return [m for m in exact if m in (1, 2, 5, 7, 10, 15, 16, 25, 60, 100) or m == exact[-1]][:8]


def assert_table(
    table: Table, rows: list[reference.Row], scope: str, raters: str, bins: int, edges: str
) -> None:
    expected = reference.table(rows, scope, raters, bins, edges)
    for name in COLUMNS:
        own = getattr(table.cells, name)
        np.testing.assert_allclose(own, expected[name], rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_array_equal(table.edges, np.arange(bins + 1) / bins)


@every_spec
@both_edges
@SOME
@given(options=shapes())
def test_tables_equal_the_naive_version(
    spec: PaneSpec, edges: Any, options: dict[str, Any]
) -> None:
    # Probabilities as sent: two softmaxes may differ in the last bit and fall on two sides of an edge.
    (batch,) = batches_of(spec, options | {"logits": False}, 1)
    rows = reference.rows_of(batch)
    pane = Pane(spec)
    pane.fill_batch(batch)
    for raters in reference.POLICIES:
        for scope in scopes_of(spec):
            bins = exact_bins(spec, scope)[options["seed"] % len(exact_bins(spec, scope))]
            pane_query = PaneQuery(bins=min(bins, 100), edges=edges, raters=raters, scope=scope)
            if bins > 100:
                continue
            assert_table(View(pane, pane_query).table(), rows, scope, raters, bins, edges)
            assert_table(View(pane, pane_query, batch).table(), rows, scope, raters, bins, edges)


@every_spec
@both_edges
@SOME
@given(options=shapes(), raters=st.sampled_from(reference.POLICIES))
def test_raw_rows_and_kept_cells_agree_for_every_bin_count(
    spec: PaneSpec, edges: Any, options: dict[str, Any], raters: str
) -> None:
    (batch,) = batches_of(spec, options, 1)
    pane = Pane(spec)
    pane.fill_batch(batch)
    for scope in scopes_of(spec):
        for bins in exact_bins(spec, scope):
            pane_query = PaneQuery(bins=bins, edges=edges, raters=raters, scope=scope)
            kept, raw = (
                View(pane, pane_query).table().cells,
                View(pane, pane_query, batch).table().cells,
            )
            for name in COLUMNS:
                own = getattr(raw, name)
                np.testing.assert_allclose(
                    getattr(kept, name), own, rtol=1e-9, atol=1e-9, err_msg=name
                )


@policies
@both_edges
def test_calibration_errors_from_a_view_and_by_hand(raters: str, edges: Any) -> None:
    spec = SPECS["three"]
    options = {
        "seed": 8,
        "n": 200,
        "logits": False,
        "weights": True,
        "units": None,
        "most_raters": 3,
        "unlabelled": 0.1,
    }
    (batch,) = batches_of(spec, options, 1)
    rows, pane = reference.rows_of(batch), Pane(spec)
    pane.fill_batch(batch)
    view = View(pane, PaneQuery(bins=15, edges=edges, raters=raters))
    cells = view.table().cells
    full, gap = cells.weight > 0, np.abs(cells.gap)
    naive = reference.table(rows, "top_label", raters, 15, edges)
    assert (cells.weight @ gap) / cells.weight.sum() == pytest.approx(
        reference.ece(naive), abs=1e-12
    )
    assert gap.max() == pytest.approx(reference.mce(naive), abs=1e-12)
    assert gap[full].mean() == pytest.approx(reference.ace(naive), abs=1e-12)
    root = math.sqrt((cells.weight @ gap**2) / cells.weight.sum())
    assert root == pytest.approx(reference.rmsce(naive), abs=1e-12)
    tables = [table.cells for table in view.class_tables()]
    classwise = np.mean([(c.weight @ np.abs(c.gap)) / c.weight.sum() for c in tables])
    assert classwise == pytest.approx(reference.classwise_ece(rows, raters, 15, edges), abs=1e-12)
    complete = view.table_of("all").cells
    all_label = (complete.weight @ np.abs(complete.gap)) / complete.weight.sum()
    assert all_label == pytest.approx(reference.all_label_ece(rows, raters, 15, edges), abs=1e-12)


@policies
def test_scores_of_the_policy(raters: str) -> None:
    spec = SPECS["ten"]
    options = {
        "seed": 3,
        "n": 50,
        "logits": False,
        "weights": True,
        "units": "units",
        "most_raters": 3,
        "unlabelled": 0.1,
    }
    (batch,) = batches_of(spec, options, 1)
    pane = Pane(spec)
    pane.fill_batch(batch)
    expected = reference.score_sums(reference.rows_of(batch), raters)
    own = View(pane, PaneQuery(raters=raters)).scores()
    for name, value in expected.items():
        assert own[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


# The blog post's nine samples.


def blog_view(bins: int, edges: Any, raw: bool) -> View:
    rows = [
        [0.78, 0.12, 0.10], [0.10, 0.64, 0.26], [0.04, 0.04, 0.92],
        [0.58, 0.30, 0.12], [0.05, 0.51, 0.44], [0.85, 0.15, 0.00],
        [0.22, 0.70, 0.08], [0.63, 0.34, 0.03], [0.02, 0.15, 0.83],
    ]  # fmt: skip
    labels = ["C", "D", "D", "C", "C", "C", "D", "T", "T"]
    columns = {"probabilities": rows, "labels": labels}
    batch = Batch.from_columns(columns, class_names=["C", "D", "T"]).batch
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(bins=bins, edges=edges), batch if raw else None)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("bins", "edges", "expected", "tolerance"),
    [
        (5, "right", 0.94 / 9, 1e-12),
        (5, "left", 0.94 / 9, 1e-12),
        (10, "left", 0.235556, 5e-7),
        (10, "right", 0.175556, 5e-7),
    ],
)
def test_the_blog_posts_nine_samples(
    raw: bool, bins: int, edges: str, expected: float, tolerance: float
) -> None:
    cells = blog_view(bins, edges, raw).table().cells
    assert (cells.weight @ np.abs(cells.gap)) / 9 == pytest.approx(expected, abs=tolerance)


# Equal mass.


@SOME
@given(
    weights=st.lists(st.floats(0.1, 50), min_size=1, max_size=60),
    bins=st.integers(1, 20),
)
def test_equal_mass_groups_by_definition(weights: list[float], bins: int) -> None:
    weights = [round(w, 3) for w in weights]
    own = equal_mass_groups(np.array(weights), bins)
    naive = reference.equal_mass_cuts([(float(i), w) for i, w in enumerate(weights)], bins)
    sizes = np.bincount(own)
    assert sizes.all()
    assert (np.diff(own) >= 0).all()
    near_cut = any(
        abs(x - round(x)) < 1e-9 for x in np.cumsum(weights)[:-1] * bins / np.sum(weights)
    )  # fmt: skip
    if not near_cut:
        assert sizes.tolist() == [len(group) for group in naive]


@every_spec
@policies
@SOME
@given(options=shapes(), bins=st.integers(1, 20))
def test_equal_mass_laws(spec: PaneSpec, raters: str, options: dict[str, Any], bins: int) -> None:
    (batch,) = batches_of(spec, options, 1)
    pane = Pane(spec)
    pane.fill_batch(batch)
    bins = min(bins, spec.top_grid.cells)
    pane_query = PaneQuery(bins=bins, binning="equal_mass", raters=raters, scope="top_label")
    for view in (View(pane, pane_query), View(pane, pane_query, batch)):
        table, cells = view.table(), view.cells()
        kept = table.cells
        assert len(kept) <= bins
        assert (kept.weight > 0).all()
        assert kept.weight.sum() == pytest.approx(cells.weight.sum())
        assert kept.correct.sum() == pytest.approx(cells.correct.sum())
        assert (kept.upper[:-1] <= kept.lower[1:]).all()
        assert (np.diff(table.edges) >= 0).all()
        assert (table.edges[0], table.edges[-1]) == (0.0, 1.0)
        if len(kept):
            mean = kept.weight.sum() / bins
            assert kept.weight.max() <= mean + cells.weight.max() * (1 + 1e-9)


def test_equal_mass_keeps_ties_together_and_gives_fewer_bins() -> None:
    rows = [[0.5, 0.5]] * 8 + [[0.9, 0.1], [0.8, 0.2]]
    batch = Batch.from_columns({"probabilities": rows, "labels": [0] * 10}).batch
    pane = Pane(PaneSpec("multiclass", 2))
    pane.fill_batch(batch)
    table = View(pane, PaneQuery(bins=5, binning="equal_mass")).table()
    assert table.cells.count.tolist() == [8, 2]
    distinct = [[(k + 0.5) / 100, 1 - (k + 0.5) / 100] for k in range(50)]
    batch = Batch.from_columns({"probabilities": distinct, "labels": [0] * 50}).batch
    pane = Pane(PaneSpec("multiclass", 2))
    pane.fill_batch(batch)
    assert (
        View(pane, PaneQuery(bins=5, binning="equal_mass")).table().cells.count.tolist() == [10] * 5
    )


# Small bins are left out.


def test_min_count_leaves_small_bins_out_and_says_what_they_held() -> None:
    rows = [[0.55, 0.45]] * 3 + [[0.95, 0.05]] * 5
    columns: dict[str, Any] = {"probabilities": rows, "labels": [[0, 1]] * 3 + [[0, 0]] * 5}
    pane = Pane(PaneSpec("multiclass", 2))
    pane.fill_batch(Batch.from_columns(columns).batch)
    table = View(pane, PaneQuery(bins=10, min_count=7)).table()
    assert table.cells.weight.tolist() == [0.0] * 9 + [10.0]
    assert table.discarded_weight == 6.0
    assert View(pane, PaneQuery(bins=10, min_count=6)).table().discarded_weight == 0.0
    assert (
        View(pane, PaneQuery(bins=10, min_count=4, raters="mean")).table().discarded_weight == 3.0
    )
    weighted = Pane(PaneSpec("multiclass", 2))
    weighted.fill_batch(Batch.from_columns(columns | {"weights": [4] * 3 + [0.5] * 5}).batch)
    table = View(weighted, PaneQuery(bins=10, min_count=6)).table()
    assert table.discarded_weight == 5.0
    assert table.cells.weight[5] == 24.0
    assert np.isfinite(table.cells.gap).all()


# Classes.


def test_classes_that_are_not_kept_are_rejected_from_cells_and_answered_from_rows() -> None:
    options = {
        "seed": 3,
        "n": 50,
        "logits": False,
        "weights": False,
        "units": None,
        "most_raters": 1,
        "unlabelled": 0.0,
    }
    for name, kept in (("hundred", ()), ("listed", (3, 70))):
        spec = SPECS[name]
        (batch,) = batches_of(spec, options, 1)
        pane = Pane(spec)
        pane.fill_batch(batch)
        for k in (0, 3, 70, 99):
            view = View(pane, PaneQuery(scope=f"class:{k}"))
            if k in kept:
                assert view.table().cells.count.sum() == 50
            else:
                with pytest.raises(NoResultError) as rejected:
                    view.table()
                assert rejected.value.reason == "class_not_kept"
            assert View(pane, PaneQuery(scope=f"class:{k}"), batch).table().cells.count.sum() == 50
        with pytest.raises(NoResultError):
            View(pane, PaneQuery()).class_tables()
        assert View(pane, PaneQuery(scope="all")).table().cells.count.sum() == 5000


@pytest.mark.parametrize(
    ("pane_query", "pointer", "rule"),
    [
        (PaneQuery(bins=7), "/bins", "bins_not_exact"),
        (PaneQuery(bins=0), "/bins", "range"),
        (PaneQuery(bins=10**6), "/bins", "range"),
        (PaneQuery(bins=144, scope="class:0"), "/bins", "bins_not_exact"),
        (PaneQuery(scope="positive"), "/scope", "one_of"),
        (PaneQuery(scope="class:3"), "/scope", "one_of"),
        (PaneQuery(scope="class:" + "9" * 5000), "/scope", "one_of"),
        (PaneQuery(scope="class:-1"), "/scope", "one_of"),
        (PaneQuery(raters="median"), "/raters", "one_of"),
        (PaneQuery(edges="both"), "/edges", "one_of"),  # type: ignore[arg-type]
        (PaneQuery(binning="quantile"), "/binning", "one_of"),
        (PaneQuery(min_count=-1), "/min_count", "range"),
        (PaneQuery(min_count=math.nan), "/min_count", "range"),
        (PaneQuery(ci=1.0), "/ci", "range"),
        (PaneQuery(ci=math.nan), "/ci", "range"),
    ],
)
def test_questions_out_of_range(pane_query: PaneQuery, pointer: str, rule: str) -> None:
    with pytest.raises(CalibrationInputError) as rejected:
        View(Pane(SPECS["three"]), pane_query)
    assert (rejected.value.violations[0].pointer, rejected.value.violations[0].rule) == (
        pointer,
        rule,
    )


@every_spec
def test_an_empty_pane_has_empty_tables(spec: PaneSpec) -> None:
    for binning in ("equal_width", "equal_mass"):
        bins = 5 if spec.grid == 3600 else 7
        table = View(Pane(spec), PaneQuery(bins=bins, binning=binning, scope="top_label")).table()
        assert table.cells.weight.sum() == 0
        assert not np.isnan(table.cells.gap).any()


# Plain histograms.


def test_plain_histograms_feed_their_own_question_and_no_other() -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    pane = Pane(spec)
    pane.fill_batch(Batch.from_columns({"probabilities": [[0.9, 0.1, 0.0]], "labels": [0]}).batch)
    pane.fill_histogram(a_histogram(spec))
    view = View(pane, PaneQuery(bins=15))
    cells = view.table().cells
    assert cells.weight.sum() == 61.0
    assert cells.correct.sum() == 31.0
    assert cells.predictions.sum() == 1
    assert view.histogram_share() == pytest.approx(60 / 61)
    asked = [
        PaneQuery(bins=15, edges="left"),
        PaneQuery(bins=15, raters="mean"),
        PaneQuery(bins=15, scope="class:0"),
        PaneQuery(bins=15, scope="all"),
        PaneQuery(bins=15, binning="equal_mass"),
    ]
    for pane_query in asked:
        with pytest.raises(NoResultError) as rejected:
            View(pane, pane_query).table()
        assert rejected.value.reason == "not_in_histogram"
        assert rejected.value.n_excluded == 60.0
    for ask in (view.cells, view.scores):
        with pytest.raises(NoResultError, match="not_in_histogram"):
            ask()


def test_histograms_of_two_policies_cover_each_other_when_their_predictions_agree() -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    numbers = a_histogram(spec).count
    pane = Pane(spec)
    pane.fill_histogram(a_histogram(spec, raters="mean"))
    pane.fill_histogram(a_histogram(spec, raters="pooled", n_predictions=numbers))
    assert View(pane, PaneQuery(bins=15, raters="mean")).table().cells.weight.sum() == 60
    assert View(pane, PaneQuery(bins=15)).table().cells.weight.sum() == 60
    pane.fill_histogram(a_histogram(spec, raters="pooled", n_predictions=numbers))
    assert View(pane, PaneQuery(bins=15)).table().cells.weight.sum() == 120
    with pytest.raises(NoResultError) as rejected:
        View(pane, PaneQuery(bins=15, raters="mean")).table()
    assert rejected.value.n_excluded == 60.0


def test_class_histograms_answer_their_class() -> None:
    spec = PaneSpec("multiclass", 3)
    pane = Pane(spec)
    pane.fill_histogram(a_histogram(spec, 1200, kind="class", **{"class": 1}))
    assert View(pane, PaneQuery(bins=15, scope="class:1")).table().cells.weight.sum() == 1200
    with pytest.raises(NoResultError):
        View(pane, PaneQuery(bins=15, scope="class:2")).table()


def test_a_subtracted_histogram_is_forgotten() -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    pane = Pane(spec)
    pane.fill_histogram(a_histogram(spec))
    pane.fill_histogram(a_histogram(spec).negated())
    assert View(pane, PaneQuery(bins=15, raters="mean")).table().cells.weight.sum() == 0
    assert View(pane, PaneQuery(bins=15)).table().cells.weight.sum() == 0
    assert View(pane, PaneQuery()).scores()["weight"] == 0
