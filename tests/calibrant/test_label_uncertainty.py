"""Losses under label uncertainty against a naive second version on raw rows, and the laws that they obey."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import calibrant as cal
from calibrant import Batch, CalibrationInputError, Histogram, Pane, PaneSpec
from calibrant.core.batch_sums import BatchSums
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.raters.label_losses_by_bin import class_bins
from calibrant.raters.label_losses_by_row import Choice
from tests.oracle.panes import fill_part

SLUGS = (
    "squared_loss",
    "epistemic_loss",
    "irreducible_loss",
    "calibration_loss",
    "grouping_loss",
    "refinement_loss",
)
ACCUMULATORS = ("counts", "label_uncertainty", "label_bins", "classes", "replicates")


def rows(
    n: int = 400, n_classes: int = 3, seed: int = 0, least: int = 1, most: int = 6
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, some of them on edges, and votes of `least` to `most` raters a row."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(n_classes, 0.7), n)
    z = rng.dirichlet(np.full(n_classes, 0.7), n) * 0.4 + q * 0.6
    on_edge = rng.multinomial(15, q[: n // 4]) / 15
    z[: n // 4] = on_edge
    raters = rng.integers(least, most + 1, n)
    return z, np.array([rng.multinomial(int(k), p) for k, p in zip(raters, q, strict=True)])


def batch(z: np.ndarray, y: np.ndarray, **columns: Any) -> Batch:
    given = {"probabilities": z, "label_counts": y, **columns}
    return Batch.from_columns(given, task="multiclass", n_classes=z.shape[1]).batch


def pane(*batches: Batch) -> Pane:
    """A pane with the accumulators that these losses read."""
    complete = Pane(PaneSpec("multiclass", batches[0].n_classes))
    for part in batches:
        for name in ACCUMULATORS:
            fill_part(complete[name], BatchSums(part))
    return complete


def asked(
    complete: Pane, slugs: tuple[str, ...] = SLUGS, **pane_query: Any
) -> dict[str, dict[str, Any]]:
    options = {
        name: pane_query.pop(name) for name in ("single_vote", "loss_weight") if name in pane_query
    }
    return compute_metrics(View(complete, PaneQuery(**pane_query, options=options)), slugs)


def values(complete: Pane, **pane_query: Any) -> dict[str, float]:
    return {slug: found["value"] for slug, found in asked(complete, **pane_query).items()}


class Naive:
    """The paper's formulas, one row and one bin after the other."""

    def __init__(self, z: np.ndarray, y: np.ndarray, by_ratings: bool, keep: bool) -> None:
        self.z, self.y, self.n = z, y, y.sum(axis=1)
        self.mu = y / self.n[:, None]
        self.w = self.n.astype(float) if by_ratings else np.ones(len(z))
        self.by_ratings = by_ratings
        self.spread_rows = np.ones(len(z), bool) if keep else self.n > 1

    def squared(self, use: np.ndarray) -> float:
        total = 0.0
        for i in np.flatnonzero(use):
            for m, p in zip(self.mu[i], self.z[i], strict=True):
                total += self.w[i] * ((m - p) ** 2 + m * (1 - m))
        return total / self.w[use].sum()

    def epistemic(self, corrected: bool) -> float:
        total = 0.0
        for i in np.flatnonzero(self.spread_rows):
            for m, p in zip(self.mu[i], self.z[i], strict=True):
                total += self.w[i] * (m - p) ** 2
                if corrected and self.n[i] > 1:
                    total -= self.w[i] * m * (1 - m) / (self.n[i] - 1)
        return total / self.w[self.spread_rows].sum()

    def calibration(self, use: np.ndarray, bins: int, edges: str, debias: str | None) -> float:
        total = 0.0
        for k in range(self.z.shape[1]):
            for b in range(bins):
                low, high, p = b / bins, (b + 1) / bins, self.z[:, k]
                if edges == "right":
                    inside = (p <= high) & ((p > low) | (b == 0))
                else:
                    inside = (p >= low) & ((p < high) | (b == bins - 1))
                total += self._bin(np.flatnonzero(inside & use), k, debias)
        return total / self.w[use].sum()

    def _bin(self, i: np.ndarray, k: int, debias: str | None) -> float:
        if not len(i):
            return 0.0
        w, m, p = self.w[i], self.mu[i, k], self.z[i, k]
        weight = w.sum()
        c = (w * m).sum() / weight
        loss = weight * (c - (w * p).sum() / weight) ** 2
        if debias is None:
            return loss
        if len(i) == 1:
            return 0.0  # Its variance is not known.
        if self.by_ratings:
            # Pairs of different rows, about the mean probability: what no row's own chance enters.
            return weight * mean_product(w, m - (w * p).sum() / weight)
        x = m if debias == "share" else m - p
        return loss - weight * x.var() / (len(i) - 1)


