"""Laws that every metric obeys, or an exception with its reason: merging, order, names, raters, nothing, perfection.

Values alone are compared, without intervals and null references, so that every law can run over the whole folder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics import METRICS, compute_metrics
from tests.calibrant.reference import POLICIES

TASKS = ("binary", "multiclass", "segmentation")
N = 120
tasks = pytest.mark.parametrize("task", TASKS)
raws = pytest.mark.parametrize("raw", [True, False])

# More votes of one row say more about the row: what is debiased by them, or leaves a vote out, has to change.
TOLD_MORE_BY_VOTES = frozenset({
    "calibrated_disagreement_ce",
    "debiased_ece",
    "l2_ece_squared",
    "disagreement_ce",
    "disagreement_loss",
    "epistemic_loss",
    "grouping_loss",
    "irreducible_loss",
    "kde_ece",
    "rater_statistic",
})  # fmt: skip
OF_CASES = frozenset(slug for slug, metric in METRICS.items() if "cases" in metric.needs)
Values = dict[str, float | str]


def columns_of(task: str, seed: int = 0, raters: int = 4) -> dict[str, Any]:
    """Rows of a task, a third on edges of bins, with names; all of them have votes."""
    rng = np.random.default_rng(seed)
    k = 2 if task == "binary" else 3
    z = rng.dirichlet(np.ones(k), N)
    # No two classes of a row alike: which is on top, or first among equals, must not hang on their order.
    z[::3] = [rng.permutation([7, 9] if k == 2 else [1, 6, 9]) / 16 for _ in range(N // 3)]
    ratings = rng.multinomial(
        rng.integers(2, raters + 1, N), z**1.4 / (z**1.4).sum(axis=1, keepdims=True)
    )
    columns: dict[str, Any] = {
        "probabilities": z,
        "label_counts": ratings,
        "ids": [f"p{i}" for i in range(N)],
    }
    if task == "segmentation":
        columns["cases"] = [f"c{i % 6}" for i in range(N)]
    return columns


def batch_of(task: str, columns: dict[str, Any]) -> Batch:
    return Batch.from_columns(columns, task=task).batch


def pane_of(*batches: Batch) -> Pane:
    pane = Pane(PaneSpec(batches[0].task, batches[0].n_classes))
    for batch in batches:
        pane.fill_batch(batch)
    return pane


def values(pane: Pane, batch: Batch | None = None, raters: str = "pooled") -> Values:
    """The number of every metric, or the reason why there is none."""
    view = View(pane, PaneQuery(raters=raters), batch)
    found: Values = {}
    for slug, metric in METRICS.items():
        try:
            value = metric.value(view)
            found[slug] = "no_data" if value is None else float(value)
        except NoResultError as rejection:
            found[slug] = rejection.reason
    return found


def of_columns(task: str, columns: dict[str, Any], raw: bool, raters: str = "pooled") -> Values:
    batch = batch_of(task, columns)
    return values(pane_of(batch), batch if raw else None, raters)


def same(
    found: Values, expected: Values, *, but: frozenset[str] = frozenset(), abs_: float = 1e-9
) -> None:
    for slug, number in expected.items():
        if slug in but:
            continue
        if isinstance(number, str):
            assert found[slug] == number, slug
        else:
            assert found[slug] == pytest.approx(number, abs=abs_, nan_ok=True), slug


@tasks
def test_most_metrics_have_a_value_here(task: str) -> None:
    """Or the laws below would say nothing."""
    found = of_columns(task, columns_of(task), raw=False)
    without = {slug: why for slug, why in found.items() if isinstance(why, str)}
    assert set(without) <= (set[str]() if task == "segmentation" else OF_CASES), without


@tasks
@pytest.mark.parametrize("raters", POLICIES)
def test_merging_splitting_order_and_subtraction(task: str, raters: str) -> None:
    columns = columns_of(task)
    if raters == "mean":
        columns["weights"] = np.random.default_rng(4).uniform(0.5, 2.0, N)
    batch = batch_of(task, columns)
    expected = values(pane_of(batch), raters=raters)
    rng = np.random.default_rng(1)
    order = rng.permutation(N)
    # Cases stay whole: a unit in two batches without retained records counts as two.
    parts = [batch.take(np.flatnonzero(np.arange(N) % 6 // 2 == i)) for i in (2, 0, 1)]
    same(values(pane_of(batch.take(order)), raters=raters), expected)
    same(values(pane_of(*parts), raters=raters), expected)
    merged = Pane(PaneSpec(task, batch.n_classes))
    for part in parts:
        merged.merge(Pane.unpack(pane_of(part).pack()))
    same(values(merged, raters=raters), expected)
    more = pane_of(batch_of(task, columns_of(task, 1) | {"ids": [f"q{i}" for i in range(N)]}))
    same(values(merged.merge(more).subtract(more), raters=raters), expected, abs_=1e-8)
    complete, again = values(pane_of(batch), batch, raters), batch.take(order)
    same(values(pane_of(again), again, raters), complete)


@pytest.mark.parametrize("task", ["multiclass", "segmentation"])
@raws
def test_names_of_classes_do_not_matter(task: str, raw: bool) -> None:
    columns = columns_of(task)
    # The printed RankCS breaks ties by the order of the classes; the first class of a segmentation is its background.
    but = frozenset({"rank_cs"}) | (OF_CASES if task == "segmentation" else frozenset())
    turned = columns | {
        name: columns[name][:, [2, 0, 1]] for name in ("probabilities", "label_counts")
    }
    for raters in ("pooled", "mean"):
        same(of_columns(task, turned, raw, raters), of_columns(task, columns, raw, raters), but=but)
    # Ties of majorities go to the lowest class: here there are none.
    columns["label_counts"] = (
        columns["label_counts"] + 5 * np.eye(3, dtype=int)[columns["label_counts"].argmax(axis=1)]
    )
    turned["label_counts"] = columns["label_counts"][:, [2, 0, 1]]
    same(
        of_columns(task, turned, raw, "majority"),
        of_columns(task, columns, raw, "majority"),
        but=but,
    )


@raws
@pytest.mark.parametrize("missing", ["include", "skip_class", "skip_case"])
def test_names_of_classes_of_cases_do_not_matter_where_none_is_background(
    raw: bool, missing: str
) -> None:
    columns = columns_of("segmentation")
    found = []
    for order in ([0, 1, 2], [2, 0, 1]):
        turned = columns | {
            name: columns[name][:, order] for name in ("probabilities", "label_counts")
        }
        batch = batch_of("segmentation", turned)
        pane_query = PaneQuery(options={"background": "in", "missing": missing})
        view = View(pane_of(batch), pane_query, batch if raw else None)
        found.append([METRICS[slug].value(view) for slug in sorted(OF_CASES)])
    assert None not in found[0]
    assert found[1] == pytest.approx(found[0], abs=1e-12)


@tasks
@raws
def test_names_of_raters_do_not_matter(task: str, raw: bool) -> None:
    columns = columns_of(task)
    rng = np.random.default_rng(2)
    lists = [np.repeat(np.arange(len(row)), row) for row in columns.pop("label_counts")]
    shuffled = columns | {"labels": [rng.permutation(row).tolist() for row in lists]}
    for raters in POLICIES:
        expected = of_columns(
            task, columns | {"labels": [row.tolist() for row in lists]}, raw, raters
        )
        same(of_columns(task, shuffled, raw, raters), expected)


@tasks
@raws
@pytest.mark.parametrize("raters", POLICIES)
def test_doubled_ratings_change_nothing(task: str, raw: bool, raters: str) -> None:
    columns = columns_of(task)
    double = columns | {"label_counts": 2 * columns["label_counts"]}
    same(
        of_columns(task, double, raw, raters),
        of_columns(task, columns, raw, raters),
        but=TOLD_MORE_BY_VOTES,
    )


@tasks
@raws
def test_of_one_rater_all_policies_are_one(task: str, raw: bool) -> None:
    columns = columns_of(task)
    columns["label_counts"] = np.eye(columns["label_counts"].shape[1], dtype=int)[
        columns["label_counts"].argmax(axis=1)
    ]
    expected = of_columns(task, columns, raw)
    for raters in POLICIES[1:]:
        same(of_columns(task, columns, raw, raters), expected)


@tasks
@raws
def test_raters_who_always_agree_are_one_rater(task: str, raw: bool) -> None:
    columns = columns_of(task)
    one = np.eye(columns["label_counts"].shape[1], dtype=int)[
        columns["label_counts"].argmax(axis=1)
    ]
    expected = of_columns(task, columns | {"label_counts": one}, raw)
    for raters in POLICIES:
        # Of several raters who agree the spread is 0; of one it is not known.
        found = of_columns(task, columns | {"label_counts": 5 * one}, raw, raters)
        same(found, expected, but=TOLD_MORE_BY_VOTES)
        assert found["irreducible_loss"] == 0.0


@pytest.mark.parametrize("task", TASKS)
def test_nothing_has_no_value(task: str) -> None:
    k = 2 if task == "binary" else 3
    empty = Pane(PaneSpec(task, k))
    unlabelled = Batch.from_columns(
        {"probabilities": np.full((4, k), 1 / k), "units": list("abcd"), "cases": list("aabb")},
        task=task,
    ).batch
    for pane in (empty, pane_of(unlabelled)):
        for slug, why in values(pane).items():
            assert why in ("no_data", "no_cases"), (slug, why)
        for slug, found in compute_metrics(View(pane, PaneQuery()), METRICS).items():
            assert (found["value"], found["interval"], found["n"]) == (None, None, 0), slug


@tasks
@raws
@pytest.mark.parametrize("raters", ["pooled", "majority"])
def test_a_perfect_model_has_no_error(task: str, raw: bool, raters: str) -> None:
    columns = columns_of(task)
    k = columns["probabilities"].shape[1]
    truth = np.arange(N) % k
    columns |= {"probabilities": np.eye(k)[truth], "label_counts": 3 * np.eye(k, dtype=int)[truth]}
    best = {"lower": 0.0, "zero": 0.0, "one": 1.0}
    for slug, value in of_columns(task, columns, raw, raters).items():
        metric = METRICS[slug]
        if isinstance(value, str):
            # Of hits alone, or where nothing can vary, there is no such number.
            assert value in ("one_outcome", "no_variance", "no_cases"), (slug, value)
        elif slug == "zhang_kde_ece":
            # Densities about 0 and 1 lie between them in part; scores of both spread the kernel of binary models.
            assert 0.0 <= value < (0.2 if task == "binary" else 0.001)
        elif slug == "corp_uncertainty":
            assert value == pytest.approx(0.25 if task == "binary" else 0.0, abs=1e-9)
        elif metric.direction in best:
            assert value == pytest.approx(best[metric.direction], abs=2e-6), slug


@pytest.mark.parametrize("raters", POLICIES)
def test_where_every_bin_is_overconfident_the_number_of_bins_does_not_matter(raters: str) -> None:
    rng = np.random.default_rng(3)
    z = rng.uniform(0.6, 1.0, 400)
    ratings = rng.binomial(3, z - 0.4)
    columns = {"confidences": z, "label_counts": np.stack([3 - ratings, ratings], axis=1)}
    batch = Batch.from_columns(columns).batch
    found = [
        METRICS["ece"].value(View(pane_of(batch), PaneQuery(bins=m, raters=raters)))
        for m in (1, 2, 5)
    ]
    assert found[1:] == pytest.approx(found[:1] * 2, abs=1e-12)
