"""Temperature from the kept profile against raw rows, and raw rows against a naive second version and scipy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from calibrant.calibrators.temperature.fit import OBJECTIVES, fit_temperature, fit_temperature_exact
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.core.histogram import Histogram
from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec

# From this curvature in log T on, and up to 100 classes, T by Brier is within 1e-6 for T from 0.3 to 6 (docs/maps.md).
BENT = 0.01


def drawn(n, n_classes, temperature, seed=0, raters=1, tail="normal"):
    """Logits whose right temperature is `temperature`, with ratings drawn from softmax(z / T)."""
    rng = np.random.default_rng(seed)
    true = (
        rng.normal(size=(n, n_classes)) * 2
        if tail == "normal"
        else rng.gumbel(size=(n, n_classes)) * 2
    )
    chance = softmax(true, axis=1)
    draws = [(chance.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1) for _ in range(raters)]
    counts = np.zeros((n, n_classes), int)
    for labels in draws:
        counts[np.arange(n), labels] += 1
    return {"logits": true * temperature, "label_counts": counts}


def batch_of(columns, **more):
    return Batch.from_columns(columns, **more).batch


def pane_of(batch):
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    return pane


def naive_weights(batch, raters):
    """Weight of every class of every row under a policy, by the plain definition."""
    counts = batch.label_counts.astype(float)
    labelled = counts.sum(axis=1) > 0
    result = np.zeros_like(counts)
    for i in np.flatnonzero(labelled):
        if raters == "pooled":
            result[i] = counts[i]
        elif raters == "mean":
            result[i] = counts[i] / counts[i].sum()
        elif raters == "majority":
            result[i, np.argmax(counts[i])] = 1.0
        else:
            result[i, batch.chosen_rating[i]] = 1.0
    return result if batch.weights is None else result * batch.weights[:, None]


def naive_losses(batch, raters, temperature, bins=15, min_count=0):
    logits = batch.scores if batch.is_logits else np.log(np.maximum(batch.scores, 1e-300))
    weight = naive_weights(batch, raters)
    logp = log_softmax(logits / temperature, axis=1)
    p = np.exp(logp)
    if not batch.is_logits:
        p[batch.scores == 0] = 0.0
    finite = np.where(p > 0, weight, 0.0)
    nll = -(finite * np.where(p > 0, logp, 0.0)).sum() / finite.sum()
    brier = (weight * ((p**2).sum(axis=1, keepdims=True) - 2 * p + 1)).sum() / weight.sum()
    if batch.task == "binary":
        score, hit = p[:, 1], weight[:, 1]
    else:
        top = p.argmax(axis=1)
        score, hit = p[np.arange(len(p)), top], weight[np.arange(len(p)), top]
    place = np.clip(np.ceil(score * bins) - 1, 0, bins - 1)
    row = weight.sum(axis=1)
    kept = [b for b in range(bins) if row[place == b].sum() >= max(min_count, 1e-9)]
    gaps = [abs((hit - row * score)[place == b].sum()) for b in kept]
    total = row[np.isin(place, kept)].sum()
    return {"nll": nll, "brier": brier, "ece": sum(gaps) / total if kept else None}


def naive_temperature(batch, raters, objective):
    def loss(log_t):
        return naive_losses(batch, raters, np.exp(log_t))[objective]

    starts = np.log(np.geomspace(1 / 32, 32, 21))
    best = int(np.argmin([loss(x) for x in starts]))
    bracket = (starts[max(best - 1, 0)], starts[min(best + 1, 20)])
    found = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-11})
    return float(np.exp(found.x))


@pytest.mark.parametrize("raters", POLICIES)
@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_raw_rows_agree_with_a_naive_fit(objective, raters):
    batch = batch_of(drawn(300, 4, 1.7, raters=3))
    answer = fit_temperature_exact(batch, objective=objective, raters=raters)
    assert answer["temperature"] == pytest.approx(
        naive_temperature(batch, raters, objective), rel=1e-6
    )
    for place, temperature in (("before", 1.0), ("after", answer["temperature"])):
        assert answer[place] == pytest.approx(naive_losses(batch, raters, temperature), rel=1e-12)


# Each number of classes at two temperatures, each temperature with two or three of them; the other pairs are slow.
@pytest.mark.parametrize(("n_classes", "temperature"), [
    pytest.param(n_classes, temperature, marks=[pytest.mark.slow] if (at + place) % 2 else [])
    for at, n_classes in enumerate((2, 3, 10, 100, 1000))
    for place, temperature in enumerate((0.2, 1.0, 2.0, 10.0))
])  # fmt: skip
def test_the_profile_finds_the_temperature_of_the_rows(n_classes, temperature):
    n = 1500 if n_classes <= 10 else 60_000 // n_classes
    batch = batch_of(drawn(n, n_classes, temperature, raters=3, tail="gumbel"))
    pane = pane_of(batch)
    for raters in POLICIES:
        kept = fit_temperature(pane, raters=raters)
        exact = fit_temperature_exact(batch, raters=raters)
        assert kept["temperature"] == pytest.approx(exact["temperature"], rel=1e-6)
        assert kept["after"]["nll"] == pytest.approx(exact["after"]["nll"], abs=1e-7)
        excess = naive_losses(batch, raters, kept["temperature"])["nll"] - exact["after"]["nll"]
        assert excess < 1e-8
        assert kept["standard_error"] == pytest.approx(exact["standard_error"], rel=0.05)
        kept = fit_temperature(pane, raters=raters, objective="brier")
        exact = fit_temperature_exact(batch, raters=raters, objective="brier")
        assert kept["precision"] == "second_derivative" and exact["precision"] == "rows"
        off = abs(kept["temperature"] / exact["temperature"] - 1.0)
        assert off <= kept["error_estimate"]["temperature"] + 1e-11
        is_bent = brier_bend(batch, raters, exact) >= BENT
        if n_classes <= 100 and 0.3 <= exact["temperature"] <= 6.0 and is_bent:
            assert off <= 1e-6
        assert kept["temperature"] == pytest.approx(exact["temperature"], rel=1e-4)
        assert kept["after"]["brier"] == pytest.approx(exact["after"]["brier"], abs=1e-6)


def brier_bend(batch, raters, fitted):
    """Second derivative of the Brier score in log T at the fit."""
    near = [fitted["temperature"] * np.exp(step) for step in (-0.01, 0.0, 0.01)]
    low, middle, high = (naive_losses(batch, raters, t)["brier"] for t in near)
    return (low - 2.0 * middle + high) / 1e-4


def test_raw_ece_is_the_exhaustive_search():
    batch = batch_of(drawn(150, 5, 1.6, raters=2))
    grid = np.arange(100, 2001) / 200
    ece = [naive_losses(batch, "pooled", t)["ece"] for t in grid]
    answer = fit_temperature_exact(batch, objective="ece")
    assert answer["temperature"] == grid[np.argmin(ece)]
    assert answer["after"]["ece"] == pytest.approx(min(ece), abs=1e-12)
    low, high = answer["plateau"]
    assert low <= answer["temperature"] <= high


def test_ece_of_the_papers_bins_and_minimum():
    """20 bins of at least 50 samples, over the temperatures of the paper."""
    columns = drawn(600, 3, 1.8, raters=2)
    batch = batch_of(columns)
    grid = np.arange(100, 2001) / 200
    options = {"objective": "ece", "bins": 20, "min_count": 50}
    exact = fit_temperature_exact(batch, **options)
    near = np.abs(grid - exact["temperature"]) < 0.2
    naive = [naive_losses(batch, "pooled", t, 20, 50)["ece"] for t in grid[near]]
    assert exact["temperature"] == grid[near][np.argmin(naive)]
    assert exact["after"]["ece"] == pytest.approx(min(naive), abs=1e-12)
    kept = fit_temperature(pane_of(batch), **options)
    assert (kept["bins"], kept["min_count"]) == (20, 50)
    for answer in (exact, kept):
        assert answer["before"] == pytest.approx(naive_losses(batch, "pooled", 1.0, 20, 50))
        for t, ece in zip(answer["curve"]["temperature"], answer["curve"]["ece"], strict=True):
            expected = naive_losses(batch, "pooled", t, 20, 50)["ece"]
            assert ece == (None if expected is None else pytest.approx(expected, abs=1e-12))
    there = naive_losses(batch, "pooled", kept["temperature"], 20, 50)["ece"]
    assert abs(there - kept["after"]["ece"]) < kept["error_estimate"]["ece"]
    for answer in both(columns, objective="ece", bins=20, min_count=5000):
        assert answer["temperature"] is None and answer["reason"] == "no_bins"
        assert answer["before"]["ece"] is None


@pytest.mark.parametrize("n_classes", [2, 6])
def test_kept_ece_is_within_its_error_estimate(n_classes):
    for seed in range(3):
        batch = batch_of(drawn(2500, n_classes, 1.8, seed=seed))
        kept = fit_temperature(pane_of(batch), objective="ece")
        true = fit_temperature_exact(batch, objective="ece")
        there = naive_losses(batch, "pooled", kept["temperature"])["ece"]
        assert abs(there - kept["after"]["ece"]) < kept["error_estimate"]["ece"]
        assert there - true["after"]["ece"] < kept["error_estimate"]["ece"]
        assert kept["plateau"][0] <= true["temperature"] <= kept["plateau"][1]
        assert kept["before"]["ece"] == pytest.approx(true["before"]["ece"], abs=1e-12)
        assert kept["curve"]["ece"] == pytest.approx(true["curve"]["ece"], abs=1e-12)


def test_binary_confidences_bin_the_positive_class():
    rng = np.random.default_rng(3)
    p = rng.beta(0.5, 0.5, 2000)
    labels = (rng.random(2000) < p).astype(int).tolist()
    batch = batch_of({"confidences": p, "labels": labels})
    answer = fit_temperature(pane_of(batch))
    assert answer["scope"] == "positive"
    assert answer["before"] == pytest.approx(naive_losses(batch, "pooled", 1.0), rel=1e-12)
    assert answer["after"]["ece"] == pytest.approx(
        naive_losses(batch, "pooled", answer["temperature"])["ece"],
        abs=answer["error_estimate"]["ece"],
    )


def test_the_standard_error_is_what_repetition_shows():
    found = [fit_temperature(pane_of(batch_of(drawn(400, 3, 1.5, seed=s)))) for s in range(100)]
    spread = np.std([answer["temperature"] for answer in found])
    assert np.mean([answer["standard_error"] for answer in found]) == pytest.approx(spread, rel=0.2)
    covered = np.mean([answer["interval"][0] <= 1.5 <= answer["interval"][1] for answer in found])
    assert 0.9 <= covered <= 0.99


def test_raters_of_one_unit_are_not_independent():
    columns = drawn(300, 3, 1.5)
    many = {key: np.repeat(value, 10, axis=0) for key, value in columns.items()}
    units = [f"u{i}" for i in np.repeat(np.arange(300), 10)]
    alone = fit_temperature(pane_of(batch_of(columns)))
    together = fit_temperature(pane_of(batch_of(many | {"units": units})))
    assert together["standard_error"] == pytest.approx(alone["standard_error"], rel=1e-9)
    assert together["n_units"] == 300


def test_panes_that_merge_answer_as_one():
    columns = drawn(900, 4, 2.0, raters=2)
    complete = fit_temperature(pane_of(batch_of(columns)))
    parts = [
        pane_of(batch_of({key: value[index] for key, value in columns.items()}))
        for index in np.array_split(np.random.default_rng(0).permutation(900), 4)
    ]
    merged = parts[2].merge(parts[0]).merge(parts[3]).merge(parts[1])
    answer = fit_temperature(merged)
    assert answer["temperature"] == pytest.approx(complete["temperature"], rel=1e-12)
    assert answer["after"] == pytest.approx(complete["after"], rel=1e-10)


def test_weights_equal_repetition():
    columns = drawn(200, 3, 0.6)
    times = np.random.default_rng(1).integers(0, 4, 200)
    repeated = {key: np.repeat(value, times, axis=0) for key, value in columns.items()}
    weighted = fit_temperature(pane_of(batch_of(columns | {"weights": times.astype(float)})))
    assert weighted["temperature"] == pytest.approx(
        fit_temperature(pane_of(batch_of(repeated)))["temperature"], rel=1e-10
    )


def both(columns, **options):
    batch = batch_of(columns)
    return [fit_temperature(pane_of(batch), **options), fit_temperature_exact(batch, **options)]


@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_all_right_has_no_finite_temperature(objective):
    for answer in both(
        {"logits": [[2.0, 0], [0, 3.0], [4.0, 0]] * 10, "labels": [0, 1, 0] * 10},
        objective=objective,
    ):
        assert answer["verdict"] == answer["reason"] == answer["interval_reason"] == "separable"
        assert answer["temperature"] is answer["interval"] is answer["standard_error"] is None
        assert answer["n_incorrect_units"] == 0
        # At the limit, all 30 ratings are of the most probable class with a probability of 5 %.
        limit = answer["at_most"]
        chance = np.prod([1.0 / (1.0 + np.exp(-margin / limit)) for margin in (2.0, 3.0, 4.0)])
        assert chance**10 == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("large", ["unit", "weight", "ratings"])
def test_limit_where_one_unit_is_larger_than_the_others(large):
    margins = [0.5] + [6.0] * 59
    logits, rows = [[margin, 0.0] for margin in margins], {"labels": [0] * 60}
    if large == "unit":
        logits = [logits[0]] * 999 + logits
        rows = {"labels": [0] * 1059, "units": [f"u{max(0, i - 999)}" for i in range(1059)]}
    elif large == "weight":
        rows |= {"weights": [1000.0] + [1.0] * 59}
    else:
        rows = {"label_counts": [[100, 0]] + [[1, 0]] * 59}
    limit = fit_temperature_exact(batch_of({"logits": logits} | rows))["at_most"]
    # The rows of the large unit may depend on each other completely: one unit of sixty.
    chance = np.prod([1.0 / (1.0 + np.exp(-margin / limit)) for margin in margins])
    assert chance == pytest.approx(0.05, rel=1e-6)


def test_limit_where_margins_are_small():
    for answer in both({"logits": [[0.1, 0.0]] + [[5.0, 0.0]] * 59, "labels": [0] * 60}):
        chances = 1.0 / (1.0 + np.exp(-np.array([0.1] + [5.0] * 59) / answer["at_most"]))
        assert chances.prod() == pytest.approx(0.05, rel=1e-4)
    for answer in both({"logits": [[0.001, 0.0]] * 60, "labels": [0] * 60}):
        # The outcome has a probability below 5 % at every temperature.
        assert answer["at_most"] in (None, answer["range"][0])


def test_separable_clusters_allow_more():
    rows = {"logits": [[2.0, 0], [0, 3.0], [4.0, 0]] * 200, "labels": [0, 1, 0] * 200}
    alone = fit_temperature(pane_of(batch_of(rows)))
    units = [f"u{i // 15}" for i in range(600)]
    together = fit_temperature(pane_of(batch_of(rows | {"units": units})))
    one_each = {name: column[:40] for name, column in rows.items()}
    assert together["at_most"] > 1.5 * alone["at_most"]
    assert together["at_most"] == pytest.approx(
        fit_temperature(pane_of(batch_of(one_each)))["at_most"], rel=0.2
    )
    few = fit_temperature(pane_of(batch_of(rows | {"units": [f"u{i // 30}" for i in range(600)]})))
    assert few["reason"] == "separable" and few["at_most"] is None


def test_limit_of_units_that_weigh_differently():
    """A unit with half of the rows is one unit: the window's limit is at least the rows'."""
    logits = np.zeros((2000, 2))
    logits[:, 0] = np.where(np.arange(2000) < 1000, 0.5, 8.0)
    units = ["large"] * 1000 + [f"u{i}" for i in range(1000)]
    batch = batch_of({"logits": logits, "labels": [0] * 2000, "units": units})
    exact = fit_temperature_exact(batch)["at_most"]
    pane = pane_of(batch)
    found = fit_temperature(pane)
    assert (found["method"], found["reason"], found["at_most_of"]) == (
        "profile",
        "separable",
        "sample",
    )
    assert found["at_most"] >= exact * (1 - 1e-9)
    bare = Pane(pane.spec, {"counts", "histograms", "temperature"})
    bare.fill_batch(batch)
    unknown = fit_temperature(bare)
    assert (unknown["at_most"], unknown["at_most_reason"]) == (None, "unequal_units")
    alone = batch_of({"logits": logits, "labels": [0] * 2000})
    equal = fit_temperature(pane_of(alone))
    assert "at_most_of" not in equal
    assert equal["at_most"] == pytest.approx(fit_temperature_exact(alone)["at_most"], rel=1e-4)
    heavy = {"weights": [9.0] * 9 + [1.0] * 1991, "units": [f"u{i}" for i in range(2000)]}
    weighted = fit_temperature(pane_of(batch_of({"logits": logits, "labels": [0] * 2000} | heavy)))
    assert weighted["at_most_of"] == "sample"


def test_intervals_need_units_and_incorrect_ones():
    for n, wrong, reason in (
        (29, 8, "too_few_units"),
        (30, 4, "too_few_incorrect_units"),
        (30, 5, None),
    ):
        rows = [[1.0 + i / 10, 0.0] for i in range(n)]
        for answer in both({"logits": rows, "labels": [1] * wrong + [0] * (n - wrong)}):
            assert answer["n_incorrect_units"] == wrong
            assert answer.get("interval_reason") == answer.get("standard_error_reason") == reason
            assert (answer["interval"] is None) == (reason is not None)
            verdict = "ok" if reason is None else reason.removeprefix("too_")
            assert answer["temperature"] is not None and answer["verdict"] == verdict


def test_the_interval_is_where_the_scaled_likelihood_ratio_is_the_quantile():
    columns = drawn(60, 3, 1.5)
    batch = batch_of(columns)
    logits, weight = columns["logits"], naive_weights(batch, "pooled")

    def unit_losses(beta):
        return -(weight * log_softmax(beta * logits, axis=1)).sum(axis=1)

    for answer in both(columns):
        beta, step = answer["inverse_temperature"], 1e-4
        slope = (unit_losses(beta + step) - unit_losses(beta - step)) / (2 * step)
        around = [unit_losses(beta + i * step).sum() for i in (-1, 0, 1)]
        bend = (around[0] - 2 * around[1] + around[2]) / step**2
        scale = bend / (slope**2).sum() * 59 / 60
        for end in answer["interval"]:
            ratio = 2.0 * (unit_losses(1.0 / end).sum() - around[1]) * scale
            assert ratio == pytest.approx(1.959964**2, rel=1e-4)


@pytest.mark.parametrize(("mild", "is_plateau"), [(380, False), (398, True), (420, False)])
def test_two_minima_of_brier_within_a_thousandth_are_a_plateau(mild, is_plateau):
    """Mild rows that are right too often, and steep ones that are wrong too often."""
    n, wrong = np.array([mild, 680]), np.array([4, 250])
    logits = [[1.0, 0.0]] * mild + [[15.0, 0.0]] * 680
    labels = [0] * (mild - 4) + [1] * 4 + [0] * 430 + [1] * 250
    temperatures = np.geomspace(1 / 32, 32, 20001)
    p = 1.0 / (1.0 + np.exp(-np.array([1.0, 15.0]) / temperatures[:, None]))
    loss = ((n - wrong) * (1 - p) ** 2 + wrong * p**2).sum(axis=1)
    lows = np.flatnonzero((loss[1:-1] < loss[:-2]) & (loss[1:-1] < loss[2:])) + 1
    assert len(lows) == 2
    for answer in both({"logits": logits, "labels": labels}, objective="brier"):
        assert answer["temperature"] == pytest.approx(temperatures[loss.argmin()], rel=1e-3)
        expected = pytest.approx(temperatures[lows], rel=1e-3) if is_plateau else None
        assert answer["plateau"] == expected


def test_older_panes_answer_with_the_older_precision():
    batch = batch_of(drawn(800, 5, 1.7))
    pane, exact = pane_of(batch), fit_temperature_exact(batch, objective="brier")
    for block in pane["temperature"].later_blocks:
        del pane["temperature"].blocks[block]
    old = Pane.unpack(pane.pack())
    assert old["temperature"].stored_format == 1
    answer = fit_temperature(old, objective="brier")
    assert answer["precision"] == "first_derivative" and answer["n_incorrect_units"] is None
    off = abs(answer["temperature"] / exact["temperature"] - 1.0)
    assert 1e-9 < off < answer["error_estimate"]["temperature"] < 1e-3
    assert answer["interval"] is None and answer["interval_reason"] == "not_kept"
    assert fit_temperature(old)["interval"] == pytest.approx(fit_temperature(pane)["interval"])


@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_all_wrong_is_inversely_related(objective):
    for answer in both(
        {"logits": [[2.0, 0], [0, 3.0]] * 15, "labels": [1, 0] * 15}, objective=objective
    ):
        assert answer["verdict"] == answer["reason"] == "inverse" and answer["bound"] == "upper"
        assert answer["temperature"] is None


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_uniform_predictions_say_nothing(objective):
    for answer in both(
        {"probabilities": [[0.5, 0.5]] * 30, "labels": [0, 1] * 15}, objective=objective
    ):
        assert answer["temperature"] is None and answer["reason"] == "flat"
        assert answer["before"]["nll"] == pytest.approx(np.log(2))


def test_certain_predictions_say_nothing_about_nll():
    columns = {"probabilities": [[1.0, 0.0]] * 20, "labels": [0] * 15 + [1] * 5}
    for answer in both(columns):
        assert answer["temperature"] is None and answer["reason"] == "flat"
        assert answer["n_zero_probability"] == 5 and answer["before"]["nll"] is None
    for answer in both({"probabilities": [[1.0, 0.0]] * 20, "labels": [1] * 20}):
        assert answer["reason"] == "all_zero_probability"


def test_ratings_at_probability_zero_are_counted_and_left_out():
    columns = drawn(200, 3, 1.4)
    p = np.vstack([softmax(columns["logits"], axis=1), [[0.0, 0.5, 0.5]] * 3])
    counts = np.vstack([columns["label_counts"], [[2, 0, 0]] * 3])
    batch = batch_of({"probabilities": p, "label_counts": counts})
    answer = fit_temperature(pane_of(batch))
    assert answer["n_zero_probability"] == 6
    assert answer["temperature"] == pytest.approx(
        fit_temperature(pane_of(batch_of(columns)))["temperature"], rel=1e-9
    )
    naive = naive_losses(batch, "pooled", 1.0)
    assert answer["before"]["nll"] is None and answer["after"]["nll"] is None
    assert answer["before"] | {"nll": naive["nll"]} == pytest.approx(naive, rel=1e-10)
    assert answer["objective_before"] == pytest.approx(naive["nll"], rel=1e-10)


def test_three_rows_are_too_few():
    for answer in both({"logits": [[1.0, 0], [1.0, 0], [2.0, 0]], "labels": [0, 1, 0]}):
        assert answer["verdict"] in ("few_units", "unsettled")
        assert answer["temperature"] is not None


def test_nothing_labelled_and_nothing_at_all():
    empty = fit_temperature(Pane(PaneSpec("multiclass", 3)))
    unlabelled = both({"logits": [[1.0, 0, 0]] * 5})
    weightless = both({"logits": [[1.0, 0, 0]] * 5, "labels": [0] * 5, "weights": [0.0] * 5})
    for answer in (empty, *unlabelled, *weightless):
        assert answer["temperature"] is None and answer["reason"] == "no_labels"
        assert answer["before"] is None and answer["curve"] is None
    assert empty["n"] == 0 and unlabelled[0]["n_predictions"] == 5


def test_a_window_with_plain_histograms_is_not_answered():
    spec = PaneSpec("binary", 2)
    pane = Pane(spec)
    pane.fill_batch(batch_of({"confidences": [0.3, 0.8], "labels": [0, 1]}))
    fields = {"kind": "positive", "bins": 3600, "edges": "right", "raters": "pooled"}
    columns = {name: [0.0] * 3600 for name in ("count", "sum_confidence", "sum_correct")}
    columns["count"][1800] = 7.0
    columns["sum_confidence"][1800] = 7.0 * 1800.5 / 3600
    pane.fill_histogram(Histogram.from_fields(fields | columns, spec))
    answer = fit_temperature(pane)
    assert answer["temperature"] is None and answer["reason"] == "not_in_histogram"
    assert answer["n_excluded"] == 7.0


def plain(value):
    """Whether only what JSON knows is inside, NumPy's numbers not counted."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def test_answers_are_plain_and_of_one_shape():
    columns = drawn(100, 3, 1.2)
    for objective in OBJECTIVES:
        kept, exact = both(columns, objective=objective)
        for answer in (kept, exact):
            assert plain(answer) and json.dumps(answer, allow_nan=False)
        must = set(kept) - {
            "standard_error_method",
            "interval_method",
            "standard_error_reason",
            "interval_reason",
        }
        assert must <= set(exact)
        assert {len(column) for column in kept["curve"].values()} == {21}
    assert set(fit_temperature(Pane(PaneSpec("multiclass", 3)))) <= set(kept) | {
        "standard_error_reason",
        "interval_reason",
    }


