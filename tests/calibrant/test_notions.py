"""The notions of calibration: a naive second version, hand values, laws, and bounds between kept state and raw rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.estimators.kernel import BANDWIDTHS, log_likelihood, points_of
from calibrant.metrics import METRICS, compute_metrics
from calibrant.metrics.formula_metric import FormulaMetric, scored_cells
from calibrant.metrics.uce import inverse_binary_entropy
from tests.calibrant import notions_reference as naive
from tests.calibrant.reference import POLICIES, rows_of

OURS = tuple(slug for slug, metric in METRICS.items() if isinstance(metric, FormulaMetric))
ERRORS = tuple(
    slug
    for slug in OURS
    if METRICS[slug].direction == "lower"
    and slug not in ("hosmer_lemeshow", "corp_uncertainty", "uce", "rater_statistic")
)
policies = pytest.mark.parametrize("raters", POLICIES)


def batch_of(
    seed: int,
    n: int = 36,
    n_classes: int = 3,
    raters: int = 4,
    weights: bool = True,
    units: bool = False,
) -> Batch:
    """Rows with ties: probabilities in twentieths, and rows that nobody typed."""
    rng = np.random.default_rng(seed)
    typed = rng.multinomial(20, rng.dirichlet(np.ones(n_classes), n)) / 20
    rows = np.where(rng.random((n, 1)) < 0.5, typed, rng.dirichlet(np.ones(n_classes), n))
    counts = rng.multinomial(
        rng.integers(1, raters + 1, n), rows**1.5 / (rows**1.5).sum(1, keepdims=True)
    )
    columns: dict[str, Any] = {"probabilities": rows, "label_counts": counts}
    if weights:
        columns["weights"] = rng.choice([0.5, 1.0, 2.0], n)
    if units:
        columns["units"] = [f"u{k}" for k in rng.integers(0, n // 3, n)]
    task = "binary" if n_classes == 2 else "multiclass"
    return Batch.from_columns(columns, task=task).batch


def pane_of(batch: Batch) -> Pane:
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    return pane


def asked(
    batch: Batch,
    slugs: tuple[str, ...] | str,
    raw: bool = True,
    pane_query: PaneQuery | None = None,
    **options: Any,
) -> dict[str, dict[str, Any]]:
    complete = pane_query or PaneQuery()
    view = View(
        pane_of(batch), PaneQuery(**(vars(complete) | {"options": options})), batch if raw else None
    )
    return compute_metrics(view, [slugs] if isinstance(slugs, str) else slugs)


def value(
    batch: Batch, slug: str, raw: bool = True, pane_query: PaneQuery | None = None, **options: Any
) -> float:
    found = asked(batch, slug, raw, pane_query, **options)[slug]
    assert found["value"] is not None, found
    return float(found["value"])


def readings(
    batch: Batch, slugs: tuple[str, ...], raw: bool, pane_query: PaneQuery
) -> dict[str, dict[str, Any]]:
    """Values with what they were made of, without intervals and null references; None and no more where there is none."""
    view, found = View(pane_of(batch), pane_query, batch if raw else None), {}
    for slug in slugs:
        metric = METRICS[slug]
        assert isinstance(metric, FormulaMetric)
        try:
            reading = metric.read(view)
        except NoResultError:
            reading = None
        found[slug] = (
            {"value": None} if reading is None else {"value": reading.value, **reading.extra}
        )
    return found


# A naive second version, on raw rows.


@policies
@pytest.mark.parametrize("seed", [0, 1])
def test_measures_of_scores_equal_the_naive_version(raters: str, seed: int) -> None:
    batch = batch_of(seed)
    rows = naive.samples(rows_of(batch), "top_label", raters)
    pane_query = PaneQuery(raters=raters, bins=10)
    expected = {
        "ks": naive.ks(rows),
        "kuiper": naive.kuiper(rows),
        "macro_ce": naive.macro_ce(rows),
        "overconfidence_error": naive.overconfidence(rows, 10, "right"),
        "ece_sweep": naive.sweep(rows, "together")[0],
        **naive.corp(rows, "brier"),
    }
    found = asked(batch, tuple(expected), pane_query=pane_query)
    for slug, number in expected.items():
        assert found[slug]["value"] == pytest.approx(number, abs=1e-11), slug
    assert found["ece_sweep"]["bins_chosen"] == naive.sweep(rows, "together")[1]


@policies
@pytest.mark.parametrize("ties", ["together", "split"])
def test_sweep_and_ranges_equal_the_naive_version(raters: str, ties: str) -> None:
    for seed in range(6):
        batch = batch_of(seed, n=24 + seed)
        rows = naive.samples(rows_of(batch), "top_label", raters)
        pane_query = PaneQuery(raters=raters, bins=4)
        for norm in (1, 2):
            found = asked(batch, "ece_sweep", pane_query=pane_query, ties=ties, norm=norm)[
                "ece_sweep"
            ]
            number, bins = naive.sweep(rows, ties, norm)
            assert (found["value"], found["bins_chosen"]) == (
                pytest.approx(number, abs=1e-11),
                bins,
            )
        ace = value(batch, "nixon_ace", pane_query=pane_query, ties=ties)
        assert ace == pytest.approx(naive.nixon(rows_of(batch), raters, 4, ties), abs=1e-11)
        tace = value(batch, "tace", pane_query=pane_query, ties=ties, epsilon=0.2)
        assert tace == pytest.approx(naive.nixon(rows_of(batch), raters, 4, ties, 0.2), abs=1e-11)


@policies
def test_smooth_ece_solves_its_own_equation(raters: str) -> None:
    batch = batch_of(3, n=6)
    rows = naive.samples(rows_of(batch), "top_label", raters)
    found = value(batch, "smooth_ece", pane_query=PaneQuery(raters=raters))
    assert naive.smooth_at(rows, found) == pytest.approx(found, abs=1e-6)


@policies
@pytest.mark.parametrize("leave", ["label", "instance"])
@pytest.mark.parametrize("bandwidth", [0.02, 0.2])
def test_kernel_error_equals_the_naive_version(raters: str, leave: str, bandwidth: float) -> None:
    rng = np.random.default_rng(8)
    z = rng.dirichlet(np.ones(3), 25)
    z[:2] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    counts = rng.multinomial(rng.integers(1, 5, 25), z)
    batch = Batch.from_columns({"probabilities": z, "label_counts": counts}).batch
    found = value(
        batch, "kde_ece", pane_query=PaneQuery(raters=raters), leave=leave, bandwidth=bandwidth
    )
    assert found == pytest.approx(naive.kde(rows_of(batch), raters, leave, bandwidth), abs=1e-10)


@policies
def test_error_of_densities_equals_the_naive_version(raters: str) -> None:
    batch = batch_of(9, n=16)
    rows = naive.samples(rows_of(batch), "top_label", raters)
    found = value(batch, "zhang_kde_ece", pane_query=PaneQuery(raters=raters))
    assert found == pytest.approx(naive.density_error(rows, 16), abs=2e-6)


@pytest.mark.parametrize(
    ("options", "how"),
    [({"bandwidth_from": "correct"}, {"of": "correct"}), ({"kernel_sd": 0.07}, {"sd": 0.07})],
)
def test_error_of_densities_with_the_published_or_a_given_bandwidth(options, how) -> None:  # type: ignore[no-untyped-def]
    batch = batch_of(9, n=16)
    rows = naive.samples(rows_of(batch), "top_label", "mean")
    pane_query = PaneQuery(raters="mean")
    found = asked(batch, "zhang_kde_ece", True, pane_query, **options)["zhang_kde_ece"]
    assert found["value"] == pytest.approx(naive.density_error(rows, 16, **how), abs=2e-6)
    plain = value(batch, "zhang_kde_ece", pane_query=PaneQuery(raters="mean"))
    assert abs(found["value"] - plain) > 1e-3
    assert found["bandwidth_from"] == options.get("bandwidth_from", "kernel_sd")
    kept = asked(batch, "zhang_kde_ece", False, pane_query, **options)["zhang_kde_ece"]
    assert abs(kept["value"] - found["value"]) <= kept["error_bound"]


@policies
@pytest.mark.parametrize("edges", ["right", "left"])
def test_uce_equals_the_naive_version(raters: str, edges: str) -> None:
    batch = batch_of(5)
    pane_query = PaneQuery(raters=raters, bins=12, edges=edges)  # type: ignore[arg-type]
    expected = naive.uce(rows_of(batch), raters, 12, edges)
    for raw in (True, False):
        assert value(batch, "uce", raw, pane_query) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("raw", [True, False])
def test_measures_against_ratings_equal_the_naive_version(raw: bool) -> None:
    batch = batch_of(6, n=80, n_classes=4)
    found = asked(batch, ("ent_ce", "dist_ce", "rank_cs"), raw)
    expected = naive.against_votes(rows_of(batch))
    for slug in found:
        assert found[slug]["value"] == pytest.approx(expected[slug], abs=1e-12)
    assert found["ent_ce"]["mean_signed"] == pytest.approx(expected["mean_signed"], abs=1e-12)
    for name in ("strict_pairs", "untied_fraction"):
        assert found["rank_cs"][name] == pytest.approx(expected[name], abs=1e-12)


@policies
@pytest.mark.parametrize("kind", ["brier", "log"])
def test_corp_equals_the_naive_version(raters: str, kind: str) -> None:
    rng = np.random.default_rng(2)
    z = np.clip(np.round(rng.random(40), 1), 0.05, 0.95)
    counts = np.stack([rng.binomial(3, 1 - z**1.3), np.zeros(40, int)], axis=1)
    counts[:, 1] = 3 - counts[:, 0]
    batch = Batch.from_columns({"confidences": z, "label_counts": counts}).batch
    expected = naive.corp(naive.samples(rows_of(batch), "positive", raters), kind)
    found = asked(batch, tuple(expected), pane_query=PaneQuery(raters=raters), score=kind)
    for slug, number in expected.items():
        assert found[slug]["value"] == pytest.approx(number, abs=1e-12)


def test_classical_tests_equal_the_naive_version() -> None:
    rng = np.random.default_rng(4)
    z = np.round(rng.beta(0.8, 0.8, 90), 3)
    labels = (rng.random(90) < z).astype(int)
    batch = Batch.from_columns({"confidences": z, "labels": labels}).batch
    rows = naive.samples(rows_of(batch), "positive", "pooled")
    found = asked(batch, ("spiegelhalter_z", "hosmer_lemeshow"), pane_query=PaneQuery(bins=10))
    z_value = naive.spiegelhalter(rows, [1] * 90)
    assert found["spiegelhalter_z"]["value"] == pytest.approx(z_value, abs=1e-10)
    assert found["hosmer_lemeshow"]["value"] == pytest.approx(
        naive.hosmer_lemeshow(rows, 10), abs=1e-9
    )
    assert found["hosmer_lemeshow"]["degrees_of_freedom"] == 10
    training = asked(batch, "hosmer_lemeshow", pane_query=PaneQuery(bins=10), data="training")
    assert training["hosmer_lemeshow"]["degrees_of_freedom"] == 8


def test_ratings_and_unit_members_count_as_dependent() -> None:
    batch = batch_of(7, n_classes=2, units=True, weights=False)
    rows = naive.samples(rows_of(batch), "positive", "pooled")
    sizes = np.bincount(np.unique(batch.unit_hash, return_inverse=True)[1])
    index = np.unique(batch.unit_hash, return_inverse=True)[1]
    expected = naive.spiegelhalter(rows, sizes[index].tolist())
    assert value(batch, "spiegelhalter_z") == pytest.approx(expected, abs=1e-10)


# Hand values.

TOY = Batch.from_columns(
    {
        "probabilities": [
            [0.78, 0.12, 0.1], [0.1, 0.64, 0.26], [0.04, 0.04, 0.92], [0.58, 0.3, 0.12], [0.05, 0.51, 0.44],
            [0.85, 0.15, 0], [0.22, 0.7, 0.08], [0.63, 0.34, 0.03], [0.02, 0.15, 0.83],
        ],
        "labels": [0, 1, 1, 0, 0, 0, 1, 2, 2],
    }
).batch  # fmt: skip


@pytest.mark.parametrize(
    ("slug", "number"),
    [
        ("ks", 0.08),
        ("kuiper", 1.2 / 9),
        ("macro_ce", (0.27 + 2.06 / 3) / 2),
        ("ece_sweep", 0.44 / 9),
    ],
)
def test_the_nine_samples_of_the_toy_example(slug: str, number: float) -> None:
    assert value(TOY, slug) == pytest.approx(number, abs=1e-12)


def test_ece_of_the_toy_example_in_three_conventions() -> None:
    assert value(TOY, "ece", pane_query=PaneQuery(bins=5)) == pytest.approx(0.94 / 9, abs=1e-12)
    assert value(TOY, "ece", pane_query=PaneQuery(bins=10)) == pytest.approx(1.58 / 9, abs=1e-12)
    left = PaneQuery(bins=10, edges="left")
    assert value(TOY, "ece", pane_query=left) == pytest.approx(2.12 / 9, abs=1e-12)


def test_a_constant_majority_predictor_looks_calibrated() -> None:
    columns = {"probabilities": [[0.7, 0.2, 0.1]] * 10, "labels": [0] * 7 + [1] * 2 + [2]}
    batch = Batch.from_columns(columns).batch
    for slug in (
        "ece",
        "ks",
        "kuiper",
        "smooth_ece",
        "ece_sweep",
        "corp_miscalibration",
        "corp_discrimination",
    ):
        assert value(batch, slug) == pytest.approx(0.0, abs=1e-12), slug
    assert value(batch, "macro_ce") == pytest.approx(0.5, abs=1e-12)


def test_scores_of_exactly_one_keep_their_full_weight() -> None:
    scores = np.repeat([1.0, 0.5], 500)
    labels = np.concatenate([np.repeat([1, 0], [300, 200]), np.tile([0, 1], 250)])
    batch = Batch.from_columns({"confidences": scores, "labels": labels}).batch
    for raw in (True, False):
        assert value(batch, "smooth_ece", raw) == pytest.approx(0.2, abs=1e-8)


def test_distributions_of_equal_entropy_and_order() -> None:
    columns = {
        "probabilities": [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1]],
        "label_counts": [[7, 2, 1], [7, 2, 1]],
    }
    found = asked(Batch.from_columns(columns).batch, ("ent_ce", "dist_ce", "rank_cs"))
    assert found["ent_ce"]["value"] == pytest.approx(0.0, abs=1e-12)
    assert found["dist_ce"]["value"] == pytest.approx(0.25, abs=1e-12)
    assert found["rank_cs"]["value"] == found["rank_cs"]["strict_pairs"] == 0.5


def test_tied_ratings_spoil_the_printed_order_only() -> None:
    columns = {"probabilities": [[0.3, 0.1, 0.6]], "label_counts": [[0, 0, 4]]}
    found = asked(Batch.from_columns(columns).batch, "rank_cs")["rank_cs"]
    assert (found["value"], found["strict_pairs"], found["untied_fraction"]) == (0.0, 1.0, 0.0)


def test_underconfidence_is_significant_too() -> None:
    z = np.full(400, 0.6)
    batch = Batch.from_columns({"confidences": z, "labels": [1] * 330 + [0] * 70}).batch
    found = asked(batch, "spiegelhalter_z")["spiegelhalter_z"]
    assert found["value"] < -5 and found["p_value"] < 1e-6 and found["sides"] == 2


def test_the_ideal_curve_of_two_classes_inverts_the_entropy() -> None:
    error = np.linspace(0.0, 0.5, 11)[1:]
    entropy = -(error * np.log2(error) + (1 - error) * np.log2(1 - error))
    np.testing.assert_allclose(inverse_binary_entropy(entropy), error, atol=1e-12)
    batch = batch_of(1, n_classes=2)
    assert len(asked(batch, "uce")["uce"]["ideal_error"]) == len(
        asked(batch, "uce")["uce"]["table"]["bin"]
    )


def test_the_likeliest_bandwidth_is_the_best_on_offer() -> None:
    rng = np.random.default_rng(0)
    z = rng.beta(2, 2, 300)
    batch = Batch.from_columns(
        {"confidences": z, "labels": (rng.random(300) < z).astype(int)}
    ).batch
    found = asked(batch, "kde_ece", selection="likelihood")["kde_ece"]
    points = points_of(scored_cells(View(pane_of(batch), PaneQuery(), batch)), "label", False)
    best = max(BANDWIDTHS, key=lambda b: log_likelihood(points, b))
    assert (found["bandwidth"], found["bandwidth_at_bound"]) == (best, False)


# Laws over every metric of this kind.


@policies
def test_kept_state_lies_within_its_bound_of_raw_rows(raters: str) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        z = rng.dirichlet(np.full(3, 0.3), 300)
        counts = rng.multinomial(rng.integers(1, 4, 300), z**1.4 / (z**1.4).sum(1, keepdims=True))
        batch = Batch.from_columns({"probabilities": z, "label_counts": counts}).batch
        pane_query = PaneQuery(raters=raters, bins=8)
        raw, kept = (
            readings(batch, OURS, True, pane_query),
            readings(batch, OURS, False, pane_query),
        )
        for slug in OURS:
            if raw[slug]["value"] is None or kept[slug].get("error_bound", 0.0) is None:
                continue
            if slug == "ece_sweep" and raw[slug]["bins_chosen"] != kept[slug]["bins_chosen"]:
                continue
            bound = kept[slug].get("error_bound", 0.0) + 1e-9
            assert abs(raw[slug]["value"] - kept[slug]["value"]) <= bound, (slug, seed)


@pytest.mark.parametrize("kind", ["brier", "log"])
def test_parts_of_the_score_lie_within_their_bounds(kind: str) -> None:
    rng = np.random.default_rng(5)
    z = rng.random(4000)
    batch = Batch.from_columns(
        {"confidences": z, "labels": (rng.random(4000) < z**2).astype(int)}
    ).batch
    slugs = ("corp_miscalibration", "corp_discrimination", "corp_uncertainty")
    raw, kept = asked(batch, slugs, True, score=kind), asked(batch, slugs, False, score=kind)
    for slug in slugs:
        bound = kept[slug].get("error_bound", 0.0)
        assert abs(raw[slug]["value"] - kept[slug]["value"]) <= bound + 1e-12
        assert bound < 0.01


@pytest.mark.parametrize("slug", OURS)
def test_batches_and_order_do_not_matter(slug: str) -> None:
    # The chi-square test of unequal weights is rejected.
    weights = slug != "hosmer_lemeshow"
    batch = batch_of(11, n=90, weights=weights)
    order = np.random.default_rng(0).permutation(90)
    parts = [batch.take(order[:20]), batch.take(order[20:55]), batch.take(order[55:])]
    merged = Pane(PaneSpec("multiclass", 3))
    for part in reversed(parts):
        merged.merge(Pane.unpack(pane_of(part).pack()))
    expected = asked(batch, slug, False)[slug]["value"]
    found = compute_metrics(View(merged, PaneQuery()), [slug])[slug]["value"]
    assert found == pytest.approx(expected, abs=1e-9)
    assert value(batch.take(order), slug) == pytest.approx(value(batch, slug), abs=1e-9)
    more = pane_of(batch_of(12, n=40, weights=weights))
    less = merged.merge(more).subtract(more)
    assert compute_metrics(View(less, PaneQuery()), [slug])[slug]["value"] == pytest.approx(
        expected, abs=1e-8
    )


@pytest.mark.parametrize(
    "slug", sorted(set(OURS) - {"kde_ece", "rater_statistic", "l2_ece_squared"})
)
def test_doubling_every_vote_changes_nothing(slug: str) -> None:
    batch = batch_of(13, weights=slug != "hosmer_lemeshow")
    columns = {"probabilities": batch.probabilities}
    if batch.weights is not None:
        columns["weights"] = batch.weights
    double = Batch.from_columns(columns | {"label_counts": 2 * batch.label_counts}).batch
    assert value(double, slug) == pytest.approx(value(batch, slug), abs=1e-9)


def test_doubling_every_vote_changes_no_kernel_error_that_leaves_predictions_out() -> None:
    batch = batch_of(13)
    columns = {"probabilities": batch.probabilities, "weights": batch.weights}
    double = Batch.from_columns(columns | {"label_counts": 2 * batch.label_counts}).batch
    once = value(batch, "kde_ece", leave="instance")
    assert value(double, "kde_ece", leave="instance") == pytest.approx(once, abs=1e-9)


@pytest.mark.parametrize("slug", OURS)
def test_permuted_classes_change_nothing(slug: str) -> None:
    if slug == "rank_cs":
        pytest.skip("the printed RankCS breaks ties by the order of the classes")
    batch = batch_of(14, n_classes=4)
    rng = np.random.default_rng(1)
    z = rng.dirichlet(np.ones(4), batch.n)  # without ties, whose top class is the lowest
    columns = {"probabilities": z, "label_counts": batch.label_counts}
    turned = {name: array[:, ::-1].copy() for name, array in columns.items()}
    pane_query = PaneQuery(raters="pooled")
    expected = value(Batch.from_columns(columns).batch, slug, pane_query=pane_query)
    found = value(Batch.from_columns(turned).batch, slug, pane_query=pane_query)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("slug", OURS)
@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_nothing_has_no_value(slug: str, task: str) -> None:
    found = compute_metrics(
        View(Pane(PaneSpec(task, 2 if task == "binary" else 4)), PaneQuery()), [slug]
    )[slug]
    assert (found["value"], found["interval"], found["n"]) == (None, None, 0)
    assert found["reason"] == "no_data"


@pytest.mark.parametrize("slug", ERRORS)
@pytest.mark.parametrize("raw", [True, False])
def test_a_perfect_model_has_no_error(slug: str, raw: bool) -> None:
    z = np.eye(3)[np.arange(30) % 3]
    batch = Batch.from_columns({"probabilities": z, "labels": np.arange(30) % 3}).batch
    found = asked(batch, slug, raw)[slug]
    if slug == "macro_ce":
        assert found["reason"] == "one_outcome"
    elif slug == "zhang_kde_ece":
        # A density about 1 lies below 1 in part, and the integral sees that part.
        assert 0.0 < found["value"] < found["bandwidth"]
    else:
        assert found["value"] == pytest.approx(0.0, abs=2e-6)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("n", [1, 2, 200])
def test_every_answer_is_json_in_range(raw: bool, n: int) -> None:
    for raters in POLICIES:
        batch = batch_of(15, n=n)
        answers = asked(batch, OURS, raw, PaneQuery(raters=raters))
        for slug, answer in answers.items():
            json.dumps(answer, allow_nan=False)
            low, high = METRICS[slug].range
            if answer["value"] is None:
                assert answer["reason"]
                continue
            assert low is None or answer["value"] >= low
            assert high is None or answer["value"] <= high + 1e-12
            assert answer["interval"] is not None or answer["interval_reason"]
            assert answer["null_mean"] is not None or answer["null_reason"]


def test_intervals_hold_their_value_and_null_references_repeat() -> None:
    batch = batch_of(16, n=400, weights=False)
    first, again = asked(batch, OURS, False), asked(batch, OURS, False)
    assert first == again
    with_interval = [a for a in first.values() if a["interval"] is not None]
    assert len(with_interval) >= 13
    without = {
        slug: answer["interval_reason"]
        for slug, answer in first.items()
        if answer["interval"] is None
    }
    assert without == {
        "canonical_ce": "estimator_not_replicated",
        "hosmer_lemeshow": "test_statistic",
        "l2_ece_squared": "independent_labels_only",
        "nixon_ace": "equal_mass_not_replicated",
        "rater_statistic": "not_replicated",
        "spiegelhalter_z": "test_statistic",
        "tace": "equal_mass_not_replicated",
        "uce": "uncertainty_not_replicated",
        "zhang_kde_ece": "estimator_not_replicated",
    }
    for answer in with_interval:
        assert answer["interval"][0] <= answer["value"]
        assert answer["value"] <= answer["interval"][1] or "above" in answer["interval_of"]


def test_the_log_score_has_no_interval_of_its_miscalibration() -> None:
    batch = batch_of(16, n=400)
    found = asked(batch, "corp_miscalibration", False, score="log")["corp_miscalibration"]
    assert found["value"] is not None
    assert (found["interval"], found["interval_reason"]) == (None, "log_score_not_covered")
    assert asked(batch, "corp_miscalibration", False)["corp_miscalibration"]["interval"] is not None


def test_a_calibrated_model_lies_within_its_null_reference() -> None:
    rng = np.random.default_rng(17)
    outside: dict[str, int] = {}
    slugs = [s for s in OURS if s in ERRORS and asked(batch_of(1), s)[s]["null_q95"] is not None]
    assert len(slugs) >= 9
    for _ in range(20):
        z = rng.dirichlet(np.ones(3), 500)
        labels = [int(rng.choice(3, p=row)) for row in z]
        batch = Batch.from_columns({"probabilities": z, "labels": labels}).batch
        view = View(pane_of(batch), PaneQuery())
        for slug in slugs:
            metric = METRICS[slug]
            assert isinstance(metric, FormulaMetric) and metric.null is not None
            reading = metric.read(view)
            assert reading is not None
            outside[slug] = outside.get(slug, 0) + (
                reading.value > metric.null(view, reading, 0)[1]
            )
    # One in twenty is expected; six or more of twenty has a chance of 3e-4.
    assert max(outside.values()) <= 5, outside


def test_state_of_many_predictions_is_answered_from_few_points() -> None:
    rng = np.random.default_rng(18)
    z = rng.beta(0.7, 0.7, 60_000)
    batch = Batch.from_columns(
        {"confidences": z, "labels": (rng.random(60_000) < z**1.2).astype(int)}
    ).batch
    kept, raw = asked(batch, "kde_ece", False)["kde_ece"], asked(batch, "kde_ece", True)["kde_ece"]
    assert kept["n_points"] <= 1500 and raw["n_points"] <= 1500
    assert abs(kept["value"] - raw["value"]) <= kept["error_bound"] + raw["error_bound"]
    assert kept["value"] == pytest.approx(raw["value"], rel=1e-3)


def test_instances_on_request_are_in_the_order_of_the_rows() -> None:
    batch = batch_of(19, n=12)
    found = asked(batch, ("ent_ce", "dist_ce"), instances="yes")
    for i, row in enumerate(rows_of(batch)):
        alone = naive.against_votes([row])
        assert found["dist_ce"]["instances"][i] == pytest.approx(alone["dist_ce"], abs=1e-12)
        assert found["ent_ce"]["instances"][i] == pytest.approx(alone["mean_signed"], abs=1e-12)
    assert asked(batch, "ent_ce", False, instances="yes")["ent_ce"]["reason"] == "needs_rows"


def test_predictions_merged_before_a_notion_was_kept_are_not_passed_over() -> None:
    pane = pane_of(batch_of(20))
    parts = {
        name: data
        for name, data in pane.parts().items()
        if name not in ("label_distribution", "uncertainty")
    }
    old = Pane.from_parts(pane.spec, parts)
    for slug in ("dist_ce", "uce"):
        found = compute_metrics(View(old, PaneQuery()), [slug])[slug]
        assert (found["value"], found["reason"], found["n_excluded"]) == (None, "not_kept", 36)


@pytest.mark.parametrize("n_classes", [2, 3, 8, 10, 40])
@pytest.mark.parametrize("logits", [False, True])
def test_a_row_falls_into_the_same_cells_alone_and_in_a_batch(n_classes: int, logits: bool) -> None:
    rng = np.random.default_rng(n_classes)
    z = (
        rng.multinomial(8, np.full(n_classes, 1 / n_classes), 60) / 8
    )  # equal entropies, distances on edges
    columns: dict[str, Any] = {
        "label_counts": rng.multinomial(4, np.full(n_classes, 1 / n_classes), 60)
    }
    columns |= {"logits": np.log(z + 1e-3)} if logits else {"probabilities": np.asfortranarray(z)}
    batch = Batch.from_columns(columns).batch
    complete, single = pane_of(batch), Pane(PaneSpec("multiclass", n_classes))
    for row in range(60):
        single.fill_batch(batch.take(np.array([row])))
    for name in ("uncertainty", "label_distribution"):
        for key, block in complete[name].blocks.items():
            np.testing.assert_array_equal(block.counts, single[name].blocks[key].counts)
    complete.subtract(single)
    assert complete["uncertainty"].is_empty and complete["label_distribution"].is_empty


def test_quantiles_and_histogram_of_the_distance() -> None:
    batch = batch_of(21, n=300, weights=False)
    found = asked(batch, "dist_ce", instances="yes")["dist_ce"]
    values = np.sort(found["instances"])
    for level, quantile in found["quantiles"].items():
        assert (
            abs(quantile - np.quantile(values, float(level))) <= 2 * found["quantile_error_bound"]
        )
    assert sum(found["histogram"]["weight"]) == 300


def hostile_cells(seed: int, kind: str) -> Batch:
    """Scores in few cells of the grid, hits where they do most: at the upper or the lower end of each cell."""
    rng = np.random.default_rng(seed)
    near_one = 1.0 - 0.02 * rng.random(400) ** 4
    z = {"ends": near_one, "middle": 0.6 + 0.01 * rng.random(400), "wide": rng.random(400)}[kind]
    cell = np.floor(z * 3600)
    hit = np.zeros(400, int)
    for each in np.unique(cell):
        i = np.flatnonzero(cell == each)
        i = i[np.argsort(z[i])]
        up = rng.random() < 0.5 if kind == "wide" else seed % 2
        hit[i[len(i) // 3 :] if up else i[: 2 * len(i) // 3]] = 1
    return Batch.from_columns(
        {"confidences": z, "label_counts": np.stack([1 - hit, hit], axis=1)}
    ).batch


@pytest.mark.parametrize("kind", ["ends", "middle", "wide"])
@pytest.mark.parametrize("raters", ["pooled", "mean"])
@pytest.mark.parametrize("bandwidth", [0.005, 0.02, 0.2])
def test_the_kernel_errors_bound_holds_for_hostile_rows(
    kind: str, raters: str, bandwidth: float
) -> None:
    for seed in (0, 1):
        batch = hostile_cells(seed, kind)
        pane_query = PaneQuery(raters=raters)
        raw = value(batch, "kde_ece", True, pane_query, bandwidth=bandwidth)
        kept = asked(batch, "kde_ece", False, pane_query, bandwidth=bandwidth)["kde_ece"]
        assert abs(kept["value"] - raw) <= kept["error_bound"], (kind, seed)
        if bandwidth == 0.2:
            assert kept["error_bound"] < 0.02


def test_the_kernel_error_has_no_bound_where_what_is_left_out_is_not_known() -> None:
    batch = batch_of(3, weights=False)
    assert asked(batch, "kde_ece", False)["kde_ece"]["error_bound"] is not None
    assert asked(batch, "kde_ece", False, leave="instance")["kde_ece"]["error_bound"] is None
    found = asked(batch_of(3), "kde_ece", False)["kde_ece"]
    assert (found["error_bound"], found["error_bound_reason"]) == (None, "left_out_not_known")


def test_where_cells_give_no_bound_the_reason_is_reported() -> None:
    rng = np.random.default_rng(22)
    piled = np.where(rng.random(600) < 0.9, 1.0 - 1e-5 * rng.random(600), rng.random(600))
    batch = Batch.from_columns(
        {"confidences": piled, "labels": (rng.random(600) < 0.9).astype(int)}
    ).batch
    found = asked(
        batch, ("hosmer_lemeshow", "spiegelhalter_z", "corp_miscalibration"), False, score="log"
    )
    result = {
        slug: (each["error_bound"], each.get("error_bound_reason")) for slug, each in found.items()
    }
    assert result["hosmer_lemeshow"] == (None, "cuts_not_told_by_cells")
    for slug, (bound, why) in result.items():
        assert (bound is None) == (why is not None), slug
