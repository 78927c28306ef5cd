"""Alpha-calibration side by side: gradients, second versions, a known truth, and the cases that are rejected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize_scalar
from scipy.special import gammaln, log_softmax, softmax

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics import compute_metrics
from calibrant.raters.alpha_calibration import compare_calibrations, row_losses
from calibrant.raters.alpha_fits import METHODS, dirichlet_multinomial_loss, fit_method
from calibrant.raters.concentration import fit_concentration
from calibrant.raters.posterior import posterior_epistemic_loss
from calibrant.raters.rated_rows import rated_rows


def simulated(
    n: int = 1500, temperature: float = 1.0, alpha: float = 3.0, raters: int = 6, seed: int = 0
) -> Batch:
    """Votes from Dirichlets of one concentration around softmax(z / temperature)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)) * 2
    f = softmax(z / temperature, axis=1)
    zeta = np.stack([rng.dirichlet(np.maximum(alpha * row, 1e-9)) for row in f])
    ratings = np.stack(
        [rng.multinomial(rng.integers(2, raters + 1), row / row.sum()) for row in zeta]
    )
    return Batch.from_columns(
        {"logits": z, "label_counts": ratings, "ids": [f"i{i}" for i in range(n)]}
    ).batch


def naive_loss(mean: np.ndarray, alpha: float, ratings: np.ndarray) -> float:
    total = 0.0
    for f, y in zip(mean, ratings, strict=True):
        total += gammaln(alpha + y.sum()) - gammaln(alpha)
        total -= sum(gammaln(alpha * p + v) - gammaln(alpha * p) for p, v in zip(f, y, strict=True))
    return total / len(mean)


def test_the_loss_and_its_slopes() -> None:
    rng = np.random.default_rng(0)
    mean, ratings = rng.dirichlet(np.full(4, 9.0), 7), rng.integers(0, 4, (7, 4)).astype(float)
    place = rng.normal(size=7) * 2
    loss, by_alpha, by_mean = dirichlet_multinomial_loss(mean, place, ratings)
    for i in range(7):
        assert loss[i] == pytest.approx(naive_loss(mean[[i]], np.exp(place[i]), ratings[[i]]))

        def along(at: np.ndarray, i: int = i) -> float:
            return float(dirichlet_multinomial_loss(at[None, 1:], at[:1], ratings[[i]])[0][0])

        numeric = approx_fprime(np.append(place[i], mean[i]), along, 1e-7)
        assert np.append(by_alpha[i], by_mean[i]) == pytest.approx(numeric, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 0.005, 0.5])
def test_a_global_concentration_is_the_scalar_minimum_and_that_of_the_profile(
    penalty: float,
) -> None:
    batch = simulated(600)
    rows = rated_rows(batch)
    fit = fit_method("alpha", rows, penalty)
    f = softmax(batch.scores, axis=1)
    peer = minimize_scalar(
        lambda t: naive_loss(f, np.exp(t), batch.label_counts) + penalty * t**2,
        bounds=(-5, 8), method="bounded", options={"xatol": 1e-10},
    )  # fmt: skip
    value = fit.concentration(rows)[0]
    assert np.log(value) == pytest.approx(peer.x, abs=1e-6)
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch)
    assert value == pytest.approx(fit_concentration(pane["concentration"], penalty).value, rel=1e-6)
    assert fit.proof["converged"] and fit.proof["objective_after"] <= fit.proof["objective_before"]


def test_the_posterior_loss_of_a_global_concentration_is_the_closed_form() -> None:
    rows = rated_rows(simulated(400))
    fit = fit_method("alpha", rows)
    losses = {name: each.mean() for name, each in row_losses(fit, rows).items()}
    alpha = float(fit.concentration(rows)[0])
    expected = posterior_epistemic_loss(losses["epistemic_loss"], rows.disagreement.mean(), alpha)
    assert losses["epistemic_loss_after_one_vote"] == pytest.approx(expected, rel=1e-12)


def test_what_made_the_ratings_is_found() -> None:
    rows = rated_rows(simulated(6000, temperature=2.0, alpha=4.0))
    joint = fit_method("joint", rows, 0.0)
    assert joint.concentration(rows)[0] == pytest.approx(4.0, rel=0.15)
    assert np.exp(-joint.log_beta) == pytest.approx(2.0, rel=0.1)
    assert joint.proof["gradient_norm"] < 1e-6


def test_the_best_on_the_validation_part_is_named() -> None:
    found = compare_calibrations(simulated(3000, temperature=2.5, alpha=3.0))
    json.dumps(found, allow_nan=False)
    assert tuple(found["methods"]) == METHODS
    assert found["best"] in ("temperature_alpha", "joint")
    losses = {name: each["disagreement_loss"] for name, each in found["methods"].items()}
    assert losses[found["best"]] == min(losses.values())
    assert found["methods"]["joint"]["gain"]["interval"][0] > 0
    assert (
        found["methods"]["raw"]["gain"]["value"] == 0.0
        and found["methods"]["raw"]["concentration"] is None
    )
    assert found["n_fit"] + found["n_validation"] == 3000
    by_posterior = compare_calibrations(
        simulated(3000, temperature=2.5), criterion="epistemic_loss_after_one_vote"
    )
    assert by_posterior["best"] in ("temperature_alpha", "joint")