def mean_product(w: np.ndarray, x: np.ndarray) -> float:
    """Weighted mean of x_i x_j over all i, j that differ."""
    top = bottom = 0.0
    for i in range(len(w)):
        for j in range(len(w)):
            if i != j:
                top += w[i] * w[j] * x[i] * x[j]
                bottom += w[i] * w[j]
    return top / bottom


@pytest.mark.parametrize("by_ratings", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("bins", "edges"), [(15, "right"), (15, "left"), (10, "right"), (60, "left")]
)
def test_equals_the_naive_version(by_ratings: bool, keep: bool, bins: int, edges: str) -> None:
    z, y = rows()
    naive, every = Naive(z, y, by_ratings, keep), np.ones(len(z), bool)
    found = asked(
        pane(batch(z, y)),
        bins=bins,
        edges=edges,
        loss_weight="n" if by_ratings else 1,
        single_vote="keep" if keep else "exclude",
    )
    value = {slug: answer["value"] for slug, answer in found.items()}
    plugin = {slug: answer["plugin"] for slug, answer in found.items()}
    used = naive.spread_rows
    squared, squared_used = naive.squared(every), naive.squared(used)
    epistemic, rough = naive.epistemic(True), naive.epistemic(False)
    calibration, binned = (naive.calibration(every, bins, edges, how) for how in ("share", None))
    calibration_used, binned_used = (
        naive.calibration(used, bins, edges, how) for how in ("share", None)
    )
    assert value == pytest.approx(
        {
            "squared_loss": squared,
            "epistemic_loss": epistemic,
            "irreducible_loss": squared_used - epistemic,
            "calibration_loss": calibration,
            "grouping_loss": epistemic - calibration_used,
            "refinement_loss": squared - calibration,
        },
        abs=1e-9,
    )
    assert plugin == pytest.approx(
        {
            "squared_loss": squared,
            "epistemic_loss": rough,
            "irreducible_loss": squared_used - rough,
            "calibration_loss": binned,
            "grouping_loss": rough - binned_used,
            "refinement_loss": squared - binned,
        },
        abs=1e-9,
    )
    residual = found["calibration_loss"]["residual_debiased"]
    if by_ratings:
        assert residual is None
    else:
        assert residual == pytest.approx(
            naive.calibration(every, bins, edges, "residual"), abs=1e-9
        )


@pytest.mark.parametrize("loss_weight", [1, "n"])
def test_parts_add_up(loss_weight: object) -> None:
    z, y = rows(least=2)
    at = values(pane(batch(z, y)), loss_weight=loss_weight)
    complete = at["squared_loss"]
    assert at["epistemic_loss"] + at["irreducible_loss"] == pytest.approx(complete, abs=1e-15)
    assert at["calibration_loss"] + at["refinement_loss"] == pytest.approx(complete, abs=1e-15)
    assert at["calibration_loss"] + at["grouping_loss"] == pytest.approx(
        at["epistemic_loss"], abs=1e-15
    )


