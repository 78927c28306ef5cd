"""What is recommended: the simplest change that is not beaten on labels it was not fitted to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax
from sklearn.metrics import roc_auc_score

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import apply, candidate_comparison, fit
from calibrant.calibrators.candidate_comparison import CandidateComparison, recommend
from calibrant.calibrators.candidates import candidates_of
from calibrant.calibrators.temperature.curve import Curve
from calibrant.calibrators.temperature.fit import fit_temperature, fit_temperature_exact
from calibrant.calibrators.temperature.held_out_gain import left_out_gain
from calibrant.core.actions import map_method
from calibrant.core.batch_sums import BatchSums
from calibrant.core.query import PaneQuery, policy_index
from calibrant.core.view import View

CHANGES = {
    "none": lambda x: x,
    "temperature": lambda x: x / 2.5,
    "slope_intercept": lambda x: x * np.array([0.3, 0.7, 1.4]) + np.array([0.9, 0.0, -0.9]),
}


def batch_of(change: str, n: int = 2000, seed: int = 0, n_classes: int = 3) -> Batch:
    """Rows whose labels were drawn from a change of them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)) * 2
    p = softmax(CHANGES[change](np.log(softmax(z, axis=1))), axis=1)
    labels = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    ids = [f"{seed}.{i}" for i in range(n)]
    return Batch.from_columns({"logits": z, "labels": labels, "ids": ids}).batch


def view_of(batch: Batch, *, raw: bool = True, **pane_query: object) -> View:
    pane = Pane.for_window(PaneSpec(batch.task, batch.n_classes))
    for part in np.array_split(np.arange(batch.n), 12):
        one = Pane(pane.spec)
        one.fill_batch(batch.take(part))
        pane.merge(one)
    return View(pane, PaneQuery(**pane_query), batch if raw else None)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("raw", [True, False])
def test_the_change_that_made_the_labels_is_recommended(change: str, raw: bool) -> None:
    found = recommend(view_of(batch_of(change), raw=raw))
    assert found["recommendation"]["action"] == change, found
    evidence = found["recommendation"]["evidence"]
    json.dumps(found, allow_nan=False)
    assert evidence["loss"] == "nll" and set(evidence["candidates"]) == set(CHANGES)
    assert evidence["brier_scale"] == "sum over classes"
    assert evidence["candidates"][change]["beaten_by"] == []
    assert (evidence["sample"] is None) == raw
    if not raw:
        assert evidence["n"] == evidence["sample"]["n"] == 2000


def test_calibrated_rows_are_mostly_left_alone() -> None:
    """Two candidates at 2.5 % each: rarely is a map recommended where nothing is wrong."""
    found = [
        recommend(view_of(batch_of("none", 400, seed)))["recommendation"]["action"]
        for seed in range(40)
    ]
    assert found.count("none") + found.count("collect_more") >= 36


def test_a_recommendation_needs_units_and_labels() -> None:
    batch = batch_of("temperature", 15)
    assert recommend(view_of(batch))["recommendation"]["evidence"]["cause"] == "few_units"
    one = Batch.from_columns(
        {"logits": batch.scores, "labels": [0] * 15, "units": ["u"] * 15}
    ).batch
    assert recommend(view_of(one))["recommendation"]["evidence"]["cause"] == "few_units"
    nothing = Batch.from_columns({"logits": batch.scores}).batch
    assert recommend(view_of(nothing))["recommendation"]["evidence"]["cause"] == "no_labels"


def test_ratings_at_probability_zero_are_judged_by_brier() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 600)
    p[:300, 2] = 0.0
    p /= p.sum(axis=1, keepdims=True)
    found = recommend(
        view_of(Batch.from_columns({"probabilities": p, "labels": rng.integers(0, 3, 600)}).batch)
    )
    assert found["recommendation"]["evidence"]["loss"] == "brier"
    assert found["recommendation"]["evidence"]["cause"] == "zero_probability"
    json.dumps(found, allow_nan=False)


def test_candidates_that_cannot_be_fitted_say_why() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 300)
    found = recommend(
        view_of(Batch.from_columns({"probabilities": p, "labels": rng.integers(0, 2, 300)}).batch)
    )
    candidates = found["recommendation"]["evidence"]["candidates"]
    assert set(candidates["slope_intercept"]) > {"nll", "gain"}  # the class keeps the temperature
    assert found["recommendation"]["action"] in ("none", "temperature")