def test_weights_count_in_every_number_of_the_validation_part() -> None:
    weights = np.random.default_rng(1).choice([0.5, 1.0, 4.0], 600)
    batch = replace(simulated(600), weights=weights)
    raw = compare_calibrations(batch)["methods"]["raw"]
    # Every row has two votes and more, so that rows and batch stand in one order.
    part = batch.take(rated_rows(batch).half == 1)
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(part)
    slugs = ("disagreement_loss", "disagreement_ce", "epistemic_loss")
    for slug, answer in compute_metrics(View(pane, PaneQuery()), slugs).items():
        assert raw[slug] == pytest.approx(answer["value"], abs=1e-9)


def test_every_methods_losses_are_those_of_its_own_numbers() -> None:
    """Naively, row by row of the validation part, from the temperature and the concentration that are answered."""
    batch = simulated(500, temperature=2.0)
    rows = rated_rows(batch)
    z, ratings = rows.logits[rows.half == 1], rows.ratings[rows.half == 1]
    for name, result in compare_calibrations(batch)["methods"].items():
        loss, epistemic, after, bins, before = [], [], [], {}, {}
        for logits, y in zip(z, ratings, strict=True):
            f, n = softmax(logits / result["temperature"]), y.sum()
            alpha = result["concentration"]
            if result["coefficients"] is not None:
                alpha = np.exp(
                    result["coefficients"]["intercept"] + result["coefficients"]["slopes"] @ logits
                )
            observed = 1.0 - sum(v * (v - 1) for v in y) / (n * (n - 1))
            predicted = (1.0 if alpha is None else alpha / (alpha + 1.0)) * (
                1.0 - sum(p * p for p in f)
            )
            loss.append((observed - predicted) ** 2 + observed * (1.0 - observed))
            epistemic.append(
                sum(
                    (v / n - p) ** 2 - v / n * (1 - v / n) / (n - 1)
                    for v, p in zip(y, f, strict=True)
                )
            )
            share = 1.0 if alpha is None else alpha / (alpha + 1.0)
            after.append(share**2 * epistemic[-1] + (1.0 - share) ** 2 * observed)
            bins.setdefault(max(int(np.ceil(predicted * 15)), 1), []).append((predicted, observed))
            point = 1.0 - sum(p * p for p in f)
            before.setdefault(max(int(np.ceil(point * 15)), 1), []).append((predicted, observed))
        assert result["disagreement_loss"] == pytest.approx(np.mean(loss), abs=1e-9), name
        assert result["epistemic_loss"] == pytest.approx(np.mean(epistemic), abs=1e-9), name
        assert result["epistemic_loss_after_one_vote"] == pytest.approx(np.mean(after), abs=1e-9), (
            name
        )
        assert result["calibrated_disagreement_ce"] == pytest.approx(naive_ce(bins), abs=1e-9), name
        assert result["disagreement_ce"] == pytest.approx(naive_ce(before), abs=1e-9), name


def naive_ce(bins: dict[int, list[tuple[float, float]]]) -> float:
    """CE_phi from pairs of predicted and observed disagreement by bin."""
    calibration, n = 0.0, sum(len(held) for held in bins.values())
    for held in map(np.array, bins.values()):
        calibration += len(held) * (held[:, 0].mean() - held[:, 1].mean()) ** 2
        calibration -= len(held) * held[:, 1].var() / (len(held) - 1) if len(held) > 1 else 0.0
    return float(np.sqrt(max(calibration / n, 0.0)))


def test_named_rows_fit_and_others_score() -> None:
    """Table 1's protocol: even rows fit, odd rows score, as two separate fits would have it."""
    batch = simulated(800, temperature=2.0)
    parts = ["fit", "score"] * 400
    found = compare_calibrations(batch, parts=parts)
    assert (found["split"], found["n_fit"], found["n_validation"]) == ("parts", 400, 400)
    fit = fit_method("temperature_alpha", rated_rows(batch.take(np.arange(0, 800, 2))))
    result = found["methods"]["temperature_alpha"]
    assert result["temperature"] == pytest.approx(np.exp(-fit.log_beta), rel=1e-9)
    scored = rated_rows(batch.take(np.arange(1, 800, 2)))
    losses = row_losses(fit, scored)
    assert result["disagreement_loss"] == pytest.approx(
        losses["disagreement_loss"].mean(), rel=1e-9
    )
    # The metrics of the scored rows under the fitted numbers are those of the comparison.
    pane = Pane(PaneSpec("multiclass", 3))
    odd = batch.take(np.arange(1, 800, 2))
    pane.fill_batch(odd)
    options = {"concentration": result["concentration"], "temperature": result["temperature"]}
    slugs = ("disagreement_loss", "disagreement_ce", "calibrated_disagreement_ce")
    metrics = compute_metrics(View(pane, PaneQuery(options=options), odd), slugs)
    for slug in slugs:
        assert metrics[slug]["value"] == pytest.approx(result[slug], abs=1e-9), slug


