"""Every map against a second version on raw rows, its documented formula, and the cases in which there is no map."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax, xlog1py, xlogy
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from calibrant.batch import Batch
from calibrant.errors import CalibrationInputError
from calibrant.histogram import Histogram
from calibrant.maps import MAPS, Options, apply, fit, needs
from calibrant.pane import Pane
from calibrant.question import Question
from calibrant.spec import PaneSpec
from calibrant.temperature.fit import fit_temperature, fit_temperature_exact
from calibrant.view import View

ONE_SCORE = [slug for slug, method in MAPS.items() if "class" in method.scopes]


def scores_and_labels(n=4000, seed=0, slope=0.6, intercept=-0.3):
    """Confidences whose true log odds are slope logit(p) + intercept, some of them exactly on cell edges."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 0.6, n)
    p = np.clip(np.where(rng.random(n) < 0.1, np.round(p, 2), p), 1e-9, 1 - 1e-9)
    return p, (rng.random(n) < expit(slope * logit(p) + intercept)).astype(int)


def binary(p, y, **more):
    labels = y.tolist() if hasattr(y, "tolist") else y
    return Batch.from_columns({"confidences": np.asarray(p, float), "labels": labels, **more}).batch


def pane_of(batch, **spec):
    pane = Pane(PaneSpec(batch.task, batch.n_classes, **spec))
    pane.fill(batch)
    return pane


def fitted(method, batch, raw=False, options=None, **question):
    return fit(method, View(pane_of(batch), Question(**question), batch if raw else None), options)


def many_classes(n=3000, n_classes=5, seed=1, raters=3):
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, n_classes)) * 2
    chance = softmax(true, axis=1)
    counts = np.zeros((n, n_classes), int)
    for _ in range(raters):
        counts[np.arange(n), (chance.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)] += 1
    return Batch.from_columns({"logits": true * 1.7, "label_counts": counts}).batch


