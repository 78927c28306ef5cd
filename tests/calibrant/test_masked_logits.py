"""Logits of masked classes: a rating of one counts as impossible, as it would with the probabilities, and spoils no sum."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import fit
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.core.logits import MASKED, relative_logits
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.report import score_batch

SPEC = PaneSpec("multiclass", 3)
LOWEST = float(np.finfo(np.float32).min)


def columns(masked_by: float = LOWEST) -> dict:
    """Fifty plain rows, then six whose last class is masked; two of these are rated with it by one of two raters."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0.0, 2.0, (56, 3))
    shares = np.exp(logits[:, :2] / 2.0)
    labels = (rng.random((56, 2)) > (shares[:, :1] / shares.sum(axis=1, keepdims=True))).astype(int)
    logits[50:, 2] = masked_by
    labels[54:, 1] = 2
    return {
        "logits": logits.tolist(),
        "labels": labels.tolist(),
        "ids": [f"i{i}" for i in range(56)],
    }


def rows(first: int = 0, last: int = 56, masked_by: float = LOWEST) -> Batch:
    taken = {name: column[first:last] for name, column in columns(masked_by).items()}
    return Batch.from_columns(taken, task="multiclass").batch


def as_probabilities() -> Batch:
    z = np.array(columns()["logits"])
    p = np.exp(z - z.max(axis=1, keepdims=True))
    sent = columns() | {"probabilities": (p / p.sum(axis=1, keepdims=True)).tolist()}
    del sent["logits"]
    return Batch.from_columns(sent, task="multiclass").batch


def filled(*batches: Batch) -> Pane:
    pane = Pane(SPEC)
    for batch in batches:
        pane.fill_batch(batch)
    return pane


def test_relative_logits_by_hand() -> None:
    z = np.array([[0.0, -MASKED, 5.0], [LOWEST, 1.0, 1.0], [-MASKED, -MASKED, 0.0]])
    found = relative_logits(z, axis=1)
    assert found.tolist() == [[-5.0, -np.inf, 0.0], [-np.inf, 0.0, 0.0], [-MASKED, -MASKED, 0.0]]
    assert relative_logits(z.T.copy(), axis=0).T.tolist() == found.tolist()
    assert relative_logits(np.zeros((0, 3)), axis=1).shape == (0, 3)


@pytest.mark.parametrize("raters", ["pooled", "mean", "majority", "single"])
def test_masked_logits_answer_as_their_probabilities(raters: str) -> None:
    answers = []
    for batch in (rows(), as_probabilities()):
        view = View(filled(batch), PaneQuery(raters=raters))
        found = compute_metrics(view, ["nll", "brier", "ece"])
        fitted = fit_temperature(view.pane, raters=raters)
        once = score_batch(batch, {"raters": raters, "metrics": ["nll"]})
        answers.append(
            [
                *(
                    found["nll"].get("finite_value", found["nll"]["value"]),
                    found["brier"]["value"],
                    found["ece"]["value"],
                ),
                *(fitted["temperature"], fitted["n_zero_probability"], fitted["standard_error"]),
                *(once["temperature"]["temperature"], once["temperature"]["n_zero_probability"]),
            ]
        )
        if raters == "pooled":
            assert (found["nll"]["value"], found["nll"]["reason"]) == (None, "zero_probability")
            assert fitted["n_zero_probability"] == 2
    assert answers[0] == pytest.approx(answers[1], rel=1e-9)


def test_a_masked_rating_that_is_taken_back_leaves_the_sums_as_they_were() -> None:
    pane = filled(rows(0, 50))
    before = compute_metrics(View(pane, PaneQuery()), ["nll"])["nll"]["value"]
    temperature = fit_temperature(pane)["temperature"]
    pane.fill_batch(rows(50, 56))
    pane.subtract(filled(rows(50, 56)))
    assert compute_metrics(View(pane, PaneQuery()), ["nll"])["nll"]["value"] == pytest.approx(
        before, rel=1e-12
    )
    assert fit_temperature(pane)["temperature"] == pytest.approx(temperature, rel=1e-9)


def test_below_the_bound_a_logit_is_a_number_like_any_other() -> None:
    found = compute_metrics(View(filled(rows(masked_by=-1e5)), PaneQuery()), ["nll"])["nll"]
    assert found["value"] > 1e5 / 100 and found.get("reason") is None


@pytest.mark.parametrize("method", ["temperature", "vector", "dirichlet", "platt", "isotonic"])
def test_maps_are_fitted_to_the_rest(method: str) -> None:
    result = [
        fit(method, View(filled(batch), PaneQuery(scope="top_label")))
        for batch in (rows(), as_probabilities())
    ]
    for each in result:
        each.pop("digest")
    assert (result[0]["parameters"] is None) == (result[1]["parameters"] is None)
    if method == "temperature":
        assert result[0]["parameters"]["temperature"] == pytest.approx(
            result[1]["parameters"]["temperature"], rel=1e-6
        )
