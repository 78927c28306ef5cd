"""Temperatures beyond the stored range: found from rows, advised from state; labels without a temperature are named as they are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

import calibrant as cal
from calibrant import Pane


def _labels(p, rng):
    return (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(0, p.shape[1] - 1)


def _quantised(temperature=38.9, n=3000):
    """Whole logits between -128 and 127, whose labels have the given temperature."""
    rng = np.random.default_rng(0)
    z = np.clip(np.round(rng.normal(size=(n, 4)) * 60), -128, 127)
    return z, _labels(softmax(z / temperature, axis=1), rng)


def _naive(z, labels):
    def loss(log_t):
        return -log_softmax(z / np.exp(log_t), axis=1)[np.arange(len(z)), labels].sum()

    low, high = np.log(np.abs(z).max()) - 8, np.log(np.abs(z).max()) + 3
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return np.exp(found.x)


@pytest.mark.parametrize("scale", [1.0, 50.0, 1e-3, 1e-4])
def test_rows_have_the_range_that_their_logits_need(scale):
    z, labels = _quantised()
    found = cal.fit_temperature(logits=z * scale, labels=labels).to_dict()
    assert found["temperature"] == pytest.approx(_naive(z * scale, labels), rel=1e-6)
    assert found["verdict"] == "ok" and not found["at_bound"]
    low, high = found["interval"]
    assert low < found["temperature"] < high and low > found["range"][0]
    plain = cal.fit_temperature(logits=z / 40, labels=labels).to_dict()
    for name in ("temperature", "standard_error"):
        assert found[name] == pytest.approx(plain[name] * 40 * scale, rel=1e-6)
    assert found["after"] == pytest.approx(plain["after"], rel=1e-9)
    json.dumps(found, allow_nan=False)


def test_margins_of_a_hundred_thousand_have_their_temperature():
    margin = np.r_[np.full(670, 1e5), np.full(330, -1e5)]
    labels = np.r_[np.zeros(70), np.ones(600), np.zeros(330)].astype(int)
    rows = np.c_[-margin / 2, margin / 2]
    found = cal.fit_temperature(logits=rows, labels=labels).to_dict()
    assert found["temperature"] == pytest.approx(1e5 / np.log(0.93 / 0.07), rel=1e-9)
    state = Pane.fill(logits=rows, labels=labels).temperature().to_dict()
    assert (state["temperature"], state["reason"]) == (None, "beyond_grid")
    assert "divide the logits by 500" in state["detail"] and "unrelated" not in state["detail"]


@pytest.mark.parametrize("raters", ["pooled", "single"])
def test_several_raters_choose_the_same_ratings_at_any_scale(raters):
    rng = np.random.default_rng(1)
    z, _ = _quantised(n=400)
    p = softmax(z / 38.9, axis=1)
    labels = np.stack([_labels(p, rng) for _ in range(3)], axis=1)
    wide = cal.fit_temperature(logits=z, labels=labels, raters=raters).to_dict()
    plain = cal.fit_temperature(logits=z / 40, labels=labels, raters="pooled").to_dict()
    assert wide["temperature"] > 20
    if raters == "pooled":
        assert wide["temperature"] == pytest.approx(plain["temperature"] * 40, rel=1e-6)
    ids = [f"i{i}" for i in range(400)]
    ones = [
        cal.fit_temperature(logits=z / s, labels=labels, raters=raters, ids=ids).to_dict()
        for s in (1, 40)
    ]
    assert ones[0]["temperature"] == pytest.approx(ones[1]["temperature"] * 40, rel=1e-6)


@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_state_advises_a_divisor_that_gives_the_temperature(objective):
    z, labels = _quantised()
    state = Pane.fill(logits=z, labels=labels).temperature(objective=objective).to_dict()
    assert state["temperature"] is state["interval"] is state["after"] is None
    assert state["reason"] == state["verdict"] == "beyond_grid"
    divisor = float(state["detail"].split("divide the logits by ")[1].split(",")[0])
    again = Pane.fill(logits=z / divisor, labels=labels).temperature(objective=objective)
    exact = cal.fit_temperature(logits=z, labels=labels, objective=objective)
    assert float(again) * divisor == pytest.approx(float(exact), rel=1e-4)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_unrelated_and_inverse_labels_have_no_temperature(seed, n_classes):
    rng = np.random.default_rng([2, seed])
    p = rng.dirichlet(np.ones(n_classes), 1500)
    chance = 1 / p
    inverse = _labels(chance / chance.sum(axis=1, keepdims=True), rng)
    for labels, codes in (
        (rng.integers(0, n_classes, 1500), {"unrelated"}),
        (inverse, {"inverse"}),
    ):
        for found in (cal.fit_temperature(p, labels), Pane.fill(p, labels).temperature()):
            if found.value is not None and "unrelated" in codes:
                # By chance the labels favour a finite temperature; then it is far above 1.
                assert found.value > 4
                continue
            assert found.value is None and found.to_dict()["reason"] in codes
