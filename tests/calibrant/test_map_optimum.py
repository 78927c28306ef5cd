"""Every fit proves its optimum and tells how sure it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit, xlog1py, xlogy

from calibrant.calibrators.temperature.fit import fit_temperature, fit_temperature_exact
from tests.calibrant.map_rows import binary, fitted, many_classes, pane_of, scores_and_labels


@pytest.mark.parametrize("method", ["platt", "beta"])
def test_curves_prove_their_optimum_and_tell_how_sure_they_are(method):
    p, y = scores_and_labels(3000)
    answer = fitted(method, binary(p, y), raw=True)
    names = [name for name in answer["parameters"] if name != "clip"]
    q = np.clip(p, 1e-12, 1 - 1e-12)
    x = np.column_stack(
        {"platt": [logit(q)], "beta": [np.log(q), -np.log1p(-q)]}[method] + [np.ones(len(p))]
    )
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
    assert answer["gradient_norm"] < 1e-12 and answer["iterations"] >= 1
    assert answer["objective_before"] == answer["before"][objective]
    assert answer["objective_after"] == answer["after"][objective] < answer["objective_before"]
    searched = fit_temperature(pane_of(batch), objective="ece")
    assert searched["gradient_norm"] is None and searched["iterations"] == 1901
