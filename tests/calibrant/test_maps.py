"""Calibration maps of a score: second versions on raw rows, the state against the rows, application."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from calibrant.calibrators import MAPS, Options, apply, fit
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from tests.calibrant.map_rows import (
    ONE_SCORE,
    binary,
    fitted,
    many_classes,
    naive_losses,
    pane_of,
    scores_and_labels,
)

# Second versions on raw rows


def test_platt_on_rows_is_logistic_regression_of_the_log_odds():
    p, y = scores_and_labels()
    answer = fitted("platt", binary(p, y), raw=True)
    peer = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(logit(p)[:, None], y)
    assert answer["parameters"]["slope"] == pytest.approx(peer.coef_[0, 0], rel=1e-6)
    assert answer["parameters"]["intercept"] == pytest.approx(peer.intercept_[0], rel=1e-6)
    assert answer["converged"] and answer["gradient_norm"] < 1e-9 and answer["error_bound"] == 0.0


def test_beta_on_rows_is_the_constrained_maximum():
    p, y = scores_and_labels()
    x = np.stack([np.log(p), -np.log1p(-p), np.ones(len(p))], axis=1)

    def loss(c):
        linear = x @ c
        return np.mean(np.logaddexp(0, linear) - y * linear), x.T @ (expit(linear) - y) / len(y)

    bounds = [(0, None), (0, None), (None, None)]
    peer = minimize(
        loss, [1, 1, 0], jac=True, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10}
    )
    found = fitted("beta", binary(p, y), raw=True)["parameters"]
    assert [found["a"], found["b"], found["c"]] == pytest.approx(peer.x, rel=1e-4)


def test_beta_stays_rising_where_the_free_fit_would_fall():
    rng = np.random.default_rng(5)
    p = rng.uniform(0.02, 0.98, 4000)
    y = (rng.random(4000) < 0.8 - 0.6 * np.abs(p - 0.35)).astype(int)
    answer = fitted("beta", binary(p, y))
    assert answer["at_bound"] and "at_bound" in answer["warnings"]
    assert min(answer["parameters"]["a"], answer["parameters"]["b"]) == 0.0


def test_isotonic_on_rows_is_scikit_learns():
    p, y = scores_and_labels(1500)
    batch = binary(p, y)
    peer = IsotonicRegression(out_of_bounds="clip").fit(p, y)
    grid = np.linspace(0, 1, 1001)
    there = apply(fitted("isotonic", batch, raw=True), binary(grid, np.zeros(1001, int)))
    assert there == pytest.approx(peer.predict(grid), abs=1e-12)


def test_histogram_on_rows_is_the_share_of_hits():
    p, y = scores_and_labels(2000)
    answer = fitted("histogram", binary(p, y))
    place = np.clip(np.ceil(p * 15) - 1, 0, 14)
    for b, value in enumerate(answer["parameters"]["values"]):
        assert value == pytest.approx(y[place == b].mean(), abs=1e-12)
    kept = answer["parameters"]
    assert kept == fitted("histogram", binary(p, y), raw=True)["parameters"] or kept[
        "values"
    ] == pytest.approx(
        fitted("histogram", binary(p, y), raw=True)["parameters"]["values"], abs=1e-12
    )


@pytest.mark.parametrize("method", ["histogram", "scaling_binning"])
def test_equal_mass_bins_hold_equal_mass_and_no_score_is_misplaced(method):
    p, y = scores_and_labels(3000)
    batch = binary(p, y)
    answer = fitted(method, batch, raw=True, options=Options(bins=10, binning="equal_mass"))
    size = np.unique(apply(answer, batch), return_counts=True)[1]
    assert len(size) == 10 and size.min() > 250
    kept = fitted(method, batch, options=Options(bins=10, binning="equal_mass"))
    mapped = apply(kept, batch)
    for value in np.unique(mapped):
        if method == "histogram":
            assert y[mapped == value].mean() == pytest.approx(value, abs=1e-12)


def test_scaling_binning_takes_the_mean_of_platts_curve():
    p, y = scores_and_labels(2000)
    batch = binary(p, y)
    curve, answer = (fitted(method, batch, raw=True) for method in ("platt", "scaling_binning"))
    mapped, scaled = apply(answer, batch), apply(curve, batch)
    for value in np.unique(mapped):
        assert scaled[mapped == value].mean() == pytest.approx(value, abs=1e-12)


# The state against the rows


@pytest.mark.parametrize("method", ONE_SCORE)
@pytest.mark.parametrize("shape", [(0.6, 0.6), (0.05, 0.05), (2.0, 5.0)])
def test_cells_give_the_map_of_the_rows_within_the_bound(method, shape):
    rng = np.random.default_rng(2)
    p = np.clip(rng.beta(*shape, 4000), 1e-9, 1 - 1e-9)
    y = (rng.random(4000) < expit(0.7 * logit(p) + 0.2)).astype(int)
    batch = binary(p, y)
    kept, rows = fitted(method, batch), fitted(method, batch, raw=True)
    gap = np.abs(apply(kept, batch) - apply(rows, batch))
    worst = gap.max() if method in ("platt", "beta", "histogram") else gap.mean()
    assert worst <= kept["error_bound"] + 1e-12
    assert kept["error_bound"] < 0.05 or method == "scaling_binning"
    for name in ("nll", "brier", "ece"):
        assert kept["after"][name] == pytest.approx(rows["after"][name], abs=5e-3)
        assert kept["before"][name] == pytest.approx(rows["before"][name], abs=2e-3)


@pytest.mark.parametrize("method", [*ONE_SCORE, "temperature"])
def test_losses_before_and_after_are_those_of_the_rows(method):
    p, y = scores_and_labels(1000)
    batch = binary(p, y)
    answer = fitted(method, batch, raw=True)
    assert answer["before"] == pytest.approx(naive_losses(p, y), abs=1e-12)
    after = naive_losses(apply(answer, batch), y)
    assert answer["after"]["brier"] == pytest.approx(after["brier"], abs=1e-12)
    assert answer["after"]["nll"] == pytest.approx(after["nll"], abs=1e-9)


# Each map under two of the four policies, each policy under half of the maps.
POLICIES = ("pooled", "mean", "majority", "single", "pooled")


@pytest.mark.parametrize(("method", "raters"), [
    (method, raters) for at, method in enumerate(MAPS) for raters in POLICIES[at % 4 : at % 4 + 2]
])  # fmt: skip
def test_panes_that_merge_give_one_map(method, raters):
    batch, most = many_classes(800), 1 << 17
    scope = None if "full" in MAPS[method].scopes else "class:2"
    view = View(pane_of(batch, most), PaneQuery(scope=scope, raters=raters))
    order = np.random.default_rng(0).permutation(800)
    parts = [pane_of(batch.take(index), most) for index in np.array_split(order, 3)]
    merged = View(parts[2].merge(parts[0]).merge(parts[1]), PaneQuery(scope=scope, raters=raters))
    one, other = fit(method, view), fit(method, merged)
    assert apply(other, batch) == pytest.approx(apply(one, batch), abs=1e-9)
    assert other["heldout_reason"] == one["heldout_reason"]


def test_several_raters_weigh_as_their_policy_says():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 800)
    ratings = rng.binomial(4, expit(0.5 * logit(p)))
    counts = np.stack([4 - ratings, ratings], axis=1)
    batch = Batch.from_columns({"confidences": p, "label_counts": counts}).batch
    pooled, mean = (
        fitted("platt", batch, raw=True, raters=r)["parameters"] for r in ("pooled", "mean")
    )
    assert pooled["slope"] == pytest.approx(mean["slope"], rel=1e-9)
    repeated = fitted(
        "platt",
        binary(np.repeat(p, 4), (np.arange(4) < ratings[:, None]).astype(int).ravel()),
        raw=True,
    )
    assert pooled["slope"] == pytest.approx(repeated["parameters"]["slope"], rel=1e-9)


# Application


def test_rows_under_a_temperature_sum_to_one_in_the_same_order():
    batch = many_classes(300)
    answer = fitted("temperature", batch)
    assert answer["scope"] == "full"
    rows = apply(answer, batch)
    assert rows.sum(axis=1) == pytest.approx(np.ones(300), abs=1e-14)
    assert (np.argsort(rows, axis=1) == np.argsort(batch.probabilities, axis=1)).all()


@pytest.mark.parametrize("method", list(MAPS))
@pytest.mark.parametrize("seed", range(3))
def test_maps_rise_and_stay_probabilities(method, seed):
    p, y = scores_and_labels(800, seed=seed)
    answer = fitted(method, binary(p, y), evaluate=False)
    grid = np.concatenate([[0.0], np.sort(np.random.default_rng(seed).random(500)), [1.0]])
    mapped = apply(answer, binary(grid, np.zeros(502, int)))
    assert ((mapped >= 0) & (mapped <= 1)).all()
    if method not in ("histogram", "spline"):
        assert (np.diff(mapped) >= -1e-15).all()


def test_zero_and_one_stay_under_temperature():
    p, y = scores_and_labels(500)
    answer = fitted("temperature", binary(p, y))
    assert apply(answer, binary([0.0, 1.0], [0, 1])).tolist() == [0.0, 1.0]
    rows = Batch.from_columns({"probabilities": [[0.0, 0.2, 0.8], [1.0, 0.0, 0.0]]}).batch
    full = apply(
        {"method": "temperature", "scope": "full", "parameters": {"temperature": 2.0}}, rows
    )
    assert full[0, 0] == 0.0 and full[1].tolist() == [1.0, 0.0, 0.0]


def test_digest_speaks_of_the_map_and_nothing_else():
    p, y = scores_and_labels(500)
    one = fitted("platt", binary(p, y))
    assert one["digest"] == fitted("platt", binary(p, y))["digest"]
    assert one["digest"] != fitted("platt", binary(p, 1 - y))["digest"]
    assert re.fullmatch("[0-9a-f]{32}", one["digest"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "loess"},
        {"parameters": None},
        {"scope": "full"},
        {"scope": "class", "class": 7},
        {"scope": "class", "class": None},
    ],
)
def test_maps_that_cannot_be_applied_are_rejected(wrong):
    p, y = scores_and_labels(200)
    answer = fitted("platt", binary(p, y))
    with pytest.raises(CalibrationInputError):
        apply(answer | wrong, binary(p, y))
