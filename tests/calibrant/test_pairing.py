"""Reliability, temperature and disagreement of two windows: what both sides share drops out of the difference."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import Options, apply, fit
from calibrant.calibrators.labelled_rows import labelled_rows
from calibrant.calibrators.map_comparison import gain_over_other_map
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.core.hashing import mix
from calibrant.inference.disagreement_differences import MEANS, SMOOTH, disagreement_difference
from calibrant.inference.metrics_differences import differences
from calibrant.inference.pairing import (
    difference_interval_of_two,
    replicate_correlation,
    shared,
    unit_correlation,
)
from calibrant.inference.reliability_differences import reliability_difference
from calibrant.inference.temperature_differences import temperature_difference
from calibrant.metrics import PaneQuery, View
from calibrant.raters.disagreement_report import disagreement_report

BINARY = PaneSpec("binary", 2)
TEN = PaneQuery(bins=10, scope="positive")


def pane_of(
    spec: PaneSpec, n: int, prefix: str = "u", window: bool = False, **columns: object
) -> Pane:
    pane = Pane.for_window(spec) if window else Pane(spec)
    ids = {"ids": [f"{prefix}{i}" for i in range(n)]}
    pane.fill_batch(Batch.from_columns(columns | ids, task=spec.task).batch)
    return pane


def drawn(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    p = rng.uniform(0.02, 0.98, n)
    return p, (rng.random(n) < p).astype(int)


def sharpened(p: np.ndarray, by: float) -> np.ndarray:
    odds = (p / (1 - p)) ** by
    return odds / (1 + odds)


def widths(found: dict) -> float:
    return float(np.mean([np.ptp(row["difference_interval"]) for row in found["table"]]))


def test_intervals_put_together_are_those_of_a_sum_of_variances() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        one, two, rho = rng.uniform(0.1, 2), rng.uniform(0.1, 2), rng.uniform(-1, 1)
        low, high = difference_interval_of_two(
            (5.0, 3.0), ((5 - one, 5 + one), (3 - two, 3 + two)), rho
        )
        reach = np.sqrt(one**2 + two**2 - 2 * rho * one * two)
        assert (low, high) == pytest.approx((2 - reach, 2 + reach))


def test_correlation_of_units_is_that_of_their_sums() -> None:
    rng = np.random.default_rng(1)
    names = [mix(rng.integers(0, k, 60).astype(np.uint64)) for k in (25, 40)]
    values = [rng.normal(size=60) for _ in names]
    sums = [
        {u: float(v[h == u].sum()) for u in h.tolist()} for h, v in zip(names, values, strict=True)
    ]
    product = sum(total * sums[1].get(unit, 0.0) for unit, total in sums[0].items())
    spread = np.sqrt(np.prod([sum(t**2 for t in each.values()) for each in sums]))
    found = unit_correlation((names[0], values[0]), (names[1], values[1]))
    assert found == pytest.approx(product / spread, abs=1e-12)
    assert unit_correlation((names[0], values[0]), (names[0], 2 * values[0])) == pytest.approx(1.0)
    assert unit_correlation((names[0], values[0]), (names[1][:0], values[1][:0])) == 0.0


def test_correlation_of_replicates_is_column_by_column() -> None:
    rng = np.random.default_rng(2)
    one, two = rng.normal(size=(2, 64, 3))
    one[:, 2] = 0.0
    expected = [float(np.corrcoef(one[:, i] - 0, two[:, i])[0, 1]) for i in range(2)]
    centred = one - one.mean(axis=0), two - two.mean(axis=0)
    assert replicate_correlation(*centred).tolist() == pytest.approx([*expected, 0.0])


def test_a_table_differs_from_itself_by_nothing() -> None:
    p, y = drawn(np.random.default_rng(3), 800)
    view = View(pane_of(BINARY, 800, confidences=p, labels=y), TEN)
    found = reliability_difference(view, view)
    json.dumps(found, allow_nan=False)
    assert (found["difference"], found["difference_interval"]) == (
        0.0,
        pytest.approx([0.0, 0.0], abs=1e-12),
    )
    for row in found["table"]:
        assert row["difference"] == 0.0
        assert row["against"]["gap"] == row["gap"]
        low, high = row["difference_interval"]
        assert low <= 0.0 <= high
        # Wilson's intervals are not symmetric, so of what is fully shared their skewness is left.
        arms = abs(row["accuracy"] - row["interval"][0]), abs(row["interval"][1] - row["accuracy"])
        assert high - low == pytest.approx(2 * abs(arms[1] - arms[0]), abs=1e-9)


def test_two_tables_are_distinguished_better_on_the_same_predictions() -> None:
    rng = np.random.default_rng(4)
    p, y = drawn(rng, 1500)
    q = np.clip(p + rng.normal(0, 0.01, 1500), 0.01, 0.99)
    other_p, other_y = drawn(rng, 1500)
    mine = View(pane_of(BINARY, 1500, confidences=q, labels=y), TEN)
    paired = reliability_difference(mine, View(pane_of(BINARY, 1500, confidences=p, labels=y), TEN))
    apart = reliability_difference(
        mine, View(pane_of(BINARY, 1500, "v", confidences=other_p, labels=other_y), TEN)
    )
    assert widths(paired) < 0.7 * widths(apart)
    assert np.ptp(paired["difference_interval"]) < 0.2 * np.ptp(apart["difference_interval"])
    assert paired["table_method"] == apart["table_method"]


@pytest.mark.parametrize("is_paired", [True, False])
def test_intervals_of_gaps_cover_the_true_difference(is_paired: bool) -> None:
    rng = np.random.default_rng(5)
    grid = np.linspace(0.02, 0.98, 100_001)

    def true_gaps(by: float) -> tuple[np.ndarray, float]:
        q = sharpened(grid, by)
        place = np.minimum((q * 10).astype(int), 9)
        return np.bincount(place, grid - q, 10) / np.bincount(place, minlength=10), float(
            (grid - q).mean()
        )

    (mine, mean), (theirs, other_mean) = true_gaps(1.6), true_gaps(1.0)
    inside, complete = [], []
    for _ in range(40):
        p, y = drawn(rng, 1000)
        base, base_y = (p, y) if is_paired else drawn(rng, 1000)
        one = pane_of(BINARY, 1000, confidences=sharpened(p, 1.6), labels=y)
        two = pane_of(BINARY, 1000, "u" if is_paired else "v", confidences=base, labels=base_y)
        found = reliability_difference(View(one, TEN), View(two, TEN))
        for row, true in zip(found["table"], mine - theirs, strict=True):
            low, high = row["difference_interval"]
            inside.append(low <= true <= high)
        low, high = found["difference_interval"]
        complete.append(low <= mean - other_mean <= high)
    assert 0.91 <= np.mean(inside) <= 0.985
    assert np.mean(complete) >= 0.87


def test_equal_sides_of_a_table_that_is_empty_or_not_replicated() -> None:
    p, y = drawn(np.random.default_rng(6), 300)
    view = View(pane_of(BINARY, 300, confidences=p, labels=y), TEN)
    found = reliability_difference(view, View(Pane(BINARY), TEN))
    assert (found["difference"], found["difference_reason"]) == (None, "no_data")
    assert all(row["difference"] is None for row in found["table"])
    odd = PaneQuery(bins=8, scope="positive")
    pair = [View(view.pane, odd), View(view.pane, odd)]
    assert reliability_difference(*pair)["table_method"].endswith("independent data (MOVER)")
    few = View(pane_of(BINARY, 5, confidences=p[:5], labels=y[:5]), TEN)
    assert reliability_difference(few, view)["difference_reason"] == "too_few_units"


def logits_and_labels(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    z = rng.normal(0, 2, (n, 3))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return z, (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(0, 2)


THREE = PaneSpec("multiclass", 3)


def compared(a: Pane, b: Pane, objective: str = "nll") -> dict:
    fits = [fit_temperature(each, objective=objective, rows_if_complete=True) for each in (a, b)]
    return temperature_difference(*fits, a, b)


@pytest.mark.parametrize("objective", ["nll", "brier"])
def test_temperatures_of_the_same_predictions_differ_as_their_logits_do(objective: str) -> None:
    z, y = logits_and_labels(np.random.default_rng(7), 500)
    a = pane_of(THREE, 500, window=True, logits=z * 1.5, labels=y)
    b = pane_of(THREE, 500, window=True, logits=z, labels=y)
    found = compared(a, b, objective)
    # T of scaled logits is scaled, so the two estimates have one error and it is 1.5 to 1 of the temperatures.
    assert found["ratio"] == pytest.approx(1.5, abs=1e-6)
    assert found["correlation"] == pytest.approx(1.0, abs=1e-6)
    assert found["shared"] == {"n": 500, "share": 1.0}
    assert found["ratio_interval"] == pytest.approx([1.5, 1.5], abs=1e-4)
    low, high = found["difference_interval"]
    assert high - low == pytest.approx(
        2 * 1.959964 * 0.5 * found["against"]["standard_error"], rel=1e-3
    )


def test_temperatures_of_samples_and_of_all_rows_are_paired_alike() -> None:
    """A pane keeps a part of its predictions; their slopes speak for all."""
    rng = np.random.default_rng(8)
    z, y = logits_and_labels(rng, 3000)
    sides = (z * 1.5, z + rng.normal(0, 1.0, z.shape))
    kept = [pane_of(THREE, 3000, logits=each, labels=y) for each in sides]
    complete = [pane_of(THREE, 3000, window=True, logits=each, labels=y) for each in sides]
    assert kept[0].sample.halvings > 0 and complete[0].sample.halvings == 0
    few, many = compared(*kept), compared(*complete)
    assert 0.2 < many["correlation"] < 0.9
    assert few["correlation"] == pytest.approx(many["correlation"], abs=0.15)
    assert few["shared"]["share"] == 1.0


def test_intervals_of_temperatures_cover_and_pairing_narrows_them() -> None:
    rng = np.random.default_rng(9)
    found: dict[bool, list] = {True: [], False: []}
    for _ in range(40):
        z, y = logits_and_labels(rng, 500)
        fresh, fresh_y = logits_and_labels(rng, 500)
        mine = pane_of(THREE, 500, window=True, logits=z * 1.5, labels=y)
        same = pane_of(THREE, 500, window=True, logits=z * 0.9, labels=y)
        other = pane_of(THREE, 500, "v", window=True, logits=fresh * 0.9, labels=fresh_y)
        found[True].append(compared(mine, same)["difference_interval"])
        found[False].append(compared(mine, other)["difference_interval"])
    for bounds in found.values():
        low, high = np.array(bounds).T
        assert np.mean((low <= 0.6) & (high >= 0.6)) >= 0.88
    assert np.mean(np.ptp(found[True], axis=1)) < 0.5 * np.mean(np.ptp(found[False], axis=1))


def test_a_temperature_that_is_not_there_is_no_difference() -> None:
    z, y = logits_and_labels(np.random.default_rng(10), 60)
    a = pane_of(THREE, 60, logits=z, labels=y)
    found = compared(a, Pane(THREE))
    assert (found["difference"], found["difference_interval"]) == (None, None)
    assert found["difference_reason"] == "no_labels"
    assert found["shared"] == {"n": 0, "share": None}
    fits = [fit_temperature(each, objective="brier") for each in (a, a)]
    assert temperature_difference(*fits, a, a)["difference_interval"] == pytest.approx(
        [0.0, 0.0], abs=1e-6
    )


def votes_of(rng: np.random.Generator, p: np.ndarray, n_votes: int) -> np.ndarray:
    return np.stack([rng.multinomial(n_votes, row) for row in p])


def disagreed(one: Pane, two: Pane, weight: str = "1") -> dict:
    pane_query = PaneQuery(bins=15, options={"loss_weight": weight})
    views = [View(one, pane_query), View(two, pane_query)]
    answers = [disagreement_report(view) for view in views]
    return disagreement_difference(*views, *answers)


def test_disagreement_is_compared_number_by_number() -> None:
    rng = np.random.default_rng(11)
    p = rng.dirichlet(np.ones(3), 900)
    ratings = votes_of(rng, p, 4)
    sharp = p**1.5 / (p**1.5).sum(axis=1, keepdims=True)
    others = rng.dirichlet(np.ones(3), 900)
    mine = pane_of(THREE, 900, probabilities=sharp, label_counts=ratings)
    same = pane_of(THREE, 900, probabilities=p, label_counts=ratings)
    other = pane_of(THREE, 900, "v", probabilities=others, label_counts=votes_of(rng, others, 4))
    paired, apart = disagreed(mine, same), disagreed(mine, other)
    json.dumps(paired, allow_nan=False)
    assert paired.keys() == {*MEANS, *SMOOTH}
    assert paired["rater_disagreement"]["difference_interval"] == pytest.approx(
        [0.0, 0.0], abs=1e-12
    )
    for name in ("mean_disagreement", "epistemic_loss"):
        narrow, wide = (np.ptp(each[name]["difference_interval"]) for each in (paired, apart))
        assert narrow < wide
        low, high = paired[name]["difference_interval"]
        assert low <= paired[name]["difference"] <= high
    assert (
        paired["mean_disagreement"]["difference_interval"][1]
        < 0
        < paired["epistemic_loss"]["difference_interval"][0]
    )
    by_ratings = disagreed(mine, same, "n")
    assert by_ratings["mean_disagreement"]["difference_reason"] == "not_replicated"


def test_means_of_ratings_are_paired_among_the_metrics() -> None:
    rng = np.random.default_rng(12)
    p = rng.dirichlet(np.ones(3), 600)
    ratings = votes_of(rng, p, 3)
    sides = [
        View(pane_of(THREE, 600, probabilities=each, label_counts=ratings), PaneQuery())
        for each in (0.5 * p + 0.5 / 3, p)
    ]
    slugs = ["squared_loss", "epistemic_loss", "irreducible_loss", "disagreement_loss", "brier"]
    found = differences(*sides, slugs)
    for slug in slugs:
        low, high = found[slug]["difference_interval"]
        assert low <= found[slug]["difference"] <= high
    # The same votes have the same spread, and the Brier score of shares is the squared loss.
    assert found["irreducible_loss"]["difference_interval"] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert found["squared_loss"]["difference_interval"] == pytest.approx(
        found["brier"]["difference_interval"]
    )
    few = [
        View(pane_of(THREE, 9, probabilities=p[:9], label_counts=ratings[:9]), PaneQuery())
        for _ in sides
    ]
    assert (
        differences(*few, ["epistemic_loss"])["epistemic_loss"]["difference_reason"]
        == "too_few_units"
    )


def test_shared_predictions_are_counted_below_the_smaller_threshold() -> None:
    rng = np.random.default_rng(13)
    p, y = drawn(rng, 3000)
    many = pane_of(BINARY, 3000, confidences=p, labels=y)
    half = pane_of(BINARY, 1500, window=True, confidences=p[:1500], labels=y[:1500])
    assert many.sample.halvings > half.sample.halvings == 0
    found = shared(half, many)
    assert found["share"] == 1.0
    assert shared(many, half)["share"] == pytest.approx(0.5, abs=0.07)
    assert shared(many, half)["n"] == found["n"]


@pytest.mark.parametrize("method", ["platt", "isotonic", "temperature"])
def test_an_own_map_gains_over_one_that_was_fitted_to_something_else(method: str) -> None:
    rng = np.random.default_rng(14)
    sides = []
    for prefix, by in (("u", 2.5), ("v", 1.0), ("w", 2.5)):
        p, y = drawn(rng, 600)
        sides.append(
            pane_of(BINARY, 600, prefix, window=True, confidences=sharpened(p, by), labels=y)
        )
    view, *others = (View(each, TEN) for each in sides)
    unlike, alike = (
        gain_over_other_map(fit(method, each), view, method, Options()) for each in others
    )
    assert unlike["difference"]["brier"]["interval"][0] > 0
    low, high = alike["difference"]["brier"]["interval"]
    assert low < 0.002 and high > -0.01 and high - low < 0.02
    assert (unlike["n"], unlike["n_units"]) == (600, 600)
    assert unlike["against_held_out"]["brier"] - unlike["held_out"]["brier"] == pytest.approx(
        unlike["difference"]["brier"]["value"], abs=1e-12
    )


def test_the_own_map_is_not_judged_by_labels_that_made_it() -> None:
    """Naively: fit to each half by hand, and score the other."""
    rng = np.random.default_rng(15)
    p, y = drawn(rng, 400)
    view = View(pane_of(BINARY, 400, window=True, confidences=sharpened(p, 2.0), labels=y), TEN)
    other = fit("platt", View(pane_of(BINARY, 400, "v", window=True, confidences=p, labels=y), TEN))
    batch = view.pane.sample.batch()
    rows = labelled_rows(batch, view.policy)
    label = rows.share[:, 1]
    own = np.zeros(400)
    for half in (0, 1):
        fitted = Pane.for_window(BINARY)
        fitted.fill_batch(batch.take(rows.half != half))
        found = fit("platt", View(fitted, TEN))
        mapped = apply(found, batch)
        own[rows.half == half] = (mapped[rows.half == half] - label[rows.half == half]) ** 2
    theirs = (apply(other, batch) - label) ** 2
    result = gain_over_other_map(other, view, "platt", Options())
    assert result["difference"]["brier"]["value"] == pytest.approx(np.mean(theirs - own), abs=1e-12)
    few = View(pane_of(BINARY, 9, confidences=p[:9], labels=y[:9]), TEN)
    assert gain_over_other_map(other, few, "platt", Options())["difference_reason"] == "few_units"
    assert (
        gain_over_other_map({"parameters": None}, view, "platt", Options())["difference_reason"]
        == "no_map"
    )