@pytest.mark.parametrize("objective", ["nll", "brier", "ece"])
@pytest.mark.parametrize("raw", [True, False])
def test_the_held_out_gain_of_a_temperature_covers_what_fresh_labels_show(
    objective: str, raw: bool
) -> None:
    batch, fresh = batch_of("temperature", 2000, 1), batch_of("temperature", 40_000, 2)
    found = CandidateComparison(view_of(batch, raw=raw)).held_out_temperature(objective)["heldout"]
    if objective == "nll":
        assert found["fitted_to"] == "window" and found["n"] == 2000
        found = found["halves"]
    assert found["fitted_to"] == "half_of_rows"
    chosen = fit_temperature_exact(batch, objective=objective)["temperature"]
    p, q = (softmax(fresh.scores / t, axis=1) for t in (1.0, chosen))
    true = np.arange(fresh.n), fresh.ratings.class_index
    gains = {
        "nll": np.mean(np.log(q[true]) - np.log(p[true])),
        "brier": np.mean((p**2).sum(axis=1) - 2 * p[true] - (q**2).sum(axis=1) + 2 * q[true]),
    }
    for loss, gain in gains.items():
        low, high = found["gain"][loss]["interval"]
        assert low < gain < high
    assert found["gain"]["ece"]["value"] > 0.1


@pytest.mark.parametrize("objective", ["nll", "brier", "ece"])
@pytest.mark.parametrize("raters", ["pooled", "mean", "majority", "single"])
def test_a_complete_sample_gives_the_temperature_of_the_raw_rows(
    objective: str, raters: str
) -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(size=(300, 4)) * 3
    labels = [rng.choice(4, rng.integers(1, 4), p=row).tolist() for row in softmax(z / 2, axis=1)]
    batch = Batch.from_columns(
        {"logits": z, "labels": labels, "units": [f"u{i // 2}" for i in range(300)]}
    ).batch
    pane = Pane(PaneSpec("multiclass", 4))
    pane.fill_batch(batch)
    kept = fit_temperature(pane, objective=objective, raters=raters, rows_if_complete=True)
    exact = fit_temperature_exact(batch, objective=objective, raters=raters)
    assert kept["method"] == "sample" and kept["n_units"] == 150
    assert kept["temperature"] == pytest.approx(exact["temperature"], rel=1e-8)
    if objective != "ece":
        assert kept["standard_error"] == pytest.approx(exact["standard_error"], rel=1e-8)
    assert kept["after"] == pytest.approx(exact["after"], rel=1e-8)
    pane.merge(pane)
    assert fit_temperature(pane, rows_if_complete=True)["method"] == "profile"


@pytest.mark.parametrize("is_binary", [True, False])
def test_candidates_are_the_maps_that_the_request_freezes(is_binary: bool) -> None:
    """Each half is mapped by what `fit` returns for the other half's rows."""
    batch = binary_rows(900, 3, 0.5) if is_binary else batch_of("slope_intercept", 900)
    view = view_of(batch)
    comparison = CandidateComparison(view)
    rows = comparison.rows
    for action in candidates_of(is_binary):
        method = map_method(action, is_binary)
        mapped = comparison.mapped[action]
        for side in (0, 1):
            mine = np.flatnonzero(rows.half == side)
            other = batch.take(rows.place[rows.half != side])
            fitted = fit(str(method), view_of(other), evaluate=False)
            expected = apply(fitted, batch.take(rows.place[mine]))
            given = mapped[mine, 1] if expected.ndim == 1 else mapped[mine]
            assert np.abs(given - expected).max() < 1e-7


