"""The gate of promotion: a candidate's gain over the current map against a naive count, unit by unit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, log_softmax, logit, softmax
from scipy.stats import t as student

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators.map_comparison import compare


def temperature(value: float) -> dict[str, object]:
    return {
        "method": "temperature",
        "scope": "positive",
        "class": None,
        "parameters": {"temperature": value},
    }


def test_the_gain_is_the_current_loss_less_the_candidates_by_unit() -> None:
    rng = np.random.default_rng(3)
    score, unit = rng.uniform(0.02, 0.98, 480), np.repeat(np.arange(160), 3)
    labels = (rng.random(480) < expit(logit(score) / 6.0)).astype(int)
    columns = {"confidences": score, "labels": labels, "ids": [f"i{i}" for i in range(480)]}
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(Batch.from_columns(columns | {"units": [f"u{i}" for i in unit]}).batch)

    def loss(value: float) -> np.ndarray:
        p = expit(logit(score) / value)
        return -np.where(labels == 1, np.log(p), np.log1p(-p))

    by_unit = (loss(1.2) - loss(2.5)).reshape(160, 3).mean(axis=1)
    reach = student.ppf(0.975, 159) * by_unit.std(ddof=1) / np.sqrt(160)
    found = compare(temperature(1.2), temperature(2.5), pane)
    assert found["n_units"] == 160
    assert found["gain"]["nll"]["value"] == pytest.approx(by_unit.mean(), abs=1e-12)
    assert found["gain"]["nll"]["interval"] == pytest.approx(
        [by_unit.mean() - reach, by_unit.mean() + reach], abs=1e-12
    )
    assert by_unit.mean() - reach > 0 and found["beats"]
    back = compare(temperature(2.5), temperature(1.2), pane)
    assert not back["beats"] and back["reason"] == "not_better"
    assert back["gain"]["nll"]["value"] == pytest.approx(-by_unit.mean(), abs=1e-12)


def test_a_gain_that_chance_explains_is_not_better() -> None:
    """The mean gain is positive, and the interval of 120 units contains 0."""
    rng = np.random.default_rng(11)
    score = rng.uniform(0.02, 0.98, 120)
    labels = (rng.random(120) < expit(logit(score) / 1.6)).astype(int)
    columns = {"confidences": score, "labels": labels, "ids": [f"i{i}" for i in range(120)]}
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(Batch.from_columns(columns).batch)
    found = compare(temperature(1.0), temperature(1.2), pane)
    low, high = found["gain"]["nll"]["interval"]
    assert found["gain"]["nll"]["value"] > 0.0 and low < 0.0 < high
    assert not found["beats"] and found["reason"] == "not_better"


@pytest.mark.parametrize("betas", [(1.0, 0.5), (0.5, 0.4), (0.4, 0.6)])
@pytest.mark.parametrize("n_classes", [5, 1200])
def test_two_temperatures_are_distinguished_by_all_of_a_window(
    betas: tuple[float, float], n_classes: int
) -> None:
    """A day with a sample of a small part of its rows; with 1,200 classes, no sample is stored."""
    rng = np.random.default_rng(0)
    n = 5000 if n_classes == 5 else 300
    z = rng.normal(size=(n, n_classes)) * 3
    labels = (softmax(0.5 * z, axis=1).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    pane = Pane(PaneSpec("multiclass", n_classes))
    columns = {"logits": z, "labels": labels, "ids": [f"i{i}" for i in range(n)]}
    pane.fill_batch(Batch.from_columns(columns, n_classes=n_classes).batch)
    maps = [
        None
        if beta == 1.0
        else {
            "method": "temperature",
            "scope": "full",
            "class": None,
            "parameters": {"temperature": 1 / beta},
        }
        for beta in betas
    ]
    found = compare(maps[0], maps[1], pane)
    rows = np.arange(n)
    gains = (
        log_softmax(betas[1] * z, axis=1)[rows, labels]
        - log_softmax(betas[0] * z, axis=1)[rows, labels]
    )
    value, (low, high) = found["gain"]["nll"]["value"], found["gain"]["nll"]["interval"]
    assert value == pytest.approx(gains.mean(), abs=1e-6)
    smallest = student.ppf(0.975, n - 1) * np.sqrt((gains**2).mean() / n)
    assert smallest * 0.99 < (high - low) / 2 < smallest * 1.15
    assert (
        found["beats"] == (gains.mean() > (high - low) / 2) and found["n"] == found["n_units"] == n
    )
    if n_classes == 5:
        assert found["sample"]["n"] == found["sampled"]["n"] < 500
        assert found["sampled"]["gain"]["brier"]["interval"] is not None
    else:
        assert found["sample"] is None and found["sampled"] is None


def test_other_maps_are_compared_on_the_sample() -> None:
    rng = np.random.default_rng(0)
    score = rng.uniform(0.02, 0.98, 4000)
    labels = (rng.random(4000) < expit(logit(score) / 2)).astype(int)
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(
        Batch.from_columns(
            {"confidences": score, "labels": labels, "ids": [f"i{i}" for i in range(4000)]}
        ).batch
    )
    curve = {
        "method": "platt",
        "scope": "positive",
        "class": None,
        "parameters": {"slope": 0.5, "intercept": 0.0, "clip": 1e-12},
    }
    found = compare(temperature(1.0), curve, pane)
    assert found["n"] == found["sample"]["n"] < 1000 and "sampled" not in found
    assert compare(temperature(1.0), temperature(40.0), pane)["n"] == found["n"]
    same = compare(temperature(1.0), temperature(2.0), pane)
    assert same["n"] == 4000 and same["gain"]["nll"]["value"] == pytest.approx(
        found["gain"]["nll"]["value"], rel=0.5
    )
