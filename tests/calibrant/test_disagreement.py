"""Disagreement of raters: losses, tables, concentration and Theorem 1 against naive second versions."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import digamma as psi
from scipy.special import gammaln, polygamma

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.accumulators.concentration import LOG_CONCENTRATIONS
from calibrant.core.batch_sums import BatchSums
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics import compute_metrics
from calibrant.raters.concentration import Concentration, fit_concentration
from calibrant.raters.disagreement_report import disagreement_report, thresholds
from calibrant.raters.disagreement_tables import disagreement_table, table_of_rows
from calibrant.raters.label_statistics import disagreement
from calibrant.raters.posterior import expected_disagreement
from tests.oracle.fills.concentration import rising_factors
from tests.oracle.panes import fill_part
from tests.oracle.u_statistics import u_statistic

ACCUMULATORS = ("counts", "label_uncertainty", "disagreement", "concentration")


def votes_of(
    n: int, alpha: float, raters: np.ndarray | int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Predictions, and votes whose label distributions are Dirichlet around them."""
    rng = np.random.default_rng(seed)
    f = rng.dirichlet(np.full(3, 1.0), n)
    q = np.stack([rng.dirichlet(alpha * row) for row in f])
    counts = np.broadcast_to(raters, (n,))
    return f, np.array([rng.multinomial(int(k), row) for k, row in zip(counts, q, strict=True)])


def pane(z: np.ndarray, y: np.ndarray, **columns: Any) -> Pane:
    given = Batch.from_columns(
        {"probabilities": z, "label_counts": y, **columns}, task="multiclass", n_classes=z.shape[1]
    )
    batch_sums, complete = BatchSums(given.batch), Pane(PaneSpec("multiclass", z.shape[1]))
    for name in ACCUMULATORS:
        fill_part(complete[name], batch_sums)
    return complete


def view(complete: Pane, **pane_query: Any) -> View:
    options = {
        name: pane_query.pop(name) for name in ("loss_weight", "penalty") if name in pane_query
    }
    return View(complete, PaneQuery(**pane_query, options=options))


def fit(z: np.ndarray, y: np.ndarray, penalty: float = 0.0, **columns: Any) -> Concentration:
    return fit_concentration(pane(z, y, **columns)["concentration"], penalty)


def naive_nll(f: np.ndarray, y: np.ndarray, log_alpha: float) -> np.ndarray:
    """Loss of each row."""
    alpha, n = np.exp(log_alpha), y.sum(axis=1)
    voted = np.where(y > 0, gammaln(alpha * f + y) - gammaln(alpha * f), 0.0)
    return gammaln(alpha + n) - gammaln(alpha) - voted.sum(axis=1)


