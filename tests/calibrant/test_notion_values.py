"""The notions of calibration on examples that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant import Batch
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.estimators.kernel import BANDWIDTHS, log_likelihood, points_of
from calibrant.metrics.formula_metric import scored_cells
from calibrant.metrics.uce import inverse_binary_entropy
from tests.calibrant.notions import (
    asked,
    batch_of,
    pane_of,
    value,
)

TOY = Batch.from_columns(
    {
        "probabilities": [
            [0.78, 0.12, 0.1], [0.1, 0.64, 0.26], [0.04, 0.04, 0.92], [0.58, 0.3, 0.12], [0.05, 0.51, 0.44],
            [0.85, 0.15, 0], [0.22, 0.7, 0.08], [0.63, 0.34, 0.03], [0.02, 0.15, 0.83],
        ],
        "labels": [0, 1, 1, 0, 0, 0, 1, 2, 2],
    }
).batch  # fmt: skip


@pytest.mark.parametrize(
    ("slug", "number"),
    [
        ("ks", 0.08),
        ("kuiper", 1.2 / 9),
        ("macro_ce", (0.27 + 2.06 / 3) / 2),
        ("ece_sweep", 0.44 / 9),
    ],
)
def test_the_nine_samples_of_the_toy_example(slug: str, number: float) -> None:
    assert value(TOY, slug) == pytest.approx(number, abs=1e-12)


def test_ece_of_the_toy_example_in_three_conventions() -> None:
    assert value(TOY, "ece", pane_query=PaneQuery(bins=5)) == pytest.approx(0.94 / 9, abs=1e-12)
    assert value(TOY, "ece", pane_query=PaneQuery(bins=10)) == pytest.approx(1.58 / 9, abs=1e-12)
    left = PaneQuery(bins=10, edges="left")
    assert value(TOY, "ece", pane_query=left) == pytest.approx(2.12 / 9, abs=1e-12)


def test_ten_outcomes_among_two_hundred_thousand() -> None:
    rng = np.random.default_rng(57)
    scores = np.append(rng.beta(0.1, 2000.0, 199_990), rng.beta(2.0, 6.0, 10))
    outcomes = np.repeat([0, 1], [199_990, 10])
    places = np.clip(np.ceil(scores * 15) - 1, 0, 14).astype(int)
    gaps = [(scores - outcomes)[places == each].sum() for each in range(15)]
    expected = np.abs(gaps).sum() / 200_000
    assert cal.ece(scores, outcomes).value == pytest.approx(expected, abs=1e-15)
    assert expected < 2e-4


def test_a_constant_majority_predictor_looks_calibrated() -> None:
    columns = {"probabilities": [[0.7, 0.2, 0.1]] * 10, "labels": [0] * 7 + [1] * 2 + [2]}
    batch = Batch.from_columns(columns).batch
    for slug in (
        "ece",
        "ks",
        "kuiper",
        "smooth_ece",
        "ece_sweep",
        "corp_miscalibration",
        "corp_discrimination",
    ):
        assert value(batch, slug) == pytest.approx(0.0, abs=1e-12), slug
    assert value(batch, "macro_ce") == pytest.approx(0.5, abs=1e-12)


def test_scores_of_exactly_one_keep_their_full_weight() -> None:
    scores = np.repeat([1.0, 0.5], 500)
    labels = np.concatenate([np.repeat([1, 0], [300, 200]), np.tile([0, 1], 250)])
    batch = Batch.from_columns({"confidences": scores, "labels": labels}).batch
    for raw in (True, False):
        assert value(batch, "smooth_ece", raw) == pytest.approx(0.2, abs=1e-8)


def test_distributions_of_equal_entropy_and_order() -> None:
    columns = {
        "probabilities": [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1]],
        "label_counts": [[7, 2, 1], [7, 2, 1]],
    }
    found = asked(Batch.from_columns(columns).batch, ("ent_ce", "dist_ce", "rank_cs"))
    assert found["ent_ce"]["value"] == pytest.approx(0.0, abs=1e-12)
    assert found["dist_ce"]["value"] == pytest.approx(0.25, abs=1e-12)
    assert found["rank_cs"]["value"] == found["rank_cs"]["strict_pairs"] == 0.5


def test_tied_ratings_spoil_the_printed_order_only() -> None:
    columns = {"probabilities": [[0.3, 0.1, 0.6]], "label_counts": [[0, 0, 4]]}
    found = asked(Batch.from_columns(columns).batch, "rank_cs")["rank_cs"]
    assert (found["value"], found["strict_pairs"], found["untied_fraction"]) == (0.0, 1.0, 0.0)


def test_underconfidence_is_significant_too() -> None:
    z = np.full(400, 0.6)
    batch = Batch.from_columns({"confidences": z, "labels": [1] * 330 + [0] * 70}).batch
    found = asked(batch, "spiegelhalter_z")["spiegelhalter_z"]
    assert found["value"] < -5 and found["p_value"] < 1e-6 and found["sides"] == 2


def test_the_ideal_curve_of_two_classes_inverts_the_entropy() -> None:
    error = np.linspace(0.0, 0.5, 11)[1:]
    entropy = -(error * np.log2(error) + (1 - error) * np.log2(1 - error))
    np.testing.assert_allclose(inverse_binary_entropy(entropy), error, atol=1e-12)
    batch = batch_of(1, n_classes=2)
    assert len(asked(batch, "uce")["uce"]["ideal_error"]) == len(
        asked(batch, "uce")["uce"]["table"]["bin"]
    )


def test_the_likeliest_bandwidth_is_the_best_on_offer() -> None:
    rng = np.random.default_rng(0)
    z = rng.beta(2, 2, 300)
    batch = Batch.from_columns(
        {"confidences": z, "labels": (rng.random(300) < z).astype(int)}
    ).batch
    found = asked(batch, "kde_ece", selection="likelihood")["kde_ece"]
    points = points_of(scored_cells(View(pane_of(batch), PaneQuery(), batch)), "label", False)
    best = max(BANDWIDTHS, key=lambda b: log_likelihood(points, b))
    assert (found["bandwidth"], found["bandwidth_at_bound"]) == (best, False)