def binary_rows(n: int, seed: int, slope: float = 1.0) -> Batch:
    """Scores whose labels have the log odds `slope` times theirs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) * 1.5
    labels = (rng.random(n) < expit(slope * x)).astype(int)
    ids = [f"{seed}.{i}" for i in range(n)]
    return Batch.from_columns({"confidences": expit(x), "labels": labels, "ids": ids}).batch


def recommended(batch: Batch) -> dict[str, Any]:
    found: dict[str, Any] = recommend(view_of(batch))["recommendation"]
    json.dumps(found, allow_nan=False)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_local_bump_needs_a_flexible_map(seed: int) -> None:
    """No slope and intercept corrects a bump; the isotonic map is nearer to the truth than the probabilities as sent."""
    rng = np.random.default_rng([8, seed])
    p = rng.beta(1.5, 2.5, 4000)
    true = np.where(np.abs(p - 0.5) < 0.12, 0.95 * p + 0.35, p)
    labels = (rng.random(4000) < true).astype(int)
    columns = {"confidences": p, "labels": labels, "ids": [f"i{i}" for i in range(4000)]}
    batch = Batch.from_columns(columns).batch
    assert recommended(batch)["action"] == "flexible"
    mapped = apply(fit("isotonic", view_of(batch), evaluate=False), batch)
    assert np.abs(mapped - true).mean() < 0.7 * np.abs(p - true).mean()


@pytest.mark.parametrize("seed", range(6))
def test_inversely_related_scores_are_not_called_unrelated(seed: int) -> None:
    rng = np.random.default_rng([9, seed])
    p = rng.beta(1.5, 2.5, 1000)
    labels = (rng.random(1000) > p).astype(int)
    found = recommended(Batch.from_columns({"confidences": p, "labels": labels}).batch)
    assert found["action"] is None
    assert "Check that class 1 is what the scores are of" in found["reason"]
    assert found["evidence"]["information"]["interval"][1] < 0.5
    score = roc_auc_score(labels, p)
    assert found["evidence"]["information"]["value"] == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_scores_without_information_need_no_map(seed: int, n_classes: int) -> None:
    rng = np.random.default_rng([10, seed])
    p, labels = rng.dirichlet(np.full(n_classes, 0.5), 1000), rng.integers(0, n_classes, 1000)
    scores = {"confidences": p[:, 1]} if n_classes == 2 else {"probabilities": p}
    found = recommended(Batch.from_columns(scores | {"labels": labels}).batch)
    assert found["action"] == "none"
    assert "carry no information about these labels" in found["reason"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [25, 60])
def test_few_labels_are_no_evidence_that_nothing_is_wrong(n: int, seed: int) -> None:
    found = recommended(binary_rows(n, seed, 0.4))
    assert found["action"] == "collect_more"
    assert f"{n} units do not exclude a useful gain" in found["reason"]


def test_none_is_said_once_a_useful_gain_is_excluded() -> None:
    found = [recommended(binary_rows(3000, seed)) for seed in range(6)]
    assert [each["action"] for each in found] == ["none"] * 6
    for each in found:
        candidates = each["evidence"]["candidates"]
        assert candidates["temperature"]["gain"]["nll"]["interval"][1] < 0.01
        assert each["evidence"]["remaining"]["remains"] is False


def test_zero_probabilities_are_named_and_the_temperature_is_the_one_that_is_fitted() -> None:
    """Labels of which some have probability 0: the held-out temperature is the exact fit to the other ratings."""
    rng = np.random.default_rng([1, 7])
    p = softmax(rng.normal(size=(1500, 3)) * 4, axis=1)
    p = np.where(p < 0.01, 0, p)
    p /= p.sum(axis=1, keepdims=True)
    labels = ((0.9 * p + 0.1 / 3).cumsum(axis=1) < rng.random((1500, 1))).sum(axis=1).clip(0, 2)
    batch = Batch.from_columns({"probabilities": p, "labels": labels}).batch
    found = recommended(batch)
    assert found["evidence"]["cause"] == "zero_probability"
    assert "send logits, or smooth the probabilities" in found["reason"]
    shown = found["evidence"]["candidates"]
    before = np.mean((p**2).sum(axis=1) + 1 - 2 * p[np.arange(1500), labels])
    assert shown["none"]["brier"] == pytest.approx(before, rel=1e-9)
    assert shown["temperature"]["brier"] == pytest.approx(before, abs=2e-3)
    fitted = fit_temperature_exact(batch)
    assert fitted["verdict"] == "zero_probability" and fitted["n_zero_probability"] > 50
    assert "send logits" in fitted["detail"]


def test_a_response_has_one_scale_of_brier() -> None:
    batch = binary_rows(1500, 0, 0.6)
    pane = view_of(batch)
    before = fit_temperature_exact(batch)
    comparison = CandidateComparison(pane)
    evidence = comparison.recommended()["recommendation"]["evidence"]
    heldout = comparison.held_out_temperature("nll")["heldout"]["halves"]
    assert evidence["brier_scale"] == heldout["brier_scale"] == "sum over classes"
    assert evidence["candidates"]["none"]["brier"] == pytest.approx(before["before"]["brier"])
    assert heldout["before"]["brier"] == pytest.approx(before["before"]["brier"])
    of_map = recommend(pane)["recommendation"]["evidence"]
    shown = fit("platt", pane)
    assert of_map["brier_scale"] == shown["evaluation"]["brier"] == "one class"
    assert of_map["candidates"]["none"]["brier"] == pytest.approx(shown["before"]["brier"])


def test_a_large_sample_is_weighed_in_part_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is the rows of the smallest hashes, so it is what a smaller sample would have been."""
    monkeypatch.setattr(candidate_comparison, "MAX_NUMBERS", 3 * 700)
    batch = batch_of("temperature")
    found = recommend(view_of(batch, raw=False))
    evidence = found["recommendation"]["evidence"]
    assert (evidence["n"], evidence["sample"]["n"]) == (700, 2000)
    few = batch.take(np.argsort(batch.prediction_hash)[:700])
    alone = recommend(view_of(few, raw=False))["recommendation"]["evidence"]
    assert evidence["candidates"] == alone["candidates"]


