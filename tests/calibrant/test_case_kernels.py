"""Spline and Gaussian memberships: against their definitions, sums of one, limits, and errors of rows under them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.interpolate import BSpline

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics import compute_metrics
from calibrant.segmentation.case_errors import case_errors
from calibrant.segmentation.case_kernels import KERNELS, memberships

CUBIC = BSpline.basis_element(np.arange(-2.0, 3.0), extrapolate=False)
SCORES = np.concatenate(
    [np.random.default_rng(1).random(60), [0.0, 1.0, 0.5, 0.25, 1e-12, 1 - 1e-12]]
)


def kernel_value(kernel: str, away: float) -> float:
    if kernel == "gaussian":
        return math.exp(-0.5 * away**2 * 6.0)
    return 0.0 if abs(away) >= 2 else float(CUBIC(away))


def naive(score: float, bins: int, kernel: str) -> np.ndarray:
    """Every centre from far below 0 to far above 1, mirrored into the bins one reflection at a time."""
    total = np.zeros(bins)
    for m in range(-12, bins + 12):
        value, place = kernel_value(kernel, score * bins - 0.5 - m), m
        while not 0 <= place < bins:
            place = -1 - place if place < 0 else 2 * bins - 1 - place
        total[place] += value
    return total / total.sum()


def dense(scores: np.ndarray, bins: int, kernel: str) -> np.ndarray:
    place, share = memberships(scores, bins, kernel)
    total = np.zeros((len(scores), bins))
    for where, part in zip(place, share, strict=True):
        np.add.at(total, (np.arange(len(scores)), where), part)
    return total


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bins", [1, 2, 3, 5, 20])
def test_memberships_equal_the_naive_version(kernel: str, bins: int) -> None:
    found = dense(SCORES, bins, kernel)
    assert found.sum(axis=1) == pytest.approx(np.ones(len(SCORES)))
    assert (found >= 0).all()
    for row, score in zip(found, SCORES, strict=True):
        assert row == pytest.approx(naive(float(score), bins, kernel), abs=1e-12)


@pytest.mark.parametrize("kernel", ["soft", *KERNELS])
def test_mirrored_scores_have_mirrored_memberships(kernel: str) -> None:
    assert dense(1.0 - SCORES, 10, kernel)[:, ::-1] == pytest.approx(
        dense(SCORES, 10, kernel), abs=1e-9
    )


def batch_of(seed: int, n: int = 200) -> Batch:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([1.0, 0.8, 0.5], n)
    ratings = np.array([rng.multinomial(rng.integers(1, 4), row) for row in p])
    columns = {"probabilities": p, "label_counts": ratings, "weights": rng.choice([1.0, 2.0], n)}
    return Batch.from_columns(
        columns | {"cases": [f"c{i % 3}" for i in range(n)]}, task="segmentation"
    ).batch


def view_of(batch: Batch, bins: int, raters: str = "pooled", **options: object) -> View:
    pane = Pane(PaneSpec("segmentation", 3))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(bins=bins, raters=raters, options=options), batch)


@pytest.mark.parametrize("raters", ["pooled", "mean"])
@pytest.mark.parametrize("kernel", ["soft", *KERNELS])
def test_errors_are_those_of_the_rows(kernel: str, raters: str) -> None:
    batch, bins = batch_of(2), 7
    cases = case_errors(view_of(batch, bins, raters, membership=kernel, background="in"))
    ratings = batch.label_counts
    assert batch.weights is not None
    weight = batch.weights * (ratings.sum(axis=1) if raters == "pooled" else 1)
    share = ratings / ratings.sum(axis=1, keepdims=True)
    for i, name in enumerate(cases.names):
        own = np.array([case == name for case in batch.cases])  # type: ignore[union-attr]
        for k in range(3):
            p, y, w = batch.probabilities[own, k], share[own, k], weight[own]
            psi = dense(p, bins, kernel) * w[:, None]
            mass = psi.sum(axis=0)
            there = mass >= 0.01
            gap = np.abs(((y - p) @ psi)[there] / mass[there])
            assert cases.by_case_and_class("ece")[i, k] == pytest.approx(
                (mass[there] * gap).sum() / w.sum(), abs=1e-9
            )
            assert cases.by_case_and_class("ace")[i, k] == pytest.approx(gap.mean(), abs=1e-9)
            assert cases.by_case_and_class("mce")[i, k] == pytest.approx(gap.max(), abs=1e-9)
    hard = case_errors(view_of(batch, bins, raters, background="in"))
    assert cases.by_case("dice") == pytest.approx(hard.by_case("dice"))


@pytest.mark.parametrize("kernel", KERNELS)
def test_kept_tables_say_that_they_need_rows(kernel: str) -> None:
    view = view_of(batch_of(3), 10, membership=kernel)
    with pytest.raises(NoResultError, match="needs_raw_rows"):
        case_errors(View(view.pane, view.pane_query))
    answer = compute_metrics(View(view.pane, view.pane_query), ["ml1_ace"])["ml1_ace"]
    assert (answer["value"], answer["reason"]) == (None, "needs_raw_rows")


def test_kernels_take_composites() -> None:
    batch = batch_of(4)
    view = view_of(batch, 5, membership="spline", composites={"organ": [1, 2]})
    found = compute_metrics(view, ["ml1_ace"])["ml1_ace"]
    p = batch.probabilities
    united = Batch.from_columns(
        {
            "probabilities": np.stack([p[:, 0], p[:, 1] + p[:, 2]], axis=1),
            "label_counts": np.stack(
                [batch.label_counts[:, 0], batch.label_counts[:, 1:].sum(axis=1)], axis=1
            ),
            "weights": batch.weights,
            "cases": list(batch.cases),  # type: ignore[arg-type]
        },
        task="segmentation",
    ).batch
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(united)
    expected = compute_metrics(
        View(pane, PaneQuery(bins=5, options={"membership": "spline"}), united), ["ml1_ace"]
    )
    assert found["value"] == pytest.approx(expected["ml1_ace"]["value"])