def test_scores_on_an_edge_are_binned_as_they_were_sent():
    rng = np.random.default_rng(4)
    p = rng.integers(1, 60, 3000) / 60
    batch = batch_of({"confidences": p, "labels": (rng.random(3000) < p).astype(int).tolist()})
    place = np.rint(p * 60).astype(int) - 1
    gap = np.bincount(place // 4, batch.label_counts[:, 1] - p, 15)
    for answer in (fit_temperature(pane_of(batch)), fit_temperature_exact(batch)):
        assert answer["before"]["ece"] == pytest.approx(np.abs(gap).sum() / 3000, abs=1e-12)


@pytest.mark.parametrize(
    "options", [{"objective": "mse"}, {"raters": "all"}, {"bins": 7}, {"bins": 0}, {"ci": 1.0}]
)
def test_options_out_of_range_are_rejected(options):
    with pytest.raises(CalibrationInputError):
        fit_temperature(pane_of(batch_of(drawn(10, 3, 1.0))), **options)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.3, 5.0), st.sampled_from(POLICIES))
def test_scaling_the_logits_scales_the_temperature(seed, factor, raters):
    columns = drawn(150, 3, 1.0, seed=seed)
    batch = batch_of(columns | {"ids": [f"i{i}" for i in range(150)]})
    scaled = batch_of(
        columns | {"logits": columns["logits"] * factor, "ids": [f"i{i}" for i in range(150)]}
    )
    one, other = (
        fit_temperature(pane_of(batch), raters=raters),
        fit_temperature(pane_of(scaled), raters=raters),
    )
    assert other["temperature"] == pytest.approx(factor * one["temperature"], rel=1e-5)