def test_a_thousand_classes_keep_enough_rows_for_a_temperature() -> None:
    """Each pane holds a few rows; a window of many gives a held-out gain, and says why more cannot be fitted."""
    rng, spec = np.random.default_rng(0), PaneSpec("multiclass", 1000)
    window = Pane.for_window(spec)
    for day in range(16):
        z = rng.normal(size=(4, 1000)) * 6
        labels = [rng.choice(1000, p=row) for row in softmax(z / 3, axis=1)]
        pane = Pane(spec)
        columns = {"logits": z, "labels": labels, "ids": [f"{day}.{i}" for i in range(4)]}
        pane["sample"].fill(BatchSums(Batch.from_columns(columns).batch))
        window.merge(pane)
    comparison = CandidateComparison(View(window, PaneQuery()))
    gain = comparison.held_out_temperature("nll")["heldout"]["gain"]["nll"]
    assert gain["value"] > 0 and gain["interval"] is not None
    candidates = comparison.recommended()["recommendation"]["evidence"]["candidates"]
    assert candidates["slope_intercept"] == {"reason": "few_rows"}


@pytest.mark.parametrize("raters", ["pooled", "mean", "majority"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_gain_on_all_of_a_window_is_that_of_leaving_each_unit_out(
    raters: str, n_classes: int
) -> None:
    """Against as many exact fits as there are units, each judged on the unit that it did not see."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(240, n_classes)) * 3
    counts = np.stack(
        [rng.multinomial(1 + i % 3, row) for i, row in enumerate(softmax(z / 1.6, axis=1))]
    )
    unit, weight = np.arange(240) // 3, rng.uniform(0.5, 2.0, 240)
    columns = {
        "logits": z,
        "label_counts": counts,
        "units": [f"u{u}" for u in unit],
        "weights": weight,
    }
    task = "binary" if n_classes == 2 else "multiclass"
    pane = Pane(PaneSpec(task, n_classes))
    pane.fill_batch(Batch.from_columns(columns, task=task, n_classes=n_classes).batch)
    share = {
        "pooled": counts.astype(float),
        "mean": counts / counts.sum(axis=1, keepdims=True),
        "majority": np.eye(n_classes)[counts.argmax(axis=1)],
    }[raters] * weight[:, None]

    def by_unit(log_beta: float) -> np.ndarray:
        return np.bincount(unit, -(share * log_softmax(np.exp(log_beta) * z, axis=1)).sum(axis=1))

    gains = np.zeros(80)
    for u in range(80):
        others = np.arange(80) != u
        best = minimize_scalar(
            lambda at, mine=others: by_unit(at)[mine].sum(), bounds=(-3, 3), method="bounded"
        ).x
        gains[u] = (by_unit(0.0) - by_unit(best))[u]
    found = left_out_gain(pane, policy_index(raters), 0.95)
    assert found is not None and (found["n"], found["n_units"]) == (240, 80)
    at_best = (
        by_unit(np.log(1 / fit_temperature(pane, raters=raters)["temperature"])).sum() / share.sum()
    )
    value, (low, high) = found["gain"]["nll"]["value"], found["gain"]["nll"]["interval"]
    cost = found["after"]["nll"] - at_best
    exact = found["before"]["nll"] - gains.sum() / share.sum() - at_best
    assert found["before"]["nll"] == pytest.approx(by_unit(0.0).sum() / share.sum(), rel=1e-9)
    assert cost == pytest.approx(exact, rel=0.15) and cost > 0
    assert high - value == pytest.approx(value - low)
    error = (high - value - cost) / 1.99045
    smallest = np.sqrt((gains**2).sum()) / share.sum()
    assert smallest * 0.99 < error < smallest * 1.15


def test_a_small_sample_does_not_hide_what_the_window_shows() -> None:
    """Of thousands of predictions in one pane some hundred are kept; the temperature is judged on all of them."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6000, 10)) * 3
    labels = (softmax(z / 1.25, axis=1).cumsum(axis=1) > rng.random((6000, 1))).argmax(axis=1)
    pane = Pane(PaneSpec("multiclass", 10))
    pane.fill_batch(
        Batch.from_columns(
            {"logits": z, "labels": labels, "ids": [f"i{i}" for i in range(6000)]}
        ).batch
    )
    found = recommend(View(pane, PaneQuery()))
    evidence = found["recommendation"]["evidence"]
    assert found["recommendation"]["action"] == "temperature" and evidence["n"] < 300
    assert evidence["candidates"]["temperature"]["gain"]["nll"]["interval"][0] < 0
    assert (
        evidence["whole_window"]["n"] == 6000
        and evidence["whole_window"]["gain"]["nll"]["interval"][0] > 0
    )
    assert evidence["candidates"]["none"]["beaten_by"] == ["temperature"]
    heldout = CandidateComparison(View(pane, PaneQuery())).held_out_temperature("nll")["heldout"]
    halves = heldout.pop("halves")
    assert heldout == evidence["whole_window"] | {"fitted_to": "window"}
    assert halves["n"] == evidence["n"] and halves["fitted_to"] == "half_of_rows"
    assert heldout["gain"]["nll"]["value"] > 0.0 > halves["gain"]["nll"]["interval"][0]


def test_rows_of_many_classes_leave_the_temperature_to_the_window() -> None:
    """A pane of 600 classes keeps six rows, too few to part in two."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 600)) * 4
    for temperature, recommended in ((2.5, "temperature"), (1.0, "collect_more")):
        labels = (softmax(z / temperature, axis=1).cumsum(axis=1) > rng.random((150, 1))).argmax(
            axis=1
        )
        columns = {"logits": z, "labels": labels, "ids": [f"i{i}" for i in range(150)]}
        pane = Pane(PaneSpec("multiclass", 600))
        pane.fill_batch(Batch.from_columns(columns, n_classes=600).batch)
        found = recommend(View(pane, PaneQuery()))
        assert found["recommendation"]["action"] == recommended, found
        evidence = found["recommendation"]["evidence"]
        assert evidence["n"] == 150 and evidence["candidates"]["slope_intercept"] == {
            "reason": "few_units"
        }
        held_out = CandidateComparison(View(pane, PaneQuery())).held_out_temperature("nll")
        labels = {"fitted_to": "window", "halves": None}
        assert held_out["heldout"] == evidence["whole_window"] | labels
        assert held_out["heldout_reason"] is None
        json.dumps(found, allow_nan=False)


def test_what_the_window_cannot_tell_is_not_reported() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 40)
    p[0] = [0.5, 0.5, 0.0]
    labels = np.full(40, 2)
    for rows, hits in ((p, labels), (np.full((40, 3), 1 / 3), labels), (p[1:16], labels[1:16])):
        pane = Pane(PaneSpec("multiclass", 3))
        pane.fill_batch(Batch.from_columns({"probabilities": rows, "labels": hits}).batch)
        assert left_out_gain(pane, 0, 0.95) is None
    assert left_out_gain(Pane(PaneSpec("multiclass", 3)), 0, 0.95) is None


@pytest.mark.parametrize("temperature", [1.0, 1.1, 1.5])
def test_the_interval_of_a_windows_gain_covers_what_fresh_labels_show(temperature: float) -> None:
    """Also where nothing is to be gained, and all that a fit does is cost."""
    rng = np.random.default_rng(0)
    fresh = log_softmax(rng.normal(size=(4000, 3)) * 2, axis=1)
    chance = np.exp(log_softmax(fresh / temperature, axis=1))
    covered = 0
    for _ in range(25):
        z = rng.normal(size=(400, 3)) * 2
        labels = (softmax(z / temperature, axis=1).cumsum(axis=1) > rng.random((400, 1))).argmax(
            axis=1
        )
        pane = Pane(PaneSpec("multiclass", 3), {"temperature", "counts"})
        pane.fill_batch(Batch.from_columns({"logits": z, "labels": labels}).batch)
        found = left_out_gain(pane, 0, 0.95)
        assert found is not None
        best = Curve(pane["temperature"], 0, 1).minimum("nll")  # type: ignore[arg-type]
        assert best is not None
        mapped = log_softmax(fresh * best.beta, axis=1)
        true = float((chance * (mapped - fresh)).sum(axis=1).mean())
        low, high = found["gain"]["nll"]["interval"]
        covered += low <= true <= high
    assert covered >= 22