def test_parts_add_up_among_rows_with_several_ratings() -> None:
    found = asked(pane(batch(*rows())))
    epistemic, grouping = found["epistemic_loss"], found["grouping_loss"]
    total = epistemic["value"] + found["irreducible_loss"]["value"]
    assert total == pytest.approx(epistemic["squared_loss"], abs=1e-15)
    total = grouping["value"] + grouping["calibration_loss"]
    assert total == pytest.approx(epistemic["value"], abs=1e-15)


@pytest.mark.parametrize(("loss_weight", "raters"), [(1, "mean"), ("n", "pooled")])
def test_squared_loss_is_the_brier_score(loss_weight: object, raters: str) -> None:
    z, y = rows()
    complete = pane(batch(z, y))
    fill_part(complete["scores"], BatchSums(batch(z, y)))
    found = asked(complete, ("squared_loss", "brier"), raters=raters, loss_weight=loss_weight)
    assert found["squared_loss"]["value"] == pytest.approx(found["brier"]["value"], abs=1e-14)


def test_weights_multiply() -> None:
    z, y = rows(n=60)
    weights = np.random.default_rng(1).integers(1, 4, 60)
    weighted = values(pane(batch(z, y, weights=weights.astype(float))))
    repeated = values(pane(batch(np.repeat(z, weights, axis=0), np.repeat(y, weights, axis=0))))
    for slug in ("squared_loss", "epistemic_loss", "irreducible_loss"):
        assert weighted[slug] == pytest.approx(repeated[slug], abs=1e-12)


def test_residuals_of_weighted_rows_are_debiased_by_pairs() -> None:
    z, y = rows(n=200)
    w = np.random.default_rng(2).choice([0.25, 1.0, 4.0], 200)
    found = asked(pane(batch(z, y, weights=w)), bins=10)["calibration_loss"]["residual_debiased"]
    x = y / y.sum(axis=1, keepdims=True) - z
    total = 0.0
    for k in range(3):
        place = np.maximum(np.ceil(z[:, k] * 10 - 1e-12), 1)
        for b in np.unique(place):
            i = place == b
            product = 0.0 if i.sum() == 1 else mean_product(w[i], x[i, k])
            total += w[i].sum() * product
    assert found == pytest.approx(total / w.sum(), abs=1e-12)


def unequal(rng: np.random.Generator, n_bins: int) -> tuple[np.ndarray, ...]:
    """Three or four rows a bin, all at one probability that errs by a tenth; fewer votes scatter more."""
    middle = (np.arange(n_bins) + 0.5) / n_bins
    p = np.repeat(middle, rng.integers(3, 5, n_bins))
    truth = np.clip(p + 0.1, 0.0, 1.0)
    raters = rng.choice([2, 3, 12], len(p))
    q = np.where(rng.random(len(p)) < 0.5, truth, (rng.random(len(p)) < truth).astype(float))
    positive = rng.binomial(raters, q)
    return p, truth, np.stack([raters - positive, positive], axis=1)


def test_unequal_weights_are_debiased_without_bias() -> None:
    # Squared deviations from the weighted mean would leave a quarter of the bias in, and more of the second one.
    rng = np.random.default_rng(8)
    seen = []
    for _ in range(150):
        p, truth, y = unequal(rng, 60)
        z = np.stack([1 - p, p], axis=1)
        weights = rng.choice([0.25, 1.0, 4.0], len(p))
        by_votes = class_bins(
            View(pane(batch(z, y)), PaneQuery(bins=60)), Choice(False, by_ratings=True)
        )
        given = class_bins(
            View(pane(batch(z, y, weights=weights)), PaneQuery(bins=60)), Choice(False, False)
        )
        n = y.sum(axis=1)
        gap = (truth - p) ** 2
        assert given.residual_debiased is not None
        seen.append(
            (
                by_votes.debiased - 2 * (n @ gap) / n.sum(),
                given.residual_debiased - 2 * (weights @ gap) / weights.sum(),
                by_votes.plugin - 2 * (n @ gap) / n.sum(),
            )
        )
    mean, error = np.mean(seen, axis=0), np.std(seen, axis=0) / np.sqrt(len(seen))
    assert (np.abs(mean[:2]) < 3.5 * error[:2]).all(), (mean, error)
    assert (error[:2] < 0.05 * mean[2]).all()


