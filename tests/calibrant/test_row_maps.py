"""Calibration maps of whole rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import softmax, xlogy

from calibrant.calibrators import Options, apply
from calibrant.core.batch import Batch
from tests.calibrant.map_rows import fitted, many_classes

ROWS = ["vector", "class_temperature", "dirichlet"]


STRENGTH = 0.02


def second_version(method, logits, share, clip=1e-12):
    """The same optimum by another road: BFGS on the penalised mean NLL, gradient by hand, started elsewhere."""
    k = logits.shape[1]
    x = np.maximum(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), np.log(clip))
    total = share.sum()
    weight = share.sum(axis=1)
    beta = brentq(
        lambda beta: weight @ (softmax(beta * x, axis=1) * x).sum(axis=1) - (share * x).sum(),
        0.1,
        10,
        xtol=1e-15,
    )
    n_free = {"vector": 2 * k, "class_temperature": k, "dirichlet": k * (k + 1)}[method]

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
        away = matrix / beta - np.eye(k)
        value += STRENGTH / n_free * ((away**2).sum() + (b**2).sum())
        g_matrix = g_matrix + 2 * STRENGTH / n_free * away / beta
        g_b = g_b + 2 * STRENGTH / n_free * b
        if method == "vector":
            return value, np.concatenate([np.diag(g_matrix), g_b])
        if method == "class_temperature":
            return value, np.diag(g_matrix)
        return value, np.concatenate([g_matrix.ravel(), g_b])

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
    batch = many_classes(450, 4, raters=2)
    answer = fitted(method, batch, raw=raw, options=Options(regularisation=STRENGTH))
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
    assert answer["regularisation"] == STRENGTH
    assert answer["gradient_norm"] < 1e-11 and answer["converged"] and not answer["at_bound"]
    assert answer["after"]["nll"] < answer["before"]["nll"]


@pytest.mark.parametrize("method", ROWS)
def test_maps_of_rows_sum_to_one(method):
    batch = many_classes(420, 4)
    answer = json.loads(json.dumps(fitted(method, batch)))
    assert answer["scope"] == "full"
    assert apply(answer, batch).sum(axis=1) == pytest.approx(np.ones(420), abs=1e-14)


# Each method with one or two policies, each policy with one or two methods; the other pairs are slow.
@pytest.mark.parametrize(("method", "raters"), [
    pytest.param(method, raters, marks=[] if (at + place) % 3 == 0 else [pytest.mark.slow])
    for at, method in enumerate((*ROWS, "temperature"))
    for place, raters in enumerate(("pooled", "mean", "majority", "single"))
])  # fmt: skip
def test_a_complete_sample_gives_the_fit_to_the_raw_rows(method, raters):
    batch = many_classes(300, 3)
    kept = fitted(method, batch, raters=raters, evaluate=False)
    exact = fitted(method, batch, raw=True, raters=raters, evaluate=False)
    assert apply(kept, batch) == pytest.approx(apply(exact, batch), abs=1e-8)


def test_a_complete_sample_gives_the_temperature_of_the_raw_rows():
    batch = many_classes(300, 3)
    kept, exact = (fitted("temperature", batch, raw=raw)["parameters"] for raw in (False, True))
    assert kept["temperature"] == pytest.approx(exact["temperature"], rel=1e-8)


def test_standard_errors_cover():
    """Ninety-five in a hundred intervals hold the slope that made the labels."""
    rng = np.random.default_rng(4)
    n_runs, held = 80, np.zeros(3)
    for _ in range(n_runs):
        z = rng.normal(size=(300, 3)) * 2
        p = softmax(z * [0.7, 1.0, 1.3] + [0.3, 0.0, -0.3], axis=1)
        labels = (p.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)
        x = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        scaled = softmax(x * [0.7, 1.0, 1.3] + [0.3, 0.0, -0.3], axis=1)
        labels = (scaled.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)
        answer = fitted(
            "vector", Batch.from_columns({"logits": z, "labels": labels}).batch, raw=True,
            options=Options(regularisation=1e-8), evaluate=False,
        )  # fmt: skip
        slopes, errors = (
            np.array(answer[a][b])
            for a, b in (("parameters", "slopes"), ("standard_errors", "slopes"))
        )
        held += np.abs(slopes - [0.7, 1.0, 1.3]) < 1.96 * errors
    assert (held / n_runs > 0.88).all() and (held / n_runs <= 1.0).all()


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
        assert reason(method, np.full((300, 3), 1 / 3), label) == "constant_scores"
        assert reason(method, p, p.argmax(axis=1)) == "separable"
    assert reason("class_temperature", p[:4], [0, 1, 2, 0]) == "few_rows"
    assert reason("class_temperature", p, p.argmin(axis=1)) == "at_bound"
    ties = np.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]] * 150)
    for method in ROWS:
        reason(method, ties, label)
        reason(method, np.eye(3)[label], np.roll(label, 1))
        reason(method, np.eye(3)[rng.integers(0, 3, 300)], label)


def test_a_part_of_the_rows_is_said_to_be_one():
    batch = many_classes(5000, 4)
    answer = fitted("vector", batch)
    sample = answer["sample"]
    assert not sample["complete"] and sample["n"] < sample["n_drawn_from"] == 5000
    assert sample["threshold"] == 2.0 ** round(np.log2(sample["threshold"])) < 0.2
    complete = fitted("vector", batch, raw=True)
    slopes, errors = answer["parameters"]["slopes"], answer["standard_errors"]["slopes"]
    for mine, theirs, error in zip(slopes, complete["parameters"]["slopes"], errors, strict=True):
        assert abs(mine - theirs) < 4 * error
