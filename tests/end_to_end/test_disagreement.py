"""Disagreement and posteriors over HTTP against the library on the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.raters import posterior
from calibrant.raters.disagreement_report import disagreement_report


@pytest.fixture(scope="module")
def voted(embedded):
    """Six hundred predictions with two to six votes each, in three batches."""
    rng = np.random.default_rng(11)
    p = rng.dirichlet(np.full(3, 0.7), 600)
    zeta = np.stack([rng.dirichlet(np.maximum(4.0 * row, 1e-3)) for row in p])
    ratings = np.stack([rng.multinomial(rng.integers(2, 7), row) for row in zeta])
    for part in np.array_split(np.arange(600), 3):
        body = {"probabilities": p[part].tolist(), "label_counts": ratings[part].tolist()}
        embedded.post("/v1/models/voted/predictions", body)
    return embedded, p, ratings


def test_the_answer_is_the_librarys(voted):
    deployment, p, ratings = voted
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(Batch.from_columns({"probabilities": p, "label_counts": ratings}).batch)
    view = View(pane, PaneQuery(bins=12, options={"loss_weight": "n", "penalty": 0.0}))
    expected = disagreement_report(view)
    found = deployment.get("/v1/models/voted/disagreement", bins=12, loss_weight="n", penalty=0)
    for name in (
        "n",
        "rater_disagreement",
        "disagreement_loss",
        "disagreement_ce",
        "epistemic_loss",
    ):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)
    assert found["concentration"]["value"] == pytest.approx(
        expected["concentration"]["value"], rel=1e-9
    )
    assert 2 < found["concentration"]["value"] < 8 and found["reason"] is None
    assert len(found["reliability"]) == 12


def test_the_posterior_uses_the_fitted_concentration(voted):
    deployment, p, ratings = voted
    fitted = deployment.get("/v1/models/voted/disagreement")["concentration"]["value"]
    body = {"probabilities": p[:50].tolist(), "label_counts": ratings[:50].tolist()}
    answer = deployment.client.post("/v1/models/voted/posterior", json=body)
    assert answer.status_code == 200, answer.text
    expected = posterior.after_ratings(p[:50], ratings[:50], fitted)
    np.testing.assert_allclose(answer.json()["probabilities"], expected.probabilities, rtol=1e-12)


def test_ways_of_calibration_are_compared_on_the_kept_sample(voted):
    deployment = voted[0]
    found = deployment.get("/v1/models/voted/disagreement", compare="true")["calibrations"]
    assert found["sample"]["n_drawn_from"] == 600
    assert found["n_fit"] + found["n_validation"] == found["sample"]["n"] > 200
    assert found["best"] in found["methods"] and found["reason"] is None
    assert (
        found["methods"][found["best"]]["disagreement_loss"]
        < found["methods"]["raw"]["disagreement_loss"]
    )
    assert set(found["methods"]) == {
        "raw",
        "alpha",
        "temperature",
        "temperature_alpha",
        "joint",
        "head",
    }


def test_one_vote_a_prediction_is_no_disagreement(embedded):
    body = {"probabilities": [[0.5, 0.5]] * 3, "labels": [0, 1, 0]}
    embedded.post("/v1/models/single/predictions", body)
    found = embedded.get("/v1/models/single/disagreement")
    assert (found["rater_disagreement"], found["reason"], found["n"]) == (None, "one_vote", 0)
    answer = embedded.client.get("/v1/models/single/disagreement", params={"bins": 7})
    assert answer.status_code in (200, 422)
    assert embedded.client.get("/v1/models/single/disagreement?penalty=-1").status_code == 422
    compared = embedded.get("/v1/models/single/disagreement", compare="true")["calibrations"]
    assert (compared["best"], compared["reason"]) == (None, "one_vote")