def test_weights_of_one_change_nothing() -> None:
    z, y = rows()
    assert values(pane(batch(z, y, weights=np.ones(len(z))))) == pytest.approx(
        values(pane(batch(z, y))), abs=1e-14
    )


def test_more_ratings_alike_change_the_epistemic_loss_alone() -> None:
    z, y = rows(least=2)
    once, tripled = asked(pane(batch(z, y))), asked(pane(batch(z, 3 * y)))
    assert tripled["squared_loss"]["value"] == pytest.approx(
        once["squared_loss"]["value"], abs=1e-13
    )
    assert tripled["epistemic_loss"]["plugin"] == pytest.approx(
        once["epistemic_loss"]["plugin"], abs=1e-13
    )
    assert tripled["epistemic_loss"]["value"] > once["epistemic_loss"]["value"]


def test_one_vote_everywhere_rejects_what_needs_two() -> None:
    z, y = rows(least=1, most=1)
    for single_vote in ("exclude", "keep"):
        found = asked(pane(batch(z, y)), single_vote=single_vote)
        for slug in ("epistemic_loss", "irreducible_loss", "grouping_loss"):
            assert found[slug]["value"] is None
            assert found[slug]["reason"] == "one_vote"
        for slug in ("squared_loss", "calibration_loss", "refinement_loss"):
            assert found[slug]["value"] is not None
            assert found[slug]["n_one_vote"] == len(z)


@pytest.mark.parametrize("by_ratings", [False, True])
def test_the_calibration_loss_by_class_and_bin(by_ratings: bool) -> None:
    z, y = rows(n=200, seed=3)
    naive = Naive(z, y, by_ratings, False)
    found = asked(pane(batch(z, y)), bins=10, loss_weight="n" if by_ratings else 1)[
        "calibration_loss"
    ]
    for k in range(3):
        for b in range(10):
            i = np.flatnonzero((z[:, k] <= (b + 1) / 10) & ((z[:, k] > b / 10) | (b == 0)))
            assert found["by_bin"]["count"][k][b] == len(i)
            for name, debias in (("plugin", None), ("debiased", "share")):
                expected = naive._bin(i, k, debias) / naive.w.sum()
                assert found["by_bin"][name][k][b] == pytest.approx(expected, abs=1e-12)
    for name, by_class, complete in (
        ("plugin", "plugin_by_class", "plugin"),
        ("debiased", "by_class", "value"),
    ):
        assert found[by_class] == pytest.approx(
            [sum(bins) for bins in found["by_bin"][name]], abs=1e-15
        )
        assert found[complete] == pytest.approx(sum(found[by_class]), abs=1e-15)


@pytest.mark.parametrize("edges", ["right", "left"])
def test_single_labels_give_the_calibration_loss(edges: str) -> None:
    z, y = rows(least=1, most=1)
    naive, every = Naive(z, y, False, False), np.ones(len(z), bool)
    found = asked(pane(batch(z, y)), edges=edges)["calibration_loss"]
    debiased, plugin, residual = (
        naive.calibration(every, 15, edges, how) for how in ("share", None, "residual")
    )
    assert found["value"] == pytest.approx(debiased, abs=1e-12) and debiased < plugin
    assert found["plugin"] == pytest.approx(plugin, abs=1e-12)
    assert found["residual_debiased"] == pytest.approx(residual, abs=1e-12)


def test_keeping_single_ratings_biases_upwards() -> None:
    z, y = rows(n=4000)
    complete = pane(batch(z, y))
    assert (
        values(complete, single_vote="keep")["epistemic_loss"] > values(complete)["epistemic_loss"]
    )


