"""Losses over two temperatures: rows against a naive softmax, cells and sample, the diagonal, the lowest point."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.calibrators.temperature.losses import EceOptions, RowLosses, TwoClassLosses
from calibrant.calibrators.temperature.report import surface_answer
from calibrant.calibrators.temperature.surface import loss_surface
from calibrant.core.query import PaneQuery
from calibrant.core.view import NotAnswerable, View


def rows(seed: int, n: int = 300, *, logits: bool = True, task: str = "segmentation") -> Batch:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, 2)) + rng.normal(0, 1, (n, 1))
    chance = 1 / (1 + np.exp((z[:, 0] - z[:, 1]) / 2))
    votes = rng.binomial(2, chance)
    columns = {
        "label_counts": np.stack([2 - votes, votes], axis=1),
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
        for klass in (0, 1):
            nll -= weight * counts[klass] * np.log(p[klass])
            brier += weight * counts[klass] * ((p - np.eye(2)[klass]) ** 2).sum()
        total += weight * counts.sum()
    return nll / total, brier / total


@pytest.mark.parametrize("logits", [True, False])
def test_rows_equal_the_naive_version(logits: bool) -> None:
    batch = rows(1, 80, logits=logits)
    general = RowLosses(batch, EceOptions(10, 0))
    two = TwoClassLosses.of_rows(general)
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
    general = RowLosses(batch, EceOptions(5, 0))
    found, other = (
        each.at(np.array([2.0, 0.5])) for each in (TwoClassLosses.of_rows(general), general)
    )
    assert found.nll == pytest.approx(other.nll)
    assert found.brier == pytest.approx(other.brier)


@pytest.mark.parametrize("task", ["segmentation", "binary"])
def test_cells_are_near_the_rows(task: str) -> None:
    if task == "binary":
        whole = rows(2, 2000, logits=False)
        columns = {"confidences": whole.probabilities[:, 1], "label_counts": whole.label_counts}
        batch = Batch.from_columns(columns, task="binary").batch
    else:
        batch = rows(2, 2000, logits=False)
    pane = Pane(PaneSpec(task, 2))
    pane.fill_batch(batch)
    kept = surface_answer(View(pane, PaneQuery(edges="left")), points=6)
    raw = surface_answer(View(pane, PaneQuery(edges="left"), batch), points=6)
    assert (kept["source"], raw["source"], kept["logits"]) == ("cells", "rows", "log_probabilities")
    assert np.array(kept["nll"]) == pytest.approx(np.array(raw["nll"]), rel=5e-3)
    assert np.array(kept["brier"]) == pytest.approx(np.array(raw["brier"]), abs=5e-3)
    assert np.diag(np.array(raw["nll"]))[0] == pytest.approx(naive(batch, 0.25, 0.25)[0], rel=1e-9)


def test_a_kept_sample_of_logits_is_taken_as_it_was_sent() -> None:
    batch = rows(3, 150)
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(batch)
    found = surface_answer(View(pane, PaneQuery()), points=4)
    assert (found["source"], found["logits"], found["n_used"]) == ("sample", "sent", 150)
    raw = surface_answer(View(pane, PaneQuery(), batch), points=4)
    for name in ("nll", "brier", "ece"):
        assert np.array(found[name]) == pytest.approx(np.array(raw[name]))


def test_the_lowest_point_is_the_grids() -> None:
    found = loss_surface(
        RowLosses(rows(4), EceOptions()), np.array([0.5, 1.0, 2.0]), np.array([1.0, 2.0, 4.0])
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
        surface_answer(View(Pane(PaneSpec("multiclass", 3)), PaneQuery()))
    with pytest.raises(NotAnswerable, match="no_data"):
        surface_answer(View(Pane(PaneSpec("binary", 2)), PaneQuery()))


def test_one_case_alone() -> None:
    whole = rows(6, 400, logits=False)
    names = [f"scan-{i % 2}" for i in range(400)]
    columns = {
        "probabilities": whole.probabilities,
        "label_counts": whole.label_counts,
        "cases": names,
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(batch)
    view = View(pane, PaneQuery(edges="left"))
    found = surface_answer(view, points=4, case="scan-1")
    own = batch.take(np.arange(400) % 2 == 1)
    raw = surface_answer(View(pane, PaneQuery(edges="left"), own), points=4)
    assert (found["source"], found["n_used"]) == ("case", own.label_counts.sum())
    assert np.array(found["nll"]) == pytest.approx(np.array(raw["nll"]), rel=1e-2)
    with pytest.raises(NotAnswerable, match="unknown_case"):
        surface_answer(view, case="scan-7")
