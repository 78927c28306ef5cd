"""Bounds between stored state and raw rows, and what notions of calibration report; laws of all metrics: `test_metric_laws`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import METRICS
from calibrant.metrics.formula_metric import FormulaMetric
from tests.calibrant import notions_reference as naive
from tests.calibrant.notions import (
    ERRORS,
    OURS,
    asked,
    batch_of,
    pane_of,
    policies,
    readings,
    value,
)
from tests.calibrant.reference import POLICIES, rows_of


@policies
def test_kept_state_lies_within_its_bound_of_raw_rows(raters: str) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        z = rng.dirichlet(np.full(3, 0.3), 300)
        counts = rng.multinomial(rng.integers(1, 4, 300), z**1.4 / (z**1.4).sum(1, keepdims=True))
        batch = Batch.from_columns({"probabilities": z, "label_counts": counts}).batch
        pane_query = PaneQuery(raters=raters, bins=8)
        raw, kept = (
            readings(batch, OURS, True, pane_query),
            readings(batch, OURS, False, pane_query),
        )
        for slug in OURS:
            if raw[slug]["value"] is None or kept[slug].get("error_bound", 0.0) is None:
                continue
            if slug == "ece_sweep" and raw[slug]["bins_chosen"] != kept[slug]["bins_chosen"]:
                continue
            bound = kept[slug].get("error_bound", 0.0) + 1e-9
            assert abs(raw[slug]["value"] - kept[slug]["value"]) <= bound, (slug, seed)


@pytest.mark.parametrize("kind", ["brier", "log"])
def test_parts_of_the_score_lie_within_their_bounds(kind: str) -> None:
    rng = np.random.default_rng(5)
    z = rng.random(4000)
    batch = Batch.from_columns(
        {"confidences": z, "labels": (rng.random(4000) < z**2).astype(int)}
    ).batch
    slugs = ("corp_miscalibration", "corp_discrimination", "corp_uncertainty")
    raw, kept = asked(batch, slugs, True, score=kind), asked(batch, slugs, False, score=kind)
    for slug in slugs:
        bound = kept[slug].get("error_bound", 0.0)
        assert abs(raw[slug]["value"] - kept[slug]["value"]) <= bound + 1e-12
        assert bound < 0.01


def test_doubling_every_vote_changes_no_kernel_error_that_leaves_predictions_out() -> None:
    batch = batch_of(13)
    columns = {"probabilities": batch.probabilities, "weights": batch.weights}
    double = Batch.from_columns(columns | {"label_counts": 2 * batch.label_counts}).batch
    once = value(batch, "kde_ece", leave="instance")
    assert value(double, "kde_ece", leave="instance") == pytest.approx(once, abs=1e-9)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("n", [1, 2, 200])
def test_every_answer_is_json_in_range(raw: bool, n: int) -> None:
    for raters in POLICIES:
        batch = batch_of(15, n=n)
        answers = asked(batch, OURS, raw, PaneQuery(raters=raters))
        for slug, answer in answers.items():
            json.dumps(answer, allow_nan=False)
            low, high = METRICS[slug].range
            if answer["value"] is None:
                assert answer["reason"]
                continue
            assert low is None or answer["value"] >= low
            assert high is None or answer["value"] <= high + 1e-12
            assert answer["interval"] is not None or answer["interval_reason"]
            assert answer["null_mean"] is not None or answer["null_reason"]


def test_intervals_hold_their_value_and_null_references_repeat() -> None:
    batch = batch_of(16, n=400, weights=False)
    first, again = asked(batch, OURS, False), asked(batch, OURS, False)
    assert first == again
    with_interval = [a for a in first.values() if a["interval"] is not None]
    assert len(with_interval) >= 13
    without = {
        slug: answer["interval_reason"]
        for slug, answer in first.items()
        if answer["interval"] is None
    }
    assert without == {
        "canonical_ce": "estimator_not_replicated",
        "hosmer_lemeshow": "test_statistic",
        "ici": "estimator_not_replicated",
        "l2_ece_squared": "independent_labels_only",
        "nixon_ace": "equal_mass_not_replicated",
        "rater_statistic": "not_replicated",
        "spiegelhalter_z": "test_statistic",
        "tace": "equal_mass_not_replicated",
        "uce": "uncertainty_not_replicated",
        "zhang_kde_ece": "estimator_not_replicated",
    }
    for answer in with_interval:
        assert answer["interval"][0] <= answer["value"]
        assert answer["value"] <= answer["interval"][1] or "above" in answer["interval_of"]


def test_the_log_score_has_no_interval_of_its_miscalibration() -> None:
    batch = batch_of(16, n=400)
    found = asked(batch, "corp_miscalibration", False, score="log")["corp_miscalibration"]
    assert found["value"] is not None
    assert (found["interval"], found["interval_reason"]) == (None, "log_score_not_covered")
    assert asked(batch, "corp_miscalibration", False)["corp_miscalibration"]["interval"] is not None


def test_a_calibrated_model_lies_within_its_null_reference() -> None:
    rng = np.random.default_rng(17)
    outside: dict[str, int] = {}
    slugs = [s for s in OURS if s in ERRORS and asked(batch_of(1), s)[s]["null_q95"] is not None]
    assert len(slugs) >= 9
    for _ in range(20):
        z = rng.dirichlet(np.ones(3), 500)
        labels = [int(rng.choice(3, p=row)) for row in z]
        batch = Batch.from_columns({"probabilities": z, "labels": labels}).batch
        view = View(pane_of(batch), PaneQuery())
        for slug in slugs:
            metric = METRICS[slug]
            assert isinstance(metric, FormulaMetric) and metric.null is not None
            reading = metric.read(view)
            assert reading is not None
            outside[slug] = outside.get(slug, 0) + (
                reading.value > metric.null(view, reading, 0)[1]
            )
    # One in twenty is expected; six or more of twenty has a chance of 3e-4.
    assert max(outside.values()) <= 5, outside


def test_state_of_many_predictions_is_answered_from_few_points() -> None:
    rng = np.random.default_rng(18)
    z = rng.beta(0.7, 0.7, 60_000)
    batch = Batch.from_columns(
        {"confidences": z, "labels": (rng.random(60_000) < z**1.2).astype(int)}
    ).batch
    kept, raw = asked(batch, "kde_ece", False)["kde_ece"], asked(batch, "kde_ece", True)["kde_ece"]
    assert kept["n_points"] <= 1500 and raw["n_points"] <= 1500
    assert abs(kept["value"] - raw["value"]) <= kept["error_bound"] + raw["error_bound"]
    assert kept["value"] == pytest.approx(raw["value"], rel=1e-3)


def test_instances_on_request_are_in_the_order_of_the_rows() -> None:
    batch = batch_of(19, n=12)
    found = asked(batch, ("ent_ce", "dist_ce"), instances="yes")
    for i, row in enumerate(rows_of(batch)):
        alone = naive.against_votes([row])
        assert found["dist_ce"]["instances"][i] == pytest.approx(alone["dist_ce"], abs=1e-12)
        assert found["ent_ce"]["instances"][i] == pytest.approx(alone["mean_signed"], abs=1e-12)
    assert asked(batch, "ent_ce", False, instances="yes")["ent_ce"]["reason"] == "needs_rows"


@pytest.mark.parametrize("n_classes", [2, 3, 8, 10, 40])
@pytest.mark.parametrize("logits", [False, True])
def test_a_row_falls_into_the_same_cells_alone_and_in_a_batch(n_classes: int, logits: bool) -> None:
    rng = np.random.default_rng(n_classes)
    z = (
        rng.multinomial(8, np.full(n_classes, 1 / n_classes), 60) / 8
    )  # equal entropies, distances on edges
    columns: dict[str, Any] = {
        "label_counts": rng.multinomial(4, np.full(n_classes, 1 / n_classes), 60)
    }
    columns |= {"logits": np.log(z + 1e-3)} if logits else {"probabilities": np.asfortranarray(z)}
    batch = Batch.from_columns(columns).batch
    complete, single = pane_of(batch), Pane(PaneSpec("multiclass", n_classes))
    for row in range(60):
        single.fill_batch(batch.take(np.array([row])))
    for name in ("uncertainty", "label_distribution"):
        for key, block in complete[name].blocks.items():
            np.testing.assert_array_equal(block.counts, single[name].blocks[key].counts)
    complete.subtract(single)
    assert complete["uncertainty"].is_empty and complete["label_distribution"].is_empty


def test_quantiles_and_histogram_of_the_distance() -> None:
    batch = batch_of(21, n=300, weights=False)
    found = asked(batch, "dist_ce", instances="yes")["dist_ce"]
    values = np.sort(found["instances"])
    for level, quantile in found["quantiles"].items():
        assert (
            abs(quantile - np.quantile(values, float(level))) <= 2 * found["quantile_error_bound"]
        )
    assert sum(found["histogram"]["weight"]) == 300


def hostile_cells(seed: int, kind: str) -> Batch:
    """Scores in few cells of the grid, hits where they do most: at the upper or the lower end of each cell."""
    rng = np.random.default_rng(seed)
    near_one = 1.0 - 0.02 * rng.random(400) ** 4
    z = {"ends": near_one, "middle": 0.6 + 0.01 * rng.random(400), "wide": rng.random(400)}[kind]
    cell = np.floor(z * 3600)
    hit = np.zeros(400, int)
    for each in np.unique(cell):
        i = np.flatnonzero(cell == each)
        i = i[np.argsort(z[i])]
        up = rng.random() < 0.5 if kind == "wide" else seed % 2
        hit[i[len(i) // 3 :] if up else i[: 2 * len(i) // 3]] = 1
    return Batch.from_columns(
        {"confidences": z, "label_counts": np.stack([1 - hit, hit], axis=1)}
    ).batch


@pytest.mark.parametrize("kind", ["ends", "middle", "wide"])
@pytest.mark.parametrize("raters", ["pooled", "mean"])
@pytest.mark.parametrize("bandwidth", [0.005, 0.02, 0.2])
def test_the_kernel_errors_bound_holds_for_hostile_rows(
    kind: str, raters: str, bandwidth: float
) -> None:
    for seed in (0, 1):
        batch = hostile_cells(seed, kind)
        pane_query = PaneQuery(raters=raters)
        raw = value(batch, "kde_ece", True, pane_query, bandwidth=bandwidth)
        kept = asked(batch, "kde_ece", False, pane_query, bandwidth=bandwidth)["kde_ece"]
        assert abs(kept["value"] - raw) <= kept["error_bound"], (kind, seed)
        if bandwidth == 0.2:
            assert kept["error_bound"] < 0.02


def test_the_kernel_error_has_no_bound_where_what_is_left_out_is_not_known() -> None:
    batch = batch_of(3, weights=False)
    assert asked(batch, "kde_ece", False)["kde_ece"]["error_bound"] is not None
    assert asked(batch, "kde_ece", False, leave="instance")["kde_ece"]["error_bound"] is None
    found = asked(batch_of(3), "kde_ece", False)["kde_ece"]
    assert (found["error_bound"], found["error_bound_reason"]) == (None, "left_out_not_known")


def test_where_cells_give_no_bound_the_reason_is_reported() -> None:
    rng = np.random.default_rng(22)
    piled = np.where(rng.random(600) < 0.9, 1.0 - 1e-5 * rng.random(600), rng.random(600))
    batch = Batch.from_columns(
        {"confidences": piled, "labels": (rng.random(600) < 0.9).astype(int)}
    ).batch
    found = asked(
        batch, ("hosmer_lemeshow", "spiegelhalter_z", "corp_miscalibration"), False, score="log"
    )
    result = {
        slug: (each["error_bound"], each.get("error_bound_reason")) for slug, each in found.items()
    }
    assert result["hosmer_lemeshow"] == (None, "cuts_not_told_by_cells")
    for slug, (bound, why) in result.items():
        assert (bound is None) == (why is not None), slug