def mixed(seed: int = 0, n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    return votes_of(n, 3.0, np.random.default_rng(seed).integers(1, 7, n), seed)


@pytest.mark.parametrize("by_ratings", [False, True])
@pytest.mark.parametrize(("bins", "edges"), [(15, "right"), (10, "left"), (24, "right")])
def test_losses_equal_the_naive_version(by_ratings: bool, bins: int, edges: str) -> None:
    z, y = mixed()
    found = compute_metrics(
        view(pane(z, y), bins=bins, edges=edges, loss_weight="n" if by_ratings else 1),
        ("disagreement_loss", "disagreement_ce"),
    )
    several = y.sum(axis=1) > 1
    z, y = z[several], y[several]
    w = y.sum(axis=1).astype(float) if by_ratings else np.ones(len(y))
    loss, phi = 0.0, np.empty(len(y))
    predicted = np.array([1 - sum(p * p for p in row) for row in z])
    for i, row in enumerate(y):
        labels = np.repeat(np.arange(3), row)
        phi[i] = np.mean([a != b for a, b in itertools.combinations(labels, 2)])
        loss += w[i] * ((phi[i] - predicted[i]) ** 2 + phi[i] * (1 - phi[i]))
    assert found["disagreement_loss"]["value"] == pytest.approx(loss / w.sum(), abs=1e-9)
    plugin = debiased = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        right = (predicted <= high) & ((predicted > low) | (b == 0))
        left = (predicted >= low) & ((predicted < high) | (b == bins - 1))
        i = np.flatnonzero(right if edges == "right" else left)
        if not len(i):
            continue
        weight = w[i].sum()
        mean = (w[i] * phi[i]).sum() / weight
        square = weight * (mean - (w[i] * predicted[i]).sum() / weight) ** 2
        plugin = plugin + square
        x = phi[i] - (w[i] * predicted[i]).sum() / weight
        pairs = [
            (w[i][a] * w[i][b], x[a] * x[b]) for a, b in itertools.permutations(range(len(i)), 2)
        ]
        debiased += (
            weight * np.average([v for _, v in pairs], weights=[u for u, _ in pairs])
            if pairs
            else square
        )
    answer = found["disagreement_ce"]
    assert answer["calibration_loss_plugin"] == pytest.approx(plugin / w.sum(), abs=1e-9)
    assert answer["calibration_loss"] == pytest.approx(debiased / w.sum(), abs=1e-9)
    assert answer["value"] == pytest.approx(np.sqrt(max(debiased / w.sum(), 0)), abs=1e-8)


def test_table_of_rows_equals_the_kept_one() -> None:
    z, y = mixed()
    several = y.sum(axis=1) > 1
    kept = disagreement_table(view(pane(z, y)))
    raw = table_of_rows(expected_disagreement(z[several]), disagreement(y[several]))
    assert kept.count.tolist() == raw.count.tolist()
    for factor in (1.0, 0.7):
        assert kept.loss(factor) == pytest.approx(raw.loss(factor), abs=1e-13)
        assert kept.calibration(factor) == pytest.approx(raw.calibration(factor), abs=1e-13)


def test_loss_after_a_concentration_is_that_of_its_predictions() -> None:
    z, y = votes_of(300, 2.0, 4)
    after = table_of_rows(expected_disagreement(z, 2.5), disagreement(y))
    table = disagreement_table(view(pane(z, y)))
    assert table.loss(2.5 / 3.5) == pytest.approx(after.loss(), abs=1e-12)


def test_disagreement_is_its_u_statistic() -> None:
    y = np.random.default_rng(4).integers(0, 5, (50, 4))
    differ = u_statistic(y, lambda counts: float(max(counts) < 2), 2)
    np.testing.assert_allclose(disagreement(y), differ, atol=1e-14)


def test_rising_factors_equal_the_gamma_function() -> None:
    x = np.exp(np.random.default_rng(5).uniform(-9, 9, (9, 4)))
    m = np.array([5000, 300, 40, 18, 17, 16, 15, 2, 1])
    one = m[:, None]
    slope = x * (psi(x + one) - psi(x + 1))
    curve = slope + x**2 * (polygamma(1, x + one) - polygamma(1, x + 1))
    weight = np.arange(9.0) + 1
    for order in (slice(None), np.array([3, 0, 8, 1, 2, 7, 5, 4, 6])):
        made = rising_factors(x[order], m[order], weight[order])
        np.testing.assert_allclose(
            made.total, weight @ (gammaln(x + one) - gammaln(x + 1)), rtol=1e-11
        )
        np.testing.assert_allclose(made.d1, slope[order], rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(made.d2, weight @ curve, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("raters", [2, 5, 40])
def test_profile_equals_the_naive_likelihood(raters: int) -> None:
    z, y = votes_of(40, 2.0, raters)
    sums = pane(z, y)["concentration"].blocks["profile"].sums
    h = 1e-4
    for i in range(0, len(LOG_CONCENTRATIONS), 3):
        t = LOG_CONCENTRATIONS[i]
        slopes = (naive_nll(z, y, t + h) - naive_nll(z, y, t - h)) / (2 * h)
        assert sums[2, i] == pytest.approx(naive_nll(z, y, t).sum(), abs=1e-9)
        assert sums[3, i] == pytest.approx(slopes.sum(), abs=1e-4)
        assert sums[5, i] == pytest.approx((slopes**2).sum(), rel=1e-4, abs=1e-6)
    assert sums[1, 0] == pytest.approx(-(y * np.log(z)).sum(), abs=1e-9)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 6.0, 40.0])
@pytest.mark.parametrize("raters", [3, 30])
@pytest.mark.parametrize("penalty", [0.0, 0.005, 0.1])
def test_fit_equals_a_direct_minimisation(alpha: float, raters: int, penalty: float) -> None:
    z, y = votes_of(400, alpha, raters, seed=7)
    found = fit(z, y, penalty)
    direct = minimize_scalar(
        lambda t: naive_nll(z, y, t).mean() + penalty * t**2,
        bounds=tuple(LOG_CONCENTRATIONS[[0, -1]]),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert found.at_bound is None
    assert found.value == pytest.approx(np.exp(direct.x), rel=1e-5)
    assert found.nll == pytest.approx(naive_nll(z, y, np.log(found.value)).mean(), abs=1e-8)
    assert found.nll_limit == pytest.approx(-(y * np.log(z)).sum() / len(z), abs=1e-9)
    assert found.gradient_norm < 1e-9 and found.iterations > 0
    places = np.log(found.value) + np.array([-1e-3, 1e-3])
    near = [naive_nll(z, y, place).mean() + penalty * place**2 for place in places]
    assert abs(near[1] - near[0]) / 2e-3 < 1e-6


def test_interval_holds_the_truth() -> None:
    inside = 0
    for seed in range(40):
        z, y = votes_of(300, 4.0, 5, seed)
        low, high = fit(z, y).interval or (0.0, 0.0)
        inside += low <= 4.0 <= high
    assert inside >= 33


def test_repeated_rows_of_a_unit_do_not_narrow_the_interval() -> None:
    z, y = votes_of(200, 4.0, 5)
    alone = fit(z, y)
    unit = [f"patient-{i // 2}" for i in range(400)]
    twice = fit(np.repeat(z, 2, axis=0), np.repeat(y, 2, axis=0), units=unit)
    assert twice.value == pytest.approx(alone.value, rel=1e-9)
    assert twice.standard_error == pytest.approx(alone.standard_error, rel=1e-9)


def test_ratings_without_dispersion_run_to_the_end() -> None:
    rng = np.random.default_rng(0)
    z = np.tile([0.5, 0.3, 0.2], (200, 1))
    y = np.tile([5, 3, 2], (200, 1))  # less apart than chance
    free, held = fit(z, y), fit(z, y, 0.005)
    assert free.at_bound == "upper"
    assert free.dispersion == held.dispersion == "none detected"
    assert free.unpenalised is None
    assert free.value == pytest.approx(4096.0)
    assert (free.gradient_norm, free.iterations) == (0.0, 0)
    assert held.value < 1000.0
    warned = disagreement_report(view(pane(z, y + rng.integers(0, 1, y.shape))))["warnings"]
    assert "none_detected" in {warning["rule"] for warning in warned}


def test_unanimous_ratings_against_doubt_run_to_the_other_end() -> None:
    z = np.tile([0.5, 0.5], (50, 1))
    y = np.array([[4, 0], [0, 4]] * 25)
    found = fit(z, y)
    assert found.at_bound == "lower"
    assert found.value == pytest.approx(2.0**-8)
    assert found.interval is None


def test_one_vote_leaves_the_concentration_unidentified() -> None:
    z, y = votes_of(100, 2.0, 1)
    complete = pane(z, y)
    with pytest.raises(NoResultError, match="one_vote"):
        fit_concentration(complete["concentration"])
    with pytest.raises(NoResultError, match="one_vote"):
        disagreement_report(view(complete))
    for found in compute_metrics(view(complete), ("disagreement_loss", "disagreement_ce")).values():
        assert found["value"] is None
        assert found["reason"] == "one_vote"


def test_single_ratings_do_not_move_the_fit() -> None:
    z, y = votes_of(100, 2.0, 4)
    more, one = votes_of(50, 2.0, 1, seed=9)
    both = fit(np.concatenate([z, more]), np.concatenate([y, one]), 0.005)
    assert both.value == fit(z, y, 0.005).value
    assert both.n == 100


def test_ratings_for_impossible_classes_are_counted_apart() -> None:
    z, y = votes_of(60, 2.0, 4)
    impossible = np.tile([0.5, 0.5, 0.0], (7, 1))
    ratings = np.tile([1, 1, 2], (7, 1))
    found = fit(np.concatenate([z, impossible]), np.concatenate([y, ratings]))
    assert found.value == fit(z, y).value
    assert (found.n, found.n_zero_probability) == (60, 7)
    answer = disagreement_report(view(pane(impossible, ratings)))
    assert answer["concentration"] is None
    assert answer["after"] is None
    assert answer["reason"] == "zero_probability"


def test_answer_is_json_and_merges() -> None:
    z, y = mixed(n=2000)
    complete = pane(z, y)
    answer = disagreement_report(view(complete))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    merged = disagreement_report(view(pane(z[900:], y[900:]).merge(pane(z[:900], y[:900]))))
    for name in ("rater_disagreement", "disagreement_loss", "disagreement_ce", "epistemic_loss"):
        assert merged[name] == pytest.approx(answer[name], abs=1e-12)
    assert merged["concentration"]["value"] == pytest.approx(
        answer["concentration"]["value"], rel=1e-9
    )
    several = y.sum(axis=1) > 1
    assert answer["n"] == several.sum()
    assert answer["n_one_vote"] == (~several).sum()
    assert answer["rater_disagreement"] == pytest.approx(disagreement(y[several]).mean(), abs=1e-12)
    assert answer["mean_disagreement"] == pytest.approx(
        expected_disagreement(z[several]).mean(), abs=1e-12
    )
    assert sum(row["n"] for row in answer["reliability"]) == answer["n"]


def test_concentration_of_well_made_ratings_improves_the_loss() -> None:
    answer = disagreement_report(view(pane(*votes_of(2000, 2.0, 5))))
    assert answer["after"]["disagreement_loss"] < answer["before"]["disagreement_loss"]
    assert answer["after"]["disagreement_ce"] < answer["before"]["disagreement_ce"]
    assert answer["after"]["epistemic_loss_after_one_vote"] < answer["epistemic_loss"]
    assert {row["thresholds"]["order"] for row in answer["reliability"] if row["n"] > 20} == {
        "right"
    }


def test_wrong_order_is_warned_of() -> None:
    rng = np.random.default_rng(1)
    z = np.tile([0.95, 0.03, 0.02], (500, 1))
    y = rng.multinomial(4, [0.5, 0.3, 0.2], 500)
    answer = disagreement_report(view(pane(z, y)))
    warning = next(w for w in answer["warnings"] if w["rule"] == "order_wrong")
    assert warning["share"] == 1.0
    assert "loss_worse" in {w["rule"] for w in answer["warnings"]}
    filled = next(row for row in answer["reliability"] if row["n"])
    assert filled["thresholds"]["best"] is None


def test_thresholds_are_where_the_loss_says() -> None:
    """One group: the best concentration minimises, and the least that helps is where the loss comes back."""
    observed, predicted = 0.25, 0.4

    def loss(alpha: float) -> float:
        return (alpha / (alpha + 1) * predicted - observed) ** 2

    found = thresholds(observed, predicted, 0.2)
    assert found.best is not None
    assert found.from_ is not None
    direct = minimize_scalar(loss, bounds=(0.01, 50), method="bounded", options={"xatol": 1e-10})
    assert found.best == pytest.approx(direct.x, rel=1e-4)
    assert loss(found.from_) == pytest.approx((predicted - observed) ** 2, abs=1e-12)


def test_thresholds_of_posteriors_are_where_their_loss_says() -> None:
    """A row of known label distribution: the mean over its one vote of the posterior's squared distance."""
    f, q = np.array([0.5, 0.4, 0.1]), np.array([0.6, 0.1, 0.3])

    def loss(alpha: float) -> float:
        posteriors = (alpha * f + np.eye(3)) / (alpha + 1)
        return float(q @ ((posteriors - q) ** 2).sum(axis=1))

    epistemic = float(((f - q) ** 2).sum())
    found = thresholds(1 - float((q**2).sum()), 1 - float((f**2).sum()), epistemic)
    assert found.best_posterior is not None and found.from_posterior is not None
    direct = minimize_scalar(loss, bounds=(0.01, 50), method="bounded", options={"xatol": 1e-10})
    assert found.best_posterior == pytest.approx(direct.x, rel=1e-4)
    assert loss(found.from_posterior) == pytest.approx(epistemic, abs=1e-12)


@pytest.mark.parametrize("penalty", [-1.0, "much", float("nan")])
def test_a_penalty_outside_its_range_is_rejected(penalty: object) -> None:
    with pytest.raises(CalibrationInputError):
        disagreement_report(view(pane(*votes_of(20, 2.0, 3)), penalty=penalty))


def test_bins_that_the_state_does_not_hold() -> None:
    with pytest.raises(NoResultError, match="bins_not_exact"):
        disagreement_table(view(pane(*votes_of(20, 2.0, 3)), bins=16))


def test_intervals_hold_the_estimates() -> None:
    found = compute_metrics(view(pane(*mixed(n=3000))), ("disagreement_loss", "disagreement_ce"))
    for answer in found.values():
        low, high = answer["interval"]
        assert low <= answer["value"] <= high


def test_order_of_rows_and_classes_does_not_matter() -> None:
    z, y = mixed()
    order = np.random.default_rng(0).permutation(len(z))
    reference = disagreement_report(view(pane(z, y)))
    other = disagreement_report(view(pane(z[order][:, [1, 2, 0]], y[order][:, [1, 2, 0]])))
    for name in ("disagreement_loss", "disagreement_ce", "epistemic_loss", "mean_disagreement"):
        assert other[name] == pytest.approx(reference[name], abs=1e-12)
    assert other["concentration"]["value"] == pytest.approx(
        reference["concentration"]["value"], rel=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("raters", [2, 3, 5])
def test_disagreement_loss_is_unbiased(raters: int) -> None:
    rng = np.random.default_rng(raters)
    q = rng.dirichlet([0.5, 0.5, 0.5], 200)
    z = 0.7 * q + 0.1
    phi, predicted = 1 - (q**2).sum(axis=1), 1 - (z**2).sum(axis=1)
    truth = ((phi - predicted) ** 2 + phi * (1 - phi)).mean()
    runs = 1000
    seen = np.array(
        [
            compute_metrics(view(pane(z, rng.multinomial(raters, q))), ("disagreement_loss",))[
                "disagreement_loss"
            ]["value"]
            for _ in range(runs)
        ]
    )
    assert abs(seen.mean() - truth) < 4 * seen.std() / np.sqrt(runs)


@pytest.mark.slow
@pytest.mark.parametrize("raters", [2, 3, 5])
def test_disagreement_calibration_loss_is_debiased(raters: int) -> None:
    """Label distributions are drawn around z so that disagreement is calibrated: the loss is 0 in the mean."""
    rng = np.random.default_rng(20 + raters)
    runs, alpha, seen = 800, 2.0, []
    for _ in range(runs):
        p = rng.random(150)
        q = rng.beta(alpha * p, alpha * (1 - p))
        y = rng.binomial(raters, q)
        predicted = alpha / (alpha + 1) * 2 * p * (1 - p)
        observed = disagreement(np.stack([raters - y, y], axis=1))
        table = table_of_rows(predicted, observed)
        seen.append((table.calibration(), table.calibration_plugin()))
    debiased, plugin = np.mean(seen, axis=0)
    error = np.std(seen, axis=0)[0] / np.sqrt(runs)
    assert abs(debiased) < 4 * error + 1e-4
    assert plugin > 10 * abs(debiased)


def test_intervals_of_bins_hold_what_is_true() -> None:
    """Rows whose disagreement is what the labels' distribution says: most bins' intervals hold it."""
    rng = np.random.default_rng(31)
    held = n = 0
    for _ in range(20):
        p = rng.dirichlet(np.ones(3), 600)
        ratings = np.array([rng.multinomial(3, row) for row in p])
        batch = Batch.from_columns(
            {"probabilities": p, "label_counts": ratings}, task="multiclass"
        ).batch
        pane = Pane(PaneSpec("multiclass", 3))
        pane.fill_batch(batch)
        for row in disagreement_report(View(pane, PaneQuery(bins=5)))["reliability"]:
            if row["n"] >= 30:
                # The truth of a bin is the mean of the predictions in it.
                held += row["interval"][0] <= row["predicted"] <= row["interval"][1]
                assert row["interval"][0] <= row["observed"] <= row["interval"][1]
                n += 1
    assert n > 50
    assert 0.88 <= held / n <= 1.0
