"""Losses over two temperatures: rows against a naive softmax, cells and sample, the diagonal, the lowest point."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.calibrators.temperature.curve import Curve
from calibrant.calibrators.temperature.losses import (
    EceOptions,
    Losses,
    TwoClassLosses,
)
from calibrant.calibrators.temperature.surface import loss_surface
from calibrant.calibrators.temperature.surface_report import surface_report
from calibrant.core.batch_sums import BatchSums
from calibrant.core.logits import relative_logits
from calibrant.core.query import PaneQuery, policy_index
from calibrant.core.view import NoResultError, View


def rows(seed: int, n: int = 300, *, logits: bool = True, task: str = "segmentation") -> Batch:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, 2)) + rng.normal(0, 1, (n, 1))
    chance = 1 / (1 + np.exp((z[:, 0] - z[:, 1]) / 2))
    ratings = rng.binomial(2, chance)
    columns = {
        "label_counts": np.stack([2 - ratings, ratings], axis=1),
        "weights": rng.choice([1.0, 3.0], n),
    }
    if logits:
        columns["logits"] = z
    else:
        columns["probabilities"] = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return Batch.from_columns(columns, task=task).batch


def naive(batch: Batch, t0: float, t1: float) -> tuple[float, float]:
    """NLL and Brier, row by row."""
    z = batch.scores if batch.is_logits else np.log(batch.scores)
    nll = brier = total = 0.0
    weights = np.ones(batch.n) if batch.weights is None else batch.weights
    for row, counts, weight in zip(z, batch.label_counts, weights, strict=True):
        e = np.exp([row[0] / t0, row[1] / t1])
        p = e / e.sum()
        for class_index in (0, 1):
            nll -= weight * counts[class_index] * np.log(p[class_index])
            brier += weight * counts[class_index] * ((p - np.eye(2)[class_index]) ** 2).sum()
        total += weight * counts.sum()
    return nll / total, brier / total


class NaiveLosses:
    """Losses of raw rows by the formulas, class by class."""

    def __init__(self, batch: Batch, options: EceOptions, raters: str = "pooled") -> None:
        policy, batch_sums = policy_index(raters), BatchSums(batch)
        self.options, self.n_classes, self.n = options, batch.n_classes, batch_sums.n
        correct_ratings = batch_sums.correct_ratings
        self.mass = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
        self.right = np.zeros((batch_sums.n, batch.n_classes))
        self.right[correct_ratings.row, correct_ratings.class_index] = batch_sums.policy_weights[
            policy
        ]
        with np.errstate(divide="ignore"):
            scores = batch_sums.batch.scores
            # As sent: a temperature per class distinguishes logits that a common temperature does not.
            self.logit = (
                np.where(np.isfinite(relative_logits(scores, axis=1)), scores, -np.inf)
                if batch.is_logits
                else np.log(scores)
            )

    def at(self, temperatures: np.ndarray) -> Losses:
        """Return losses at one temperature per class, float64 (n_classes,)."""
        total = float(self.mass.sum())
        if not total:
            return Losses(np.nan, np.nan, np.nan)
        logit = self.logit / temperatures
        log_p = logit - logit.max(axis=1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
        p = np.exp(log_p)
        finite = np.isfinite(log_p)
        weight = float(self.right[finite].sum())
        nll = (
            -float((self.right * np.where(finite, log_p, 0.0)).sum()) / weight if weight else np.nan
        )
        squares = float((self.mass * (p**2).sum(axis=1)).sum())
        brier = (squares - 2.0 * float((self.right * p).sum()) + float(self.right.sum())) / total
        top = p.argmax(axis=1)
        rows = np.arange(self.n)
        return Losses(
            nll, brier, self.options.error(p[rows, top], self.mass, self.right[rows, top])
        )


@pytest.mark.parametrize("logits", [True, False])
def test_rows_equal_the_naive_version(logits: bool) -> None:
    batch = rows(1, 80, logits=logits)
    general = NaiveLosses(batch, EceOptions(10, 0))
    two = TwoClassLosses.of_batch(batch, EceOptions(10, 0))
    for t0, t1 in ((1.0, 1.0), (0.5, 3.0), (4.0, 0.25)):
        found, other = (each.at(np.array([t0, t1])) for each in (two, general))
        assert (found.nll, found.brier) == pytest.approx(naive(batch, t0, t1), rel=1e-9)
        assert (found.nll, found.brier, found.ece) == pytest.approx(
            (other.nll, other.brier, other.ece), rel=1e-9
        )


def test_impossible_ratings_stay_out_of_nll() -> None:
    p = np.array([[0.0, 1.0], [1.0, 0.0], [0.3, 0.7], [0.6, 0.4]])
    batch = Batch.from_columns(
        {"probabilities": p, "labels": [0, 0, 1, 1]}, task="segmentation"
    ).batch
    options = EceOptions(5, 0)
    both = TwoClassLosses.of_batch(batch, options), NaiveLosses(batch, options)
    found, other = (each.at(np.array([2.0, 0.5])) for each in both)
    assert found.nll == pytest.approx(other.nll)
    assert found.brier == pytest.approx(other.brier)


def surfaces(batch: Batch, raters: str = "pooled", points: int = 6) -> tuple[dict, dict]:
    """From state and from rows."""
    pane = Pane(PaneSpec(batch.task, 2))
    pane.fill_batch(batch)
    pane_query = PaneQuery(edges="left", raters=raters)
    given = (View(pane, pane_query), View(pane, pane_query, batch))
    return surface_report(given[0], points=points), surface_report(given[1], points=points)


@pytest.mark.parametrize("raters", ["pooled", "mean", "majority", "single"])
def test_cells_of_logits_are_within_their_bound_of_the_rows(raters: str) -> None:
    kept, raw = surfaces(rows(2, 3000), raters)
    assert (kept["source"], kept["n_used"], raw["source"]) == ("cells", 3000, "rows")
    off = np.abs(np.array(kept["nll"]) - np.array(raw["nll"]))
    bound, estimate = np.array(kept["nll_error_bound"]), kept["error_estimate"]
    assert (off <= bound + 1e-12).all()
    assert bound[2:, 2:].max() < 1e-3 and off[2:, 2:].max() < 2e-5
    for name, most in (("nll", 1e-3), ("brier", 5e-3), ("ece", 5e-2)):
        off = np.abs(np.array(kept[name]) - np.array(raw[name])).max()
        assert off <= estimate[name] < most, (name, off)
    assert raw["nll_error_bound"] is None and raw["error_estimate"] is None


def test_the_diagonal_of_cells_is_the_curve_of_one_temperature() -> None:
    """Two results of one window do not contradict each other at the same temperature."""
    batch = rows(7, 4000)
    pane = Pane(PaneSpec(batch.task, 2))
    pane.fill_batch(batch)
    found = surface_report(View(pane, PaneQuery(edges="left")), points=9)
    curve = Curve(pane["temperature"], 0, 15)  # type: ignore[arg-type]
    for i, temperature in enumerate(found["background"]):
        bound = found["nll_error_bound"][i][i]
        assert abs(found["nll"][i][i] - curve.nll(1.0 / temperature)) <= bound + 1e-7


def test_coarse_cells_keep_their_bound() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(0, 12, (9000, 2))
    y = (rng.random(9000) < 1 / (1 + np.exp((z[:, 0] - z[:, 1]) / 9))).astype(int)
    batch = Batch.from_columns({"logits": z, "labels": y}, task="multiclass", n_classes=2).batch
    kept, raw = surfaces(batch)
    assert kept["source"] == "cells"
    off = np.abs(np.array(kept["nll"]) - np.array(raw["nll"]))
    assert (off <= np.array(kept["nll_error_bound"]) + 1e-9).all() and off.max() > 1e-4


def test_masked_classes_stay_certain() -> None:
    batch = rows(4, 900)
    scores = batch.scores.copy()
    scores[:20, 0], scores[20:50, 1] = -1e9, -1e9
    columns = {"logits": scores, "label_counts": batch.label_counts}
    kept, raw = surfaces(Batch.from_columns(columns, task="segmentation").batch)
    for name in ("nll", "brier", "ece"):
        off = np.abs(np.array(kept[name]) - np.array(raw[name]))
        assert off.max() <= kept["error_estimate"][name] + 1e-12


@pytest.mark.parametrize("of_rows", [True, False])
def test_probabilities_have_no_surface(of_rows: bool) -> None:
    """With a temperature per class, log-probabilities are another model than logits."""
    batch = rows(2, 900, logits=False)
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(batch)
    pane.fill_batch(rows(3, 900))
    view = View(pane, PaneQuery(edges="left"), batch if of_rows else None)
    with pytest.raises(NoResultError, match="logits_not_kept"):
        surface_report(view)
    parts = pane_of_logits().parts()
    del parts["logits"]
    old = Pane.from_parts(PaneSpec("segmentation", 2), parts)
    with pytest.raises(NoResultError, match="older format"):
        surface_report(View(old, PaneQuery(edges="left")))


def pane_of_logits() -> Pane:
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(rows(5, 900))
    return pane


def test_a_kept_sample_of_logits_is_taken_as_it_was_sent() -> None:
    batch = rows(3, 150)
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(batch)
    found = surface_report(View(pane, PaneQuery()), points=4)
    assert (found["source"], found["n_used"], found["nll_error_bound"]) == ("sample", 150, None)
    raw = surface_report(View(pane, PaneQuery(), batch), points=4)
    for name in ("nll", "brier", "ece"):
        assert np.array(found[name]) == pytest.approx(np.array(raw[name]))


def test_the_lowest_point_is_the_grids() -> None:
    found = loss_surface(
        TwoClassLosses.of_batch(rows(4), EceOptions()),
        np.array([0.5, 1.0, 2.0]),
        np.array([1.0, 2.0, 4.0]),
    )
    values, lowest = np.array(found["nll"]), found["lowest"]["nll"]
    row, column = np.unravel_index(values.argmin(), values.shape)
    assert lowest == {
        "background": [0.5, 1.0, 2.0][column],
        "foreground": [1.0, 2.0, 4.0][row],
        "value": values.min(),
    }
    # The labels were drawn at twice the temperature.
    assert (lowest["background"], lowest["foreground"]) == (2.0, 2.0)


def test_other_classes_and_nothing_are_rejected() -> None:
    with pytest.raises(CalibrationInputError, match="two"):
        surface_report(View(Pane(PaneSpec("multiclass", 3)), PaneQuery()))
    with pytest.raises(NoResultError, match="no_data"):
        surface_report(View(Pane(PaneSpec("binary", 2)), PaneQuery()))


def test_one_case_alone() -> None:
    complete = rows(6, 400)
    columns = {
        "logits": complete.scores,
        "label_counts": complete.label_counts,
        "cases": [f"scan-{i % 2}" for i in range(400)],
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(batch)
    view = View(pane, PaneQuery(edges="left"))
    found = surface_report(view, points=4, case="scan-1")
    own = batch.take(np.arange(400) % 2 == 1)
    raw = surface_report(View(pane, PaneQuery(edges="left"), own), points=4)
    assert (found["source"], found["n_used"], found["case"]) == ("case", 200, "scan-1")
    off = np.abs(np.array(found["nll"]) - np.array(raw["nll"]))
    assert (off <= np.array(found["nll_error_bound"]) + 1e-12).all() and off.max() < 1e-4
    with pytest.raises(NoResultError, match="unknown_case"):
        surface_report(view, case="scan-7")
    probabilities = {"probabilities": np.full((2, 2), 0.5), "labels": [0, 1]}
    more = Batch.from_columns(probabilities | {"cases": ["scan-1", "scan-2"]}, task="segmentation")
    pane.fill_batch(more.batch)
    for case in ("scan-1", "scan-2"):
        with pytest.raises(NoResultError, match="logits_not_kept"):
            surface_report(View(pane, PaneQuery(edges="left")), case=case)
    assert surface_report(View(pane, PaneQuery(edges="left")), points=2, case="scan-0")["n_used"]
