"""Stability curves and baselines of several raters: definitions, identities, agreement of state and rows."""

from __future__ import annotations

import itertools
import json
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.input.labels import named_raters
from calibrant.metrics import METRICS, compute_metrics
from calibrant.report import score_batch
from calibrant.stability.curves import disagreement, stability, total_variation
from calibrant.stability.rater_baselines import view_of_rater
from calibrant.stability.subsets import FRACTIONS, draws_of
from tests.calibrant import notions_reference as naive
from tests.calibrant.baselines import rater_baselines
from tests.calibrant.notions import batch_of, pane_of
from tests.calibrant.reference import bin_of, rows_of


def noisy_batch(n: int = 400, raters: int = 5, seed: int = 0, **more: Any) -> Batch:
    """Overconfident rows whose raters often differ."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(3), n)
    sharp = truth**2 / (truth**2).sum(axis=1, keepdims=True)
    columns = {"probabilities": sharp, "label_counts": rng.multinomial(raters, truth), **more}
    return Batch.from_columns(columns).batch


def viewed(batch: Batch, raw: bool = True, **pane_query: Any) -> View:
    return View(pane_of(batch), PaneQuery(**pane_query), batch if raw else None)


def test_variation_in_its_readings() -> None:
    curve = np.linspace(0.3, 0.1, 17) + 0.01 * (-1.0) ** np.arange(17)
    found = total_variation(curve)
    steps = [abs(curve[j] - curve[j - 1]) for j in range(1, 17)]
    assert found["absolute"] == pytest.approx(sum(steps) / 16)
    assert found["signed"] == pytest.approx((curve[16] - curve[0]) / 16)
    assert found["relative"] == pytest.approx(sum(steps) / 16 / curve[16])
    assert (found["per_cent"], found["sum"]) == (
        pytest.approx(sum(steps) / 0.16),
        pytest.approx(sum(steps)),
    )


def test_the_grid_of_fractions() -> None:
    assert FRACTIONS.tolist() == pytest.approx([0.2 + 0.05 * k for k in range(17)])
    sizes = draws_of(977, 0, 1, "nested", np.random.default_rng(0)).sizes
    assert sizes.tolist() == [round(0.05 * k * 977) for k in range(4, 21)]


@pytest.mark.parametrize("subsets", ["nested", "independent"])
def test_subsets_are_what_they_are_called(subsets: str) -> None:
    draws = draws_of(40, 0, 3, subsets, np.random.default_rng(0))
    for draw in range(3):
        held = [set(draws.subset(draw, step).tolist()) for step in range(17)]
        assert [len(each) for each in held] == draws.sizes.tolist()
        assert held[-1] == set(range(40))
        nested = all(a <= b for a, b in itertools.pairwise(held))
        assert nested == (subsets == "nested")


@pytest.mark.parametrize("subsets", ["nested", "independent"])
@pytest.mark.parametrize("slug", ["ece", "classwise_ece", "all_label_ece", "mce"])
@pytest.mark.parametrize("units", [False, True])
def test_curves_of_rows_are_of_their_subsets(subsets: str, slug: str, units: bool) -> None:
    batch = batch_of(1, n=60, units=units)
    view = viewed(batch, bins=5, raters="mean")
    found = stability(view, slug, subsets=subsets, n_bootstraps=2, seed=3)
    unit = np.unique(batch.unit_hash, return_inverse=True)[1] if units else np.arange(60)
    draws = draws_of(int(unit.max()) + 1, 0, 1, subsets, np.random.default_rng(3))
    for step, number in enumerate(found["raters"]["mean"]["curve"]):
        rows = np.flatnonzero(np.isin(unit, draws.subset(0, step)))
        part = viewed(batch.take(rows), bins=5, raters="mean")
        assert number == pytest.approx(compute_metrics(part, [slug])[slug]["value"], abs=1e-12)


def test_binned_and_slow_curves_of_rows_agree() -> None:
    # The sweep is computed subset by subset; equal-width bins in one pass, and as if they were no such bins.
    batch = noisy_batch(60)
    quick = stability(viewed(batch), "ece", n_bootstraps=3)
    slow = stability(viewed(batch, min_count=1e-9), "ece", n_bootstraps=3)
    assert slow["raters"]["pooled"]["curve"] == pytest.approx(
        quick["raters"]["pooled"]["curve"], abs=1e-12
    )
    assert (
        quick["raters"]["pooled"]["bootstrap"]["orders"]
        > slow["raters"]["pooled"]["bootstrap"]["orders"]
    )
    assert stability(viewed(batch), "ece_sweep", n_bootstraps=2)["raters"]["pooled"]["full"] > 0


@pytest.mark.parametrize("slug", ["ece_sweep", "tace"])
def test_without_resamples_one_by_one_the_curve_remains(slug: str) -> None:
    view = viewed(noisy_batch(40))
    curves = stability(view, slug, one_by_one=False)
    complete = stability(view, slug, n_bootstraps=2)
    for policy, found in curves["raters"].items():
        assert found["bootstrap"] is None
        assert found | {"bootstrap": complete["raters"][policy]["bootstrap"]} == complete["raters"][policy]  # fmt: skip
    assert curves["ratio"].keys() == complete["ratio"].keys()
    for found in curves["ratio"].values():
        assert found == {"value": None, "reason": "too_many_subsets"}
    # Binned curves have resamples in any case.
    assert stability(view, "ece", one_by_one=False) == stability(view, "ece")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    "slug", ["ece", "classwise_ece", "all_label_ece", "mce", "ace", "rmsce", "lp_ece"]
)
def test_the_curve_ends_in_the_estimate(raw: bool, slug: str) -> None:
    view = viewed(noisy_batch(), raw, options={"order": 3.0})
    found = stability(view, slug, n_bootstraps=5)
    assert found["source"] == ("rows" if raw else "replicates")
    full = compute_metrics(view, [slug])[slug]["value"]
    assert found["raters"]["pooled"]["full"] == pytest.approx(full, abs=1e-12)
    json.dumps(found, allow_nan=False)


def test_state_and_rows_agree_about_the_ratio() -> None:
    batch = noisy_batch(1500)
    rows = stability(viewed(batch), "ece", n_bootstraps=60)
    state = stability(viewed(batch, raw=False), "ece", n_bootstraps=60)
    for policy in ("majority", "single"):
        ours, theirs = rows["ratio"][policy], state["ratio"][policy]
        assert ours["value"] > 1.2
        assert abs(ours["value"] - theirs["value"]) < 0.3
        assert ours["interval"][0] < ours["value"] < ours["interval"][1]
    assert rows["raters"]["pooled"]["bootstrap"]["n"] == 60


@pytest.mark.parametrize("subsets", ["nested", "independent"])
def test_the_bootstrap_is_of_whole_units_with_their_ratings(subsets: str) -> None:
    batch = batch_of(4, n=50)
    found = stability(
        viewed(batch, bins=5, raters="majority"), "ece", subsets=subsets, n_bootstraps=3, seed=7
    )
    rng = np.random.default_rng(7)
    draws_of(50, 0, 1, subsets, rng)
    bootstrap = found["raters"]["majority"]["bootstrap"]
    samples = naive.samples(rows_of(batch), "top_label", "majority")
    draws = draws_of(50, 3, bootstrap["orders"], subsets, rng)
    steps = []
    for draw in range(3 * bootstrap["orders"]):
        curve = []
        for step in range(17):
            part = [samples[row] for row in draws.subset(draw, step)]
            bins = [[each for each in part if bin_of(each[0], 5, "right") == b] for b in range(5)]
            curve.append(naive.mean_gap([held for held in bins if held]))
        steps.append(np.mean([abs(b - a) for a, b in itertools.pairwise(curve)]))
    assert bootstrap["mean"] == pytest.approx(np.mean(steps), abs=1e-12)
    assert bootstrap["sd"] == pytest.approx(np.std(steps, ddof=1), abs=1e-12)


@pytest.mark.parametrize("ci", [0.5, 0.95, 0.99])
def test_the_ratios_interval_is_of_the_asked_level(ci: float) -> None:
    found = stability(viewed(noisy_batch(120), raw=False, ci=ci), "ece", n_bootstraps=10)["ratio"][
        "single"
    ]
    reach = NormalDist().inv_cdf(0.5 + ci / 2) * found["standard_error"]
    assert found["interval"] == pytest.approx(
        [found["value"] - reach, found["value"] + reach], rel=1e-9
    )


def test_independent_subsets_vary_more() -> None:
    view = viewed(noisy_batch(300))
    nested = stability(view, "ece", n_bootstraps=20)
    independent = stability(view, "ece", subsets="independent", n_bootstraps=20)
    means = [each["raters"]["pooled"]["bootstrap"]["mean"] for each in (nested, independent)]
    assert means[1] > 1.5 * means[0]


def test_one_rater_each_makes_every_policy_the_same() -> None:
    found = stability(viewed(noisy_batch(raters=1), raw=False), "ece", n_bootstraps=10)
    assert found["ratio"]["majority"]["value"] == pytest.approx(1.0)
    assert found["ratio"]["single"]["value"] == pytest.approx(1.0)
    assert found["disagreement"] is None


def test_disagreement_equals_the_naive_version() -> None:
    batch = batch_of(2, n=50)
    assert disagreement(viewed(batch)) == pytest.approx(
        naive.disagreement(rows_of(batch)), abs=1e-12
    )


def test_what_cannot_be_asked_of_parts() -> None:
    batch = noisy_batch(80)
    with pytest.raises(CalibrationInputError, match="Received subsets"):
        stability(viewed(batch), "ece", subsets="disjoint")
    with pytest.raises(CalibrationInputError, match="n_bootstraps"):
        stability(viewed(batch), "ece", n_bootstraps=1)
    with pytest.raises(CalibrationInputError, match="no metric"):
        stability(viewed(batch), "eec")
    for raw, slug, reason in (
        (False, "brier", "not_from_cells"),
        (True, "brier", "not_from_cells"),
    ):
        with pytest.raises(NoResultError) as rejection:
            stability(viewed(batch, raw), slug)
        assert rejection.value.reason == reason
    with pytest.raises(NoResultError) as rejection:
        stability(View(Pane(PaneSpec("multiclass", 3)), PaneQuery()), "ece")
    assert rejection.value.reason == "too_few_units"


def test_answers_repeat_with_their_seed() -> None:
    view = viewed(noisy_batch(100), raw=False)
    assert stability(view, "ece", n_bootstraps=4, seed=5) == stability(
        view, "ece", n_bootstraps=4, seed=5
    )
    assert stability(view, "ece", n_bootstraps=4, seed=5) != stability(
        view, "ece", n_bootstraps=4, seed=6
    )


# Baselines.


def rated(n: int = 200, raters: int = 4) -> tuple[Batch, dict[str, np.ndarray]]:
    rng = np.random.default_rng(9)
    z = rng.dirichlet(np.ones(3), n)
    labels = np.array([rng.choice(3, raters, p=row) for row in z])
    batch = Batch.from_columns({"probabilities": z, "labels": labels.tolist()}).batch
    return batch, {f"rater-{j}": labels[:, j] for j in range(raters)}


def test_baselines_stand_side_by_side() -> None:
    batch, raters = rated()
    found = rater_baselines(batch, "ece", PaneQuery(bins=10), raters)
    for policy, answer in found["policies"].items():
        alone = compute_metrics(viewed(batch, bins=10, raters=policy), ["ece"])["ece"]
        assert answer == alone
    assert found["n_majority_ties"] == pane_of(batch).counts["n_majority_ties"]
    for name, labels in raters.items():
        own = Batch.from_columns({"probabilities": batch.probabilities, "labels": labels}).batch
        expected = compute_metrics(viewed(own, bins=10), ["ece"])["ece"]["value"]
        assert found["by_rater"][name] == {"value": pytest.approx(expected, abs=1e-12), "n": 200}


@pytest.mark.parametrize("slug", ["ece", "classwise_ece", "all_label_ece"])
def test_raters_by_themselves_err_at_least_as_much_as_together(slug: str) -> None:
    found = rater_baselines(*rated()[:1], slug, raters=rated()[1])
    assert found["mean_of_raters"] >= found["policies"]["pooled"]["value"] - 1e-12


@pytest.mark.parametrize("slug", sorted(METRICS))
def test_a_raters_number_is_that_of_a_complete_pane(slug: str) -> None:
    batch = noisy_batch(60)
    classes = np.random.default_rng(1).integers(-1, batch.n_classes, batch.n)
    found = rater_baselines(batch, slug, raters={"ann": classes})["by_rater"]["ann"]
    view = view_of_rater(batch, "ann", classes, PaneQuery())
    assert view is not None
    try:
        expected = METRICS[slug].value(view)
    except NoResultError:
        expected = None
    assert found["value"] == expected


def test_a_rater_who_rated_some_or_nothing() -> None:
    batch, raters = rated()
    some = np.where(np.arange(200) < 50, raters["rater-0"], -1)
    found = rater_baselines(batch, "ece", raters={"some": some, "none": np.full(200, -1)})
    assert found["by_rater"]["some"]["n"] == 50
    assert found["by_rater"]["none"] == {"value": None, "reason": "no_data", "n": 0}


@pytest.mark.parametrize(
    "bad", [np.zeros(3, int), np.zeros(200), np.full(200, 3), np.full(200, -2)]
)
def test_a_rater_whose_column_does_not_fit(bad: np.ndarray) -> None:
    with pytest.raises(CalibrationInputError) as rejection:
        rater_baselines(rated()[0], "ece", raters={"r": bad})
    assert rejection.value.violations[0].pointer == "/raters/r"


def test_named_raters_become_columns_of_their_own() -> None:
    labels = [[0, 2, 1], 1, None, [2]]
    found = named_raters(labels, [["a", None, "b"], "b", None, ["a"]], 3)
    assert {name: column.tolist() for name, column in found.items()} == {
        "a": [0, -1, -1, 2],
        "b": [1, 1, -1, -1],
    }
    with pytest.raises(CalibrationInputError) as rejection:
        named_raters([[0] * 201], [[f"r{i}" for i in range(201)]], 3)
    assert rejection.value.violations[0].rule == "too_many_raters"


def test_a_score_of_named_raters_holds_their_baselines() -> None:
    batch, raters = rated()
    found = score_batch(batch, {"metrics": ("ece", "brier"), "bins": 10}, raters)["baselines"]
    expected = rater_baselines(batch, "ece", PaneQuery(bins=10), raters)
    assert found["metrics"]["ece"]["by_rater"] == expected["by_rater"]
    assert found["metrics"]["ece"]["mean_of_raters"] == expected["mean_of_raters"]
    for policy, number in found["metrics"]["ece"]["policies"].items():
        assert number == expected["policies"][policy]["value"]
    pairs = [(a, b) for a, b in itertools.combinations(raters.values(), 2)]
    assert found["disagreement"] == pytest.approx(np.mean([a != b for a, b in pairs]))
    assert "baselines" not in score_batch(batch, {"metrics": ("ece",)})