def test_one_prediction_adds_nothing_to_the_debiased_loss() -> None:
    found = asked(pane(batch(np.array([[0.7, 0.2, 0.1]]), np.array([[2, 1, 0]]))))
    calibration = found["calibration_loss"]
    assert calibration["value"] == pytest.approx(0.0, abs=1e-15)
    assert calibration["plugin"] > 0.01
    assert calibration["n_single_bins"] == 3
    assert calibration["interval"] is None
    assert calibration["interval_reason"] == "sparse_bins"
    assert found["epistemic_loss"]["interval_reason"] == "too_few_units"


def test_plain_histograms_are_rejected() -> None:
    complete = pane(batch(*rows()))
    columns = {
        "kind": "class",
        "class": 0,
        "bins": 1200,
        "count": [4] + [0] * 1199,
        "sum_confidence": [0.0] * 1200,
        "sum_correct": [1.0] + [0.0] * 1199,
    }
    complete.fill_histogram(Histogram.from_fields(columns, complete.spec))
    for found in asked(complete).values():
        assert found["reason"] == "not_in_histogram"


def test_bins_that_only_some_windows_give() -> None:
    z, y = rows(least=2)
    assert asked(pane(batch(z, y)), bins=16)["grouping_loss"]["value"] is not None
    mixed = asked(pane(batch(*rows())), bins=16)
    assert mixed["calibration_loss"]["value"] is not None
    assert mixed["calibration_loss"]["residual_debiased"] is None
    assert mixed["grouping_loss"]["reason"] == "bins_not_exact"


def test_classes_that_are_not_kept() -> None:
    spec = PaneSpec("multiclass", 70)
    complete = Pane(spec)
    z = np.full((5, 70), 1 / 70)
    complete.fill_batch(batch(z, np.eye(70, dtype=int)[:5] * 2))
    found = compute_metrics(View(complete, PaneQuery()), SLUGS)
    assert found["epistemic_loss"]["value"] is not None
    assert found["calibration_loss"]["reason"] == "class_not_kept"


@pytest.mark.parametrize(("name", "value"), [("single_vote", "drop"), ("loss_weight", "2")])
def test_unknown_options_are_rejected(name: str, value: str) -> None:
    with pytest.raises(CalibrationInputError) as rejection:
        asked(pane(batch(*rows(n=20))), ("epistemic_loss",), **{name: value})
    assert rejection.value.violations[0].pointer == f"/{name}"


def test_intervals_hold_the_estimate() -> None:
    found = asked(pane(batch(*rows(n=3000))))
    for slug in ("squared_loss", "epistemic_loss", "irreducible_loss", "calibration_loss"):
        low, high = found[slug]["interval"]
        assert low <= found[slug]["value"] <= high
    assert found["grouping_loss"]["interval"] is None
    assert found["grouping_loss"]["interval_reason"] == "not_replicated"


def test_raw_rows_and_kept_state_agree() -> None:
    z, y = rows()
    given = batch(z, y)
    raw = compute_metrics(View(pane(given), PaneQuery(), given), SLUGS)
    kept = compute_metrics(View(pane(given), PaneQuery()), SLUGS)
    for slug in SLUGS:
        assert raw[slug]["value"] == pytest.approx(kept[slug]["value"], abs=1e-13)


def test_a_pane_stays_small() -> None:
    rng = np.random.default_rng(3)
    q = rng.dirichlet(np.full(10, 0.2), 20_000)
    y = np.array(
        [rng.multinomial(int(k), p) for k, p in zip(rng.integers(1, 6, len(q)), q, strict=True)]
    )
    given = BatchSums(batch(q, y))
    complete = Pane(PaneSpec("multiclass", 10))
    names = ("label_uncertainty", "label_bins", "disagreement", "concentration")
    for name in names:
        fill_part(complete[name], given)
    assert sum(map(len, complete.parts().values())) < 64_000