def plain(value):
    """Whether only what JSON knows is inside, NumPy's numbers not counted."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def naive_losses(p, y, bins=15):
    place = np.clip(np.ceil(p * bins) - 1, 0, bins - 1)
    gaps = [abs((y - p)[place == b].sum()) for b in range(bins)]
    nll = -np.mean(xlogy(y, p) + xlog1py(1 - y, -p))
    return {"nll": nll, "brier": np.mean((y - p) ** 2), "ece": sum(gaps) / len(p)}


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


@pytest.mark.parametrize("method", list(MAPS))
@pytest.mark.parametrize("raters", ["pooled", "mean", "majority", "single"])
def test_panes_that_merge_give_one_map(method, raters):
    batch = many_classes(600)
    scope = None if "full" in MAPS[method].scopes else "class:2"
    view = View(pane_of(batch), Question(scope=scope, raters=raters))
    order = np.random.default_rng(0).permutation(600)
    parts = [pane_of(batch.take(index)) for index in np.array_split(order, 3)]
    merged = View(parts[2].merge(parts[0]).merge(parts[1]), Question(scope=scope, raters=raters))
    one, other = fit(method, view), fit(method, merged)
    assert apply(other, batch) == pytest.approx(apply(one, batch), abs=1e-9)
    assert other["heldout_reason"] == one["heldout_reason"]


def test_several_raters_weigh_as_their_policy_says():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 800)
    votes = rng.binomial(4, expit(0.5 * logit(p)))
    counts = np.stack([4 - votes, votes], axis=1)
    batch = Batch.from_columns({"confidences": p, "label_counts": counts}).batch
    pooled, mean = (
        fitted("platt", batch, raw=True, raters=r)["parameters"] for r in ("pooled", "mean")
    )
    assert pooled["slope"] == pytest.approx(mean["slope"], rel=1e-9)
    repeated = fitted(
        "platt",
        binary(np.repeat(p, 4), (np.arange(4) < votes[:, None]).astype(int).ravel()),
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
    answer = fitted(method, binary(p, y))
    grid = np.concatenate([[0.0], np.sort(np.random.default_rng(seed).random(500)), [1.0]])
    mapped = apply(answer, binary(grid, np.zeros(502, int)))
    assert ((mapped >= 0) & (mapped <= 1)).all()
    if method != "histogram":
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
        {"method": "spline"},
        {"parameters": None},
        {"scope": "full"},
        {"scope": "class", "class": 7},
        {"scope": "class", "class": None},
    ],
)
def test_maps_that_cannot_be_applied_are_refused(wrong):
    p, y = scores_and_labels(200)
    answer = fitted("platt", binary(p, y))
    with pytest.raises(CalibrationInputError):
        apply(answer | wrong, binary(p, y))


# Where there is no map


@pytest.mark.parametrize("method", list(MAPS))
@pytest.mark.parametrize("raw", [False, True])
def test_edges_of_what_can_be_fitted(method, raw):
    certain = binary(
        [0.0] * 40 + [1.0] * 40 + [0.4] * 40, [0] * 30 + [1] * 10 + [1] * 35 + [0] * 5 + [0, 1] * 20
    )
    cases = {
        "unlabelled": Batch.from_columns({"confidences": [0.2, 0.7]}).batch,
        "three": binary([0.2, 0.5, 0.9], [0, 1, 1]),
        "one_class": binary([0.2, 0.5, 0.9] * 20, [1] * 60),
        "constant": binary([0.3] * 60, [0, 0, 1] * 20),
        "separable": binary([0.2, 0.3, 0.8, 0.9] * 20, [0, 0, 1, 1] * 20),
        "touching": binary([0.2, 0.5, 0.5, 0.9] * 20, [0, 0, 1, 1] * 20),
        "certain": certain,
        "weightless": binary([0.2, 0.8] * 20, [0, 1] * 20, weights=[0.0] * 40),
    }
    for name, batch in cases.items():
        answer = fitted(method, batch, raw=raw)
        assert plain(answer) and json.dumps(answer, allow_nan=False)
        assert (answer["parameters"] is None) == (answer["reason"] is not None), name
        if answer["parameters"] is not None:
            mapped = apply(answer, batch)
            assert ((mapped >= 0) & (mapped <= 1)).all()
        elif name not in ("unlabelled", "weightless"):
            assert answer["detail"]
    assert fitted(method, cases["unlabelled"], raw=raw)["reason"] == "no_labels"
    assert fitted(method, cases["weightless"], raw=raw)["reason"] == "no_labels"
    three = fitted(method, cases["three"], raw=raw)
    assert "few_units" in three["warnings"] or three["reason"] in ("separable", "few_rows")


@pytest.mark.parametrize("method", ["platt", "beta", "scaling_binning"])
def test_curves_name_the_reason(method):
    reasons = {
        "one_class": binary([0.2, 0.5, 0.9] * 20, [1] * 60),
        "constant_scores": binary([0.3] * 60, [0, 0, 1] * 20),
        "separable": binary([0.2, 0.5, 0.5, 0.9] * 20, [0, 0, 1, 1] * 20),
        "no_labels": Batch.from_columns({"confidences": [0.2]}).batch,
    }
    for reason, batch in reasons.items():
        answer = fitted(method, batch)
        assert answer["parameters"] is None and answer["reason"] == reason and answer["detail"]
        assert answer["heldout"] is None and answer["heldout_reason"] == reason


def test_an_empty_pane_is_no_data_not_zero():
    for method in MAPS:
        answer = fit(method, View(Pane(PaneSpec("multiclass", 3)), Question()))
        assert answer["n"] == 0 and answer["reason"] == "no_labels" and answer["before"] is None


def test_platt_may_fall_and_says_so():
    p, y = scores_and_labels(2000, slope=-0.8)
    assert "decreasing" in fitted("platt", binary(p, y))["warnings"]
    assert fitted("scaling_binning", binary(p, y))["reason"] == "decreasing"
    assert fitted("beta", binary(p, y))["parameters"]["a"] == 0.0


def test_histogram_bins_without_data_keep_their_middle():
    answer = fitted("histogram", binary([0.05] * 30, [0, 1, 1] * 10), options=Options(bins=15))
    assert answer["parameters"]["values"][0] == pytest.approx(2 / 3)
    assert answer["parameters"]["values"][7] == pytest.approx(0.5)
    assert answer["n_empty_bins"] == 14 and "empty_bins" in answer["warnings"]


def test_plain_histograms_feed_histogram_binning_and_nothing_else():
    spec = PaneSpec("binary", 2)
    pane = Pane(spec)
    columns = {
        "count": [10.0] * 3600,
        "sum_confidence": [10 * (k + 0.5) / 3600 for k in range(3600)],
    }
    columns["sum_correct"] = [10 * ((k + 0.5) / 3600) ** 2 for k in range(3600)]
    fields = {"kind": "positive", "bins": 3600, "edges": "right", "raters": "pooled"}
    pane.fill_histogram(Histogram.from_fields(fields | columns, spec))
    for method in MAPS:
        answer = fit(method, View(pane, Question()))
        if method == "histogram":
            assert answer["parameters"]["values"][14] == pytest.approx((14.5 / 15) ** 2, abs=1e-3)
            assert answer["heldout_reason"] == "not_in_histogram"
        else:
            assert answer["reason"] == "not_in_histogram" and answer["n_excluded"] == 36000.0


def test_a_class_that_is_not_kept_is_named():
    batch = many_classes(200, 5)
    view = View(pane_of(batch, listed_classes=(1,)), Question(scope="class:2"))
    assert fit("platt", view)["reason"] == "class_not_kept"
    with pytest.raises(CalibrationInputError):
        fit("temperature", view)
    with pytest.raises(CalibrationInputError):
        fit("spline", view)


# Held-out numbers


@pytest.mark.parametrize("method", [*ONE_SCORE, "temperature"])
def test_held_out_gain_covers_what_fresh_data_show(method):
    p, y = scores_and_labels(6000, seed=11)
    fresh, labels = scores_and_labels(60_000, seed=12)
    answer = fitted(method, binary(p, y))
    gain = (
        naive_losses(fresh, labels)["brier"]
        - naive_losses(apply(answer, binary(fresh, labels)), labels)["brier"]
    )
    low, high = answer["heldout"]["gain"]["brier"]["interval"]
    assert low - 1e-3 <= gain <= high + 1e-3
    assert answer["heldout"]["table_bins"] == 60 and answer["heldout"]["n_replicates"] == 64


def test_held_out_needs_enough_replicates_and_kept_tables():
    p, y = scores_and_labels(15)
    y[:8], y[8:] = np.arange(8) % 2, np.arange(7) % 2
    assert fitted("isotonic", binary(p, y))["heldout_reason"] == "few_units"
    batch = many_classes(500)
    assert fitted("platt", batch, scope="class:1")["heldout"]["table_bins"] == 15
    found = fitted("temperature", batch)
    assert found["heldout"]["gain"]["nll"]["interval"][0] > 0
    assert found["heldout"]["sample"]["n_drawn_from"] == 500
    assert found["heldout"]["n"] == found["heldout"]["sample"]["n"] > 200


# Of all maps


@pytest.mark.parametrize("method", list(MAPS))
def test_needs_names_what_is_read(method):
    batch = many_classes(300)
    for scope in (None, "top_label", "class:1"):
        if "full" in MAPS[method].scopes and scope == "class:1":
            continue
        pane = pane_of(batch)
        some = Pane.from_parts(pane.spec, pane.parts(), only=needs(method, pane.spec, scope))
        view, whole = View(some, Question(scope=scope)), View(pane, Question(scope=scope))
        assert fit(method, view) == fit(method, whole)


@pytest.mark.parametrize(
    "options", [Options(bins=0), Options(bins=5000), Options(binning="deciles")]
)
def test_options_out_of_range_are_refused(options):
    p, y = scores_and_labels(50)
    with pytest.raises(CalibrationInputError):
        fitted("histogram", binary(p, y), options=options)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1e-12, 0.25, 0.3, 1 / 3, 0.5, 0.999, 1]), st.integers(0, 1)),
        min_size=1,
    ),
    st.sampled_from(list(MAPS)),
)
def test_any_rows_give_a_map_or_a_reason(rows, method):
    batch = binary([p for p, _ in rows], [y for _, y in rows])
    answer = fitted(method, batch)
    json.dumps(answer, allow_nan=False)
    if answer["parameters"] is None:
        assert answer["reason"]
    else:
        mapped = apply(answer, batch)
        assert ((mapped >= 0) & (mapped <= 1)).all()


# Maps of whole rows


ROWS = ["vector", "class_temperature", "dirichlet"]


def second_version(method, logits, share, regularisation=1e-2, clip=1e-12):
    """The same optimum by another road: BFGS on the penalised mean NLL, gradient by hand, started elsewhere."""
    k = logits.shape[1]
    x = np.maximum(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), np.log(clip))
    total = share.sum()

    def unpacked(theta):
        if method == "vector":
            return np.diag(theta[:k]), theta[k:]
        if method == "class_temperature":
            return np.diag(theta), np.zeros(k)
        return theta[: k * k].reshape(k, k), theta[k * k :]

    def loss(theta):
        matrix, b = unpacked(theta)
        p = softmax(x @ matrix.T + b, axis=1)
        residual = (share.sum(axis=1)[:, None] * p - share) / total
        value, g_matrix, g_b = (
            -(xlogy(share, p)).sum() / total,
            residual.T @ x,
            residual.sum(axis=0),
        )
        if method == "vector":
            return value, np.concatenate([np.diag(g_matrix), g_b])
        if method == "class_temperature":
            return value, np.diag(g_matrix)
        off = matrix * (1 - np.eye(k))
        value += regularisation * ((off**2).sum() / (k * (k - 1)) + (b**2).sum() / k)
        g_matrix = g_matrix + 2 * regularisation * off / (k * (k - 1))
        return value, np.concatenate([g_matrix.ravel(), g_b + 2 * regularisation * b / k])

    start = {
        "vector": np.append(np.full(k, 0.8), np.zeros(k)),
        "class_temperature": np.full(k, 0.8),
        "dirichlet": np.append(0.8 * np.eye(k).ravel(), np.zeros(k)),
    }[method]
    found = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 3000})
    return (*unpacked(found.x), found.fun)


@pytest.mark.parametrize("method", ROWS)
@pytest.mark.parametrize("raw", [False, True])
def test_maps_of_rows_equal_an_independent_fit_on_raw_rows(method, raw):
    batch = many_classes(390, 4, raters=2)
    answer = fitted(method, batch, raw=raw)
    share = batch.label_counts.astype(float)
    matrix, intercepts, least = second_version(method, batch.scores, share)
    found = answer["parameters"]
    if not raw:
        assert answer["fitted_to"] == "sample" and answer["sample"]["complete"]
    if method == "vector":
        assert found["slopes"] == pytest.approx(np.diag(matrix), abs=1e-6)
        assert found["intercepts"] == pytest.approx(intercepts - intercepts.mean(), abs=1e-6)
    elif method == "class_temperature":
        assert found["temperatures"] == pytest.approx(1 / np.diag(matrix), rel=1e-6)
    else:
        assert np.array(found["matrix"]) == pytest.approx(matrix, abs=1e-6)
        assert found["intercepts"] == pytest.approx(intercepts, abs=1e-6)
    assert answer["objective_after"] == pytest.approx(least, abs=1e-12)
    assert answer["objective_after"] < answer["objective_before"]
    assert answer["gradient_norm"] < 1e-11 and answer["converged"] and not answer["at_bound"]
    assert answer["after"]["nll"] < answer["before"]["nll"]


@pytest.mark.parametrize("method", ROWS)
def test_maps_of_rows_sum_to_one(method):
    batch = many_classes(390, 4)
    answer = json.loads(json.dumps(fitted(method, batch)))
    assert answer["scope"] == "full"
    assert apply(answer, batch).sum(axis=1) == pytest.approx(np.ones(390), abs=1e-14)


@pytest.mark.parametrize("raters", ["pooled", "mean", "majority", "single"])
def test_a_complete_sample_gives_the_fit_to_the_raw_rows(raters):
    batch = many_classes(300, 3)
    for method in (*ROWS, "temperature"):
        kept = fitted(method, batch, raters=raters)
        exact = fitted(method, batch, raw=True, raters=raters)
        assert apply(kept, batch) == pytest.approx(apply(exact, batch), abs=1e-8)
    kept, exact = (fitted("temperature", batch, raw=raw)["parameters"] for raw in (False, True))
    assert kept["temperature"] == pytest.approx(exact["temperature"], rel=1e-8)


def test_standard_errors_cover():
    """Ninety-five in a hundred intervals hold the slope that made the labels."""
    rng = np.random.default_rng(4)
    held = np.zeros(3)
    for _ in range(150):
        z = rng.normal(size=(300, 3)) * 2
        p = softmax(z * [0.7, 1.0, 1.3] + [0.3, 0.0, -0.3], axis=1)
        labels = (p.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)
        x = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        scaled = softmax(x * [0.7, 1.0, 1.3] + [0.3, 0.0, -0.3], axis=1)
        labels = (scaled.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)
        answer = fitted(
            "vector", Batch.from_columns({"logits": z, "labels": labels}).batch, raw=True
        )
        slopes, errors = (
            np.array(answer[a][b])
            for a, b in (("parameters", "slopes"), ("standard_errors", "slopes"))
        )
        held += np.abs(slopes - [0.7, 1.0, 1.3]) < 1.96 * errors
    assert (held / 150 > 0.88).all() and (held / 150 <= 1.0).all()


def test_maps_of_rows_name_the_reason():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 300)
    label = (p.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)

    def reason(method, rows, labels, **more):
        columns = {"probabilities": rows, "labels": labels, **more}
        answer = fitted(method, Batch.from_columns(columns).batch, raw=True)
        assert (answer["parameters"] is None) == (answer["reason"] is not None)
        return answer["reason"]

    for method in ("vector", "dirichlet"):
        assert reason(method, p[:4], label[:4]) == "few_rows"
        assert reason(method, p, label, units=["u"] * 300) == "few_rows"
        assert reason(method, p, np.zeros(300, int)) == "one_class"
        assert reason(method, p, np.minimum(label, 1)) == "missing_class"
        assert reason(method, np.full((300, 3), 1 / 3), label) == "constant_scores"
        assert reason(method, p, p.argmax(axis=1)) == "separable"
    assert reason("class_temperature", p[:4], [0, 1, 2, 0]) == "few_rows"
    answer = fitted(
        "class_temperature",
        Batch.from_columns({"probabilities": p, "labels": p.argmin(axis=1)}).batch,
    )
    assert answer["at_bound"] and "at_bound" in answer["warnings"]
    assert max(answer["parameters"]["temperatures"]) == pytest.approx(32)
    ties = np.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]] * 150)
    for method in ROWS:
        reason(method, ties, label)
        reason(method, np.eye(3)[label], np.roll(label, 1))
        reason(method, np.eye(3)[rng.integers(0, 3, 300)], label)


def test_a_part_of_the_rows_is_said_to_be_one():
    batch = many_classes(5000, 5)
    answer = fitted("vector", batch)
    sample = answer["sample"]
    assert not sample["complete"] and sample["n"] < sample["n_drawn_from"] == 5000
    assert sample["threshold"] == 2.0 ** round(np.log2(sample["threshold"])) < 0.2
    whole = fitted("vector", batch, raw=True)
    slopes, errors = answer["parameters"]["slopes"], answer["standard_errors"]["slopes"]
    for mine, theirs, error in zip(slopes, whole["parameters"]["slopes"], errors, strict=True):
        assert abs(mine - theirs) < 4 * error


# Proof of the optimum


@pytest.mark.parametrize("method", ["platt", "beta"])
def test_curves_prove_their_optimum_and_tell_how_sure_they_are(method):
    p, y = scores_and_labels(3000)
    answer = fitted(method, binary(p, y), raw=True)
    names = [name for name in answer["parameters"] if name != "clip"]
    q = np.clip(p, 1e-12, 1 - 1e-12)
    x = np.column_stack({"platt": [logit(q)], "beta": [np.log(q), -np.log1p(-q)]}[method] + [np.ones(len(p))])
    at = np.array([answer["parameters"][name] for name in names])

    def loss(theta):
        return -np.mean(xlogy(y, expit(x @ theta)) + xlog1py(1 - y, -expit(x @ theta)))

    identity = np.append(np.ones(x.shape[1] - 1), 0.0)
    assert answer["objective_before"] == pytest.approx(loss(identity), rel=1e-9)
    assert answer["objective_after"] == pytest.approx(loss(at), rel=1e-12)
    assert answer["gradient_norm"] < 1e-10 and answer["iterations"] > 1 and not answer["at_bound"]
    h = expit(x @ at) * (1 - expit(x @ at))
    known = np.sqrt(np.diag(np.linalg.inv((x.T * h) @ x)))
    assert [answer["standard_errors"][name] for name in names] == pytest.approx(known, rel=1e-6)


@pytest.mark.parametrize("raw", [True, False])
def test_further_raters_of_a_prediction_make_a_curve_no_surer_than_one(raw):
    """Five equal votes a prediction are one observation of it, and so is one."""
    p, y = scores_and_labels(1500)
    once = fitted("platt", binary(p, y), raw=raw)
    often = fitted("platt", binary(p, [[each] * 5 for each in y.tolist()]), raw=raw)
    assert often["parameters"] == pytest.approx(once["parameters"], rel=1e-9)
    assert often["standard_errors"] == pytest.approx(once["standard_errors"], rel=1e-6)


def test_a_coefficient_at_its_bound_has_no_standard_error():
    rng = np.random.default_rng(5)
    p = rng.uniform(0.02, 0.98, 4000)
    y = (rng.random(4000) < 0.8 - 0.6 * np.abs(p - 0.35)).astype(int)
    held = fitted("beta", binary(p, y))
    assert held["at_bound"] and [held["standard_errors"][n] is None for n in "abc"] == [
        held["parameters"][n] == 0.0 for n in "abc"
    ]


@pytest.mark.parametrize("objective", ["nll", "brier"])
@pytest.mark.parametrize("raw", [True, False])
def test_a_temperature_proves_its_optimum(objective, raw):
    batch = many_classes(600, 4)
    if raw:
        answer = fit_temperature_exact(batch, objective=objective)
    else:
        answer = fit_temperature(pane_of(batch), objective=objective)
    assert answer["gradient_norm"] < 1e-12 and answer["iterations"] > 1
    assert answer["objective_before"] == answer["before"][objective]
    assert answer["objective_after"] == answer["after"][objective] < answer["objective_before"]
    searched = fit_temperature(pane_of(batch), objective="ece")
    assert searched["gradient_norm"] is None and searched["iterations"] == 1901