def test_the_head_gives_new_rows_their_concentration() -> None:
    rng = np.random.default_rng(3)
    rated, x = simulated(600), rng.normal(size=(610, 2))
    new = rng.normal(size=(10, 3))
    counts = np.concatenate([rated.label_counts, np.zeros((10, 3), int)])
    batch = Batch.from_columns(
        {"logits": np.concatenate([rated.scores, new]), "label_counts": counts}
    ).batch
    found = compare_calibrations(batch, features=x, instances=True)
    head = found["methods"]["head"]["coefficients"]
    place = np.clip(x @ head["slopes"] + head["intercept"], *head["log_bounds"])
    assert found["instances"]["concentration"] == pytest.approx(np.exp(place))
    many = compare_calibrations(batch, features=rng.normal(size=(610, 400)), instances=True)
    assert many["instances"] is None and many["methods"]["head"] == {"reason": "few_rows"}


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        (["fit"], "length"),
        (["fit", "test"] * 100, "one_of"),
        (["fit"] + ["score"] * 199, "unit_in_both_parts"),
    ],
)
def test_parts_that_are_none_are_rejected(parts: list[str], rule: str) -> None:
    batch = replace(simulated(200), units=np.array([f"u{i // 2}" for i in range(200)], object))
    with pytest.raises(CalibrationInputError) as rejected:
        compare_calibrations(batch, parts=parts)
    assert rejected.value.violations[0].rule == rule


def test_a_head_finds_the_feature_that_the_concentration_depends_on() -> None:
    rng = np.random.default_rng(3)
    n = 4000
    z, x = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    alpha = np.exp(1.0 + 0.8 * x[:, 0])
    zeta = np.stack(
        [rng.dirichlet(row) for row in np.maximum(alpha[:, None] * softmax(z, axis=1), 1e-9)]
    )
    ratings = np.stack([rng.multinomial(8, row / row.sum()) for row in zeta])
    batch = Batch.from_columns({"logits": z, "label_counts": ratings}).batch
    found = compare_calibrations(batch, penalty=0.0, features=x)
    assert found["best"] == "head"
    head = found["methods"]["head"]["coefficients"]
    assert head["slopes"] == pytest.approx([0.8, 0.0], abs=0.12)
    assert head["intercept"] == pytest.approx(1.0, abs=0.12)
    page = (Path(__file__).parents[2] / "docs" / "maps.md").read_text()
    code = page[: page.index("```", page.index("def concentration"))].rpartition("```python\n")[2]
    space: dict[str, Any] = {}
    exec(code, space)
    rows = rated_rows(batch, x)
    there = fit_method("head", rows.take(np.flatnonzero(rows.half == 0)), 0.0).concentration(rows)
    written = [space["concentration"](head, row) for row in x.tolist()]
    assert written == pytest.approx(there, rel=1e-12)


def test_what_cannot_be_compared() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 100)
    one = Batch.from_columns({"probabilities": p, "labels": rng.integers(0, 3, 100)}).batch
    with pytest.raises(NoResultError, match="one_vote"):
        compare_calibrations(one)
    few = Batch.from_columns(
        {"probabilities": p, "labels": [[0, 1]] * 100, "units": [f"{i % 9}" for i in range(100)]}
    )
    with pytest.raises(NoResultError, match="few_units"):
        compare_calibrations(few.batch)
    zeros = Batch.from_columns(
        {"probabilities": np.eye(3)[[0] * 100], "labels": [[1, 2]] * 100}
    ).batch
    with pytest.raises(NoResultError, match="zero_probability"):
        compare_calibrations(zeros)
    batch = simulated(200)
    unknown = np.full((200, 1), np.nan)
    for options in (
        {"criterion": "x"},
        {"penalty": -1.0},
        {"features": [[1.0]]},
        {"features": unknown},
    ):
        with pytest.raises(CalibrationInputError):
            compare_calibrations(batch, **options)
    constant = compare_calibrations(batch, features=np.ones((200, 1)))
    assert constant["methods"]["head"]["coefficients"]["slopes"] == [0.0]


def test_logits_equal_their_probabilities_and_unlabelled_rows_do_not_count() -> None:
    batch = simulated(500)
    p = np.exp(log_softmax(batch.scores, axis=1))
    columns = {"probabilities": p, "label_counts": batch.label_counts, "ids": batch.ids}
    other = Batch.from_columns(columns).batch
    mine, theirs = compare_calibrations(batch), compare_calibrations(other)
    for name in METHODS:
        assert mine["methods"][name]["disagreement_loss"] == pytest.approx(
            theirs["methods"][name]["disagreement_loss"], rel=1e-5
        )
