"""Maps with several parameters per class, shrunk to the temperature: when they are fitted, and what they shrink to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from calibrant.accumulators.sample import MAX_PANE_BYTES, WINDOW_BYTES
from calibrant.calibrators import Options, apply, fit
from calibrant.calibrators.labelled_rows import labelled_rows
from calibrant.calibrators.linear_maps import CLASS_TEMPERATURE, DIRICHLET, VECTOR
from calibrant.calibrators.row_losses import row_losses
from calibrant.calibrators.shrinkage import (
    MIN_CLASS_UNITS,
    STRENGTHS,
    UNITS_A_PARAMETER,
    clipped,
    left_out_losses,
    units_of_classes,
)
from calibrant.calibrators.softmax import MAX_CURVED, SoftmaxObjective, SoftmaxPoints, fit_softmax
from calibrant.core.batch import Batch
from calibrant.core.query import PaneQuery
from calibrant.core.sampled_rows import RATING_BYTES, ROW_BYTES
from calibrant.core.view import View
from tests.calibrant.map_rows import fitted, many_classes, pane_of

METHODS = {"class_temperature": 4, "vector": 8, "dirichlet": 20}  # free parameters of four classes


def simulated(n, slopes, intercepts, seed=1, rare=None, n_units=None):
    """Labels drawn from known maps of the scores that are sent; the last class may be rare."""
    rng = np.random.default_rng(seed)
    k = len(slopes)
    z = rng.normal(size=(n, k)) * 2
    if rare is not None:
        z[:, -1] += np.log(rare)
    x = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    chance = softmax(x * np.array(slopes) + np.array(intercepts), axis=1)
    columns = {
        "logits": z,
        "labels": (chance.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1),
        "ids": [f"{seed}.{i}" for i in range(n)],
    }
    if n_units is not None:
        columns["units"] = [f"{seed}.{i % n_units}" for i in range(n)]
    return Batch.from_columns(columns).batch


def nll(batch, answer):
    rows = labelled_rows(batch, 0)
    return row_losses(rows, apply(answer, batch))["nll"]


@pytest.mark.parametrize(("method", "n_parameters"), METHODS.items())
def test_a_fit_needs_twenty_units_a_parameter_and_says_how_many(method, n_parameters):
    needed = 20 * n_parameters
    assert UNITS_A_PARAMETER == MIN_CLASS_UNITS == 20
    slopes, intercepts = [0.6, 0.9, 1.1, 1.3], [0.0, 0.1, 0.2, -0.1]
    for n_units in (needed - 1, needed):
        batch = simulated(2 * needed, slopes, intercepts, n_units=n_units)
        answer = fitted(method, batch, raw=True)
        assert answer["n_parameters"] == n_parameters
        assert (answer["n_units_needed"], answer["n_units_fitted"]) == (needed, n_units)
        assert answer["reason"] == ("few_rows" if n_units < needed else None)
        assert (answer["parameters"] is None) == (n_units < needed)


@pytest.mark.parametrize("method", METHODS)
def test_a_rare_class_keeps_the_temperature(method):
    batch = simulated(2500, [0.6, 0.9, 1.2, 1.0], [0.0, 0.3, -0.3, 0.0], rare=0.002)
    units = units_of_classes(labelled_rows(batch, 0))
    assert 0 < units[3] < MIN_CLASS_UNITS <= units[:3].min()
    answer = fitted(method, batch, raw=True)
    assert answer["classes_at_temperature"] == [3]
    assert "classes_at_temperature" in answer["warnings"]
    found, beta = answer["parameters"], 1.0 / answer["temperature"]
    if method == "class_temperature":
        assert found["temperatures"][3] == pytest.approx(answer["temperature"], rel=1e-12)
    elif method == "vector":
        assert found["slopes"][3] == pytest.approx(beta, rel=1e-12)
    else:
        assert found["matrix"][3] == pytest.approx([0, 0, 0, beta], abs=1e-12)
        assert found["intercepts"][3] == 0.0


def test_a_class_without_a_rating_keeps_the_temperature():
    batch = simulated(1500, [0.6, 0.9, 1.2, 1.0], [0.0, 0.3, -0.3, 0.0], rare=1e-9)
    answer = fitted("vector", batch, raw=True)
    assert answer["reason"] is None and answer["classes_at_temperature"] == [3]


@pytest.mark.parametrize("method", METHODS)
def test_strong_shrinkage_is_the_temperature_and_weak_is_none(method):
    batch = many_classes(600, 4)
    strong = fitted(method, batch, raw=True, options=Options(regularisation=1e8))
    common = fitted("temperature", batch, raw=True)
    assert apply(strong, batch) == pytest.approx(apply(common, batch), abs=1e-6)
    weak = [
        fitted(method, batch, raw=True, options=Options(regularisation=each), evaluate=False)[
            "after"
        ]["nll"]
        for each in (1e-8, 1e-5, 1e-2, 1.0)
    ]
    assert weak == sorted(weak)


@pytest.mark.parametrize("n_units", [None, 60])
def test_a_unit_left_out_to_second_order_is_a_unit_left_out(n_units):
    """Against fits without each unit in turn."""
    batch = simulated(240, [0.6, 0.9, 1.2], [0.2, 0.0, -0.2], n_units=n_units)
    rows = labelled_rows(batch, 0)
    form = VECTOR.form(np.ones(3, bool), 0.8)
    objective = SoftmaxObjective(SoftmaxPoints(rows, clipped(rows.logits)), form)
    at = fit_softmax(objective).parameters
    found = left_out_losses(objective, at)
    expected = np.zeros(rows.n_units)
    own = np.bincount(rows.unit, row_losses(rows, objective.probabilities(at).T)["nll"])
    for unit in range(rows.n_units):
        others, mine = (
            rows.take(np.flatnonzero(each)) for each in (rows.unit != unit, rows.unit == unit)
        )
        # The penalty is per weight of all rows: it is the same without the unit.
        scale = rows.weight.sum() / others.weight.sum()
        alone = VECTOR.form(np.ones(3, bool), 0.8)
        object.__setattr__(alone, "penalty", alone.penalty * scale)
        fit = fit_softmax(SoftmaxObjective(SoftmaxPoints(others, clipped(others.logits)), alone))
        given = SoftmaxObjective(SoftmaxPoints(mine, clipped(mine.logits)), alone).probabilities(
            fit.parameters
        )
        expected[unit] = row_losses(mine, given.T)["nll"].sum()
    assert np.corrcoef(found - own, expected - own)[0, 1] > 0.98
    assert (found - own).sum() == pytest.approx((expected - own).sum(), rel=0.15)


@pytest.mark.parametrize("method", METHODS)
def test_the_strength_has_the_lowest_loss_left_out(method):
    batch = simulated(1200, [0.6, 0.9, 1.1, 1.3], [0.0, 0.1, 0.2, -0.1])
    chosen = fitted(method, batch, raw=True, evaluate=False)
    others = [
        fitted(method, batch, raw=True, options=Options(regularisation=each), evaluate=False)[
            "left_out"
        ]["nll"]
        for each in STRENGTHS
    ]
    assert chosen["left_out"]["nll"] == pytest.approx(min(others), abs=1e-9)
    assert chosen["regularisation"] == STRENGTHS[int(np.argmin(others))]
    assert chosen["left_out"]["gain"] > 0


@pytest.mark.parametrize("method", METHODS)
def test_where_a_temperature_is_all_there_is_the_map_is_not_worse(method):
    """Left out, never; on other rows, not by more than its standard error."""
    for seed in range(3):
        batch = simulated(500, [0.7] * 4, [0.0] * 4, seed)
        answer = fitted(method, batch, raw=True, evaluate=False)
        assert answer["left_out"]["gain"] >= 0.0
        if answer["regularisation"] is None:
            assert "shrunk_to_temperature" in answer["warnings"]
        test = simulated(20_000, [0.7] * 4, [0.0] * 4, 100 + seed)
        worse = nll(test, answer) - nll(
            test, fitted("temperature", batch, raw=True, evaluate=False)
        )
        assert worse.mean() < 0.002


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_of_a_tenth_is_within_two_percent_of_all_rows(method):
    slopes, intercepts = [0.5, 0.8, 1.1, 1.4], [0.4, 0.0, -0.4, 0.0]
    batch, test = simulated(9000, slopes, intercepts), simulated(20_000, slopes, intercepts, 2)
    answer = fit(method, View(pane_of(batch, 1 << 16), PaneQuery()), evaluate=False)
    assert 0.04 * batch.n < answer["sample"]["n"] < 0.1 * batch.n
    complete = fitted(method, batch, raw=True, evaluate=False)
    assert nll(test, answer).mean() == pytest.approx(nll(test, complete).mean(), rel=0.02)
    common = fitted("temperature", batch, evaluate=False)
    assert answer["temperature"] == pytest.approx(common["parameters"]["temperature"], rel=1e-9)


def test_more_than_600_parameters_are_too_many():
    rng = np.random.default_rng(3)
    batch = Batch.from_columns(
        {"probabilities": rng.dirichlet(np.ones(25), 3000), "labels": rng.integers(0, 25, 3000)}
    ).batch
    answer = fitted("dirichlet", batch, raw=True)
    assert (answer["parameters"], answer["reason"]) == (None, "too_many_classes")
    assert answer["n_parameters"] == 650


LARGEST = {  # classes by map: sample of a day and of a window, of scores sent as float64 and float32
    "class_temperature": (78, 110, 226, 319),
    "vector": (55, 76, 159, 224),
    "dirichlet": (16, 20, 24, 24),
}


def largest(n_parameters, sample_bytes, score_bytes):
    """Number of classes with 20 rows of one rating per parameter in a sample, and at most 600 parameters."""
    k = 2
    while n_parameters(k + 1) <= MAX_CURVED and sample_bytes // (
        (k + 1) * score_bytes + ROW_BYTES + RATING_BYTES
    ) >= UNITS_A_PARAMETER * n_parameters(k + 1):
        k += 1
    return k


def test_the_largest_numbers_of_classes_are_the_documented_ones():
    text = (Path(__file__).parents[2] / "docs" / "maps.md").read_text()
    for method, make in (
        ("class_temperature", CLASS_TEMPERATURE.form),
        ("vector", VECTOR.form),
        ("dirichlet", DIRICHLET.form),
    ):
        found = tuple(
            largest(lambda k, make=make: make(np.ones(k, bool), 1.0).n_parameters, size, width)
            for size in (MAX_PANE_BYTES, WINDOW_BYTES)
            for width in (8, 4)
        )
        assert found == LARGEST[method]
        assert f"| `{method}` | {' | '.join(map(str, found))} |" in text