def perfect(n: int, raters: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Figure 2: positive probability uniform, the predictor knows it."""
    p = rng.random(n)
    z = np.stack([1 - p, p], axis=1)
    y = rng.binomial(raters, p)
    return z, np.stack([raters - y, y], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("raters", [2, 3, 5])
def test_debiasing_of_a_perfect_predictor(raters: int) -> None:
    rng = np.random.default_rng(raters)
    n, runs = 100, 1500
    seen = np.empty((runs, 5))
    for run in range(runs):
        z, y = perfect(n, raters, rng)
        view = View(pane(batch(z, y)), PaneQuery())
        found = compute_metrics(view, ("epistemic_loss",))["epistemic_loss"]
        bins = class_bins(view, Choice(False, False))
        residual = bins.residual_debiased
        assert residual is not None
        seen[run] = found["plugin"], found["value"], bins.plugin, bins.debiased, residual
    mean, error = seen.mean(axis=0), seen.std(axis=0) / np.sqrt(runs)
    expected = np.array([1 / (3 * raters), 0.0, 5 / (raters * n), 0.0, 0.0])
    assert (np.abs(mean - expected) < 4 * error + [0, 0, 1e-4, 1e-4, 0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("raters", [2, 3, 5])
def test_unbiased_for_a_predictor_that_errs(raters: int) -> None:
    rng = np.random.default_rng(10 + raters)
    n, runs, bins = 300, 1000, 15
    seen = np.empty((runs, 4))
    for run in range(runs):
        p = rng.random(n)
        y = rng.binomial(raters, p**2)
        given = batch(np.stack([1 - p, p], axis=1), np.stack([raters - y, y], axis=1))
        view = View(pane(given), PaneQuery(bins=bins))
        found = compute_metrics(view, ("squared_loss", "epistemic_loss"))
        table = class_bins(view, Choice(False, False))
        residual = table.residual_debiased
        assert residual is not None
        seen[run] = (
            found["squared_loss"]["value"],
            found["epistemic_loss"]["value"],
            table.debiased,
            residual,
        )
    low, high = np.arange(bins) / bins, np.arange(1, bins + 1) / bins
    gap = (low**2 + low * high + high**2) / 3 - (low + high) / 2
    epistemic = 2 * (1 / 3 - 2 / 4 + 1 / 5)  # 2 E (p - p^2)^2
    irreducible = 2 * (1 / 3 - 1 / 5)  # 2 E p^2 (1 - p^2)
    calibration = 2 * float((gap**2).mean())
    expected = np.array([epistemic + irreducible, epistemic, calibration, calibration])
    mean, error = seen.mean(axis=0), seen.std(axis=0) / np.sqrt(runs)
    assert (np.abs(mean - expected) < 4 * error + [0, 0, 1e-4, 0]).all()


def test_rows_of_many_classes_have_a_calibration_loss() -> None:
    """Panes of more than 64 classes store no label bins; rows give the classes' bins anyway."""
    z, y = rows(n=40, n_classes=100)
    labels = [np.repeat(np.arange(100), row).tolist() for row in y]
    found = cal.evaluate(z, labels, ["calibration_loss", "refinement_loss", "grouping_loss"])
    reference, every = Naive(z, y, by_ratings=False, keep=False), np.ones(len(z), bool)
    expected = reference.calibration(every, 15, "right", "share")
    assert found["calibration_loss"].value == pytest.approx(expected, abs=1e-12)
    assert found["calibration_loss"].extra["residual_debiased"] is None
    total = reference.squared(every)
    assert found["refinement_loss"].value == pytest.approx(total - expected, abs=1e-12)
    assert found["grouping_loss"].reason == "class_not_kept"
    weighted = cal.evaluate(z, labels, ["calibration_loss(loss_weight=n)"])
    assert [each.reason for each in weighted.values()] == ["class_not_kept"]
