"""What stability curves are drawn of: each point is the metric of the rows that its subset holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics import METRICS
from calibrant.stability.by_case import stability_by_case
from calibrant.stability.curves import stability, stability_report
from calibrant.stability.row_curves import RowSubset, hashed
from calibrant.stability.subsets import draws_of
from tests.calibrant.notions import batch_of, pane_of
from tests.oracle.batch_sums import FillSums

ONE_BY_ONE = (
    *(
        "adaptive_ece",
        "debiased_ece",
        "ece_sweep",
        "ks",
        "kuiper",
        "nixon_ace",
        "tace",
        "uce",
        "macro_ce",
    ),
    *("zhang_kde_ece", "overconfidence_error", "corp_miscalibration"),
)
AT_ONCE = {
    "kde_ece": {},
    "kde_ece, predictions left out": {"leave": "instance"},
    "kde_ece, wide": {"bandwidth": 0.2},
    "smooth_ece": {},
    "canonical_ce": {},
    "canonical_ce, squares": {"norm": 2, "bandwidth": 0.1},
}


def viewed(batch: Batch, raw: bool = True, **pane_query: Any) -> View:
    return View(pane_of(batch), PaneQuery(**pane_query), batch if raw else None)


def of_rows(batch: Batch, rows: np.ndarray, slug: str, **pane_query: Any) -> float:
    """The metric of some rows, as if they had been posted by themselves."""
    value = METRICS[slug].value(viewed(batch.take(rows), **pane_query))
    assert value is not None
    return value


@pytest.mark.parametrize("raters", ["pooled", "mean", "single"])
@pytest.mark.parametrize("slug", ONE_BY_ONE)
def test_parts_are_their_rows(slug: str, raters: str) -> None:
    batch = batch_of(1, n=40)
    complete = viewed(batch, bins=5, raters=raters)
    empty = Pane(complete.spec)
    for seed in range(3):
        rows = np.random.default_rng(seed).integers(40, size=60)
        found = METRICS[slug].value(RowSubset(complete, hashed(batch), empty, rows))
        assert found == pytest.approx(of_rows(batch, rows, slug, bins=5, raters=raters), abs=1e-12)


@pytest.mark.parametrize("raters", ["pooled", "mean", "single"])
@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("scope", ["top_label", "all"])
def test_resamples_at_once_are_their_rows(name: str, raters: str, scope: str) -> None:
    slug, options = name.partition(",")[0], AT_ONCE[name]
    batch = batch_of(2, n=24)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(24, size=15) for _ in range(3)]
    times = np.stack([np.bincount(rows, minlength=24) for rows in drawn]).astype(float)
    metric: Any = METRICS[slug]
    asked = {"raters": raters, "scope": scope, "options": options}
    found = metric.of_resamples(viewed(batch, **asked), times)
    expected = [of_rows(batch, rows, slug, **asked) for rows in drawn]
    assert found == pytest.approx(expected, rel=2e-5 if slug == "smooth_ece" else 1e-9)


@pytest.mark.parametrize("slug", ["kde_ece", "ks", "nixon_ace"])
def test_curves_of_units_are_of_all_their_rows(slug: str) -> None:
    batch = batch_of(3, n=60, units=True)
    found = stability(viewed(batch), slug, n_bootstraps=2, seed=4)
    unit = FillSums(batch).unit_index
    assert (found["source"], found["exact"], found["n_drawn"]) == ("rows", True, unit.max() + 1)
    draws = draws_of(found["n_drawn"], 0, 1, "nested", np.random.default_rng(4))
    for step in (0, 8, 16):
        rows = np.flatnonzero(np.isin(unit, draws.subset(0, step)))
        assert found["raters"]["pooled"]["curve"][step] == pytest.approx(
            of_rows(batch, rows, slug), abs=1e-9
        )


def at_middles(n: int = 600) -> Batch:
    """Scores at the middles of sixty bins, so that replicates tell them exactly."""
    rng = np.random.default_rng(5)
    score = (rng.integers(0, 60, n) + 0.5) / 60
    ratings = rng.binomial(3, score**1.5)
    columns = {"confidences": score, "label_counts": np.stack([3 - ratings, ratings], axis=1)}
    return Batch.from_columns(columns | {"ids": [f"p{i}" for i in range(n)]}).batch


@pytest.mark.parametrize("slug", ["ks", "kuiper", "overconfidence_error"])
def test_curves_of_replicates_are_of_their_rows(slug: str) -> None:
    batch = at_middles()
    found = stability(
        viewed(batch, raw=False, bins=60), slug, source="replicates", n_bootstraps=2, seed=6
    )
    replicate = np.unique(FillSums(batch).replicate, return_inverse=True)[1]
    draws = draws_of(found["n_drawn"], 0, 1, "nested", np.random.default_rng(6))
    assert (found["source"], found["bins"], found["exact"]) == ("replicates", 60, False)
    for step in (0, 5, 16):
        rows = np.flatnonzero(np.isin(replicate, draws.subset(0, step)))
        expected = of_rows(batch, rows, slug, bins=60)
        assert found["raters"]["pooled"]["curve"][step] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("slug", ["kde_ece", "smooth_ece", "corp_miscalibration", "ece_sweep"])
def test_what_replicates_tell_about_by_a_form_of_bins_is_near(slug: str) -> None:
    view = viewed(at_middles(2000), raw=False)
    found = stability(view, slug, n_bootstraps=4)
    assert (found["source"], found["exact"]) == ("replicates", False) and "bins" in found["detail"]
    value = METRICS[slug].value(view)
    assert found["raters"]["pooled"]["full"] == pytest.approx(value, abs=0.2 * value)


@pytest.mark.parametrize(
    "slug", ["ece", "kde_ece", "smooth_ece", "nixon_ace", "adaptive_ece", "tace", "canonical_ce"]
)
def test_a_complete_sample_ends_in_the_value_of_its_rows(slug: str) -> None:
    batch = batch_of(6, n=80, weights=False)
    found = stability(viewed(batch, raw=False), slug, source="sample", n_bootstraps=2)
    result = (found["source"], found["n_sample"], found["n_drawn_from"], found["exact"])
    assert result == ("sample", 80, 80, True)
    for policy, about in found["raters"].items():
        assert about["full"] == pytest.approx(
            of_rows(batch, np.arange(80), slug, raters=policy), rel=2e-5
        )


def test_what_replicates_do_not_carry_comes_from_the_sample() -> None:
    batch = batch_of(7, n=60)
    assert stability(viewed(batch, raw=False), "adaptive_ece", n_bootstraps=2)["source"] == "sample"
    assert (
        stability(viewed(batch, raw=False, min_count=3), "ece", n_bootstraps=2)["source"]
        == "sample"
    )
    with pytest.raises(NoResultError) as rejection:
        stability(viewed(batch, raw=False), "adaptive_ece", source="replicates")
    assert rejection.value.reason == "not_replicated"
    with pytest.raises(CalibrationInputError, match="replicates, sample"):
        stability(viewed(batch, raw=False), "ece", source="rows")


@pytest.mark.parametrize(
    ("pane_query", "slug", "result"),
    [
        ({}, "ece", (15, True)),
        ({"bins": 20}, "ece", (20, True)),
        ({"bins": 100}, "ece", (60, False)),
        ({"edges": "left"}, "ece", (15, False)),
        ({"bins": 20}, "classwise_ece", (15, False)),
    ],
)
def test_replicates_say_which_bins_they_keep(
    pane_query: dict[str, Any], slug: str, result: tuple[int, bool]
) -> None:
    found = stability(viewed(batch_of(8, n=200), raw=False, **pane_query), slug, n_bootstraps=2)
    assert (found["bins"], found["exact"]) == result
    assert ("detail" in found) != result[1]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("raters", ["pooled", "majority"])
def test_curves_of_cases_are_means_of_their_errors(raw: bool, raters: str) -> None:
    plain = batch_of(11, n=120, weights=False)
    names = np.array([f"scan-{i % 12}" for i in range(120)])
    columns = {
        "probabilities": plain.probabilities,
        "label_counts": plain.label_counts,
        "cases": names.tolist(),
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    options = {"missing": "skip_class", "membership": "soft"}
    found = stability(
        viewed(batch, raw, raters=raters, bins=10, options=options),
        "ml1_ace",
        n_bootstraps=5,
        seed=8,
    )
    assert (found["source"], found["n_drawn"], found["exact"]) == ("cases", 12, True)
    draws = draws_of(12, 0, 1, "nested", np.random.default_rng(8))
    order = sorted(set(names.tolist()))
    for step in (0, 7, 16):
        errors = []
        for case in draws.subset(0, step):
            rows = np.flatnonzero(names == order[case])
            errors.append(of_rows(batch, rows, "ml1_ace", raters=raters, bins=10, options=options))
        assert found["raters"][raters]["curve"][step] == pytest.approx(np.mean(errors), abs=1e-9)
    assert found["ratio"].keys() == {"majority", "single"} - {raters}


@pytest.mark.parametrize("average", ["micro", "micro_pooled"])
@pytest.mark.parametrize("slug", ["ml1_ece", "ml1_ace", "ml1_mce"])
def test_curves_of_pooled_cases_are_those_of_the_drawn_cases(average: str, slug: str) -> None:
    plain = batch_of(13, n=120, weights=False)
    names = np.array([f"scan-{i % 8}" for i in range(120)])
    columns = {
        "probabilities": plain.probabilities,
        "label_counts": plain.label_counts,
        "cases": names.tolist(),
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    options = {"average": average, "missing": "skip_class"}
    pane_query: dict[str, Any] = {"bins": 10, "options": options}
    found = stability(viewed(batch, **pane_query), slug, n_bootstraps=3, seed=2)
    draws = draws_of(8, 0, 1, "nested", np.random.default_rng(2))
    order = sorted(set(names.tolist()))
    for step in (0, 5, 16):
        drawn = [order[case] for case in draws.subset(0, step)]
        rows = np.flatnonzero(np.isin(names, drawn))
        expected = of_rows(batch, rows, slug, **pane_query)
        assert found["raters"]["pooled"]["curve"][step] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("slug", "options"),
    [
        ("calibration_loss", {}),
        ("calibration_loss", {"loss_weight": "n"}),
        ("disagreement_ce", {}),
        ("disagreement_ce", {"loss_weight": "n", "concentration": 3.0}),
    ],
)
@pytest.mark.parametrize("weights", [False, True])
def test_losses_of_labels_have_curves(slug: str, options: dict[str, Any], weights: bool) -> None:
    """Each point is the metric of its rows; copies of a row are rows of their own."""
    batch = batch_of(14, n=90, weights=weights)
    pane_query: dict[str, Any] = {"bins": 10, "options": options}
    view = viewed(batch, **pane_query)
    found = stability(view, slug, n_bootstraps=3, seed=6)
    assert (found["source"], found["exact"]) == ("rows", True)
    n = view.batch_sums.n_units  # type: ignore[union-attr]
    labelled = np.flatnonzero(batch.row_total > 0)
    unit = view.batch_sums.unit_index  # type: ignore[union-attr]
    draws = draws_of(n, 0, 1, "nested", np.random.default_rng(6))
    for step in (2, 9, 16):
        rows = np.concatenate([labelled[unit == each] for each in draws.subset(0, step)])
        expected = of_rows(batch, rows, slug, **pane_query)
        assert found["raters"]["pooled"]["curve"][step] == pytest.approx(expected, abs=1e-9)
    metric = METRICS[slug]
    times = np.random.default_rng(0).integers(0, 3, (4, len(labelled))).astype(float)
    many = metric.of_resamples(view, times)  # type: ignore[attr-defined]
    for values, value in zip(times, many, strict=True):
        rows = np.repeat(labelled, values.astype(int))
        copied = batch.take(rows)
        ids = np.array([f"copy-{i}" for i in range(len(rows))], object)
        copied = replace(copied, ids=ids, units=None)
        assert value == pytest.approx(METRICS[slug].value(viewed(copied, **pane_query)), abs=1e-9)


def test_stability_image_by_image_is_that_of_each_image() -> None:
    plain = batch_of(15, n=240, weights=False)
    names = np.array([f"scan-{i % 3}" for i in range(240)])
    columns = {
        "probabilities": plain.probabilities,
        "label_counts": plain.label_counts,
        "cases": names.tolist(),
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    found = stability_by_case(viewed(batch, bins=10), "ece", seed=4)
    variations = []
    for case in found["cases"]:
        rows = np.flatnonzero((names == case["case"]) & (batch.row_total > 0))
        own = replace(batch.take(rows), cases=None)
        alone = stability(viewed(own, bins=10), "ece", n_bootstraps=2, seed=4)
        for policy, result in case["raters"].items():
            assert result["full"] == pytest.approx(alone["raters"][policy]["full"], abs=1e-12)
            variation = alone["raters"][policy]["tv"]["absolute"]
            assert result["tv"] == pytest.approx(variation, abs=1e-12)
        variations.append([result["tv"] for result in case["raters"].values()])
    pooled, majority, _ = np.transpose(variations)
    assert found["raters"]["pooled"]["tv"]["mean"] == pytest.approx(pooled.mean())
    assert found["raters"]["majority"]["tv"]["sd"] == pytest.approx(majority.std())
    assert found["ratio"]["majority"] == pytest.approx(majority.mean() / pooled.mean())


def test_cases_that_are_not_drawn_of(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"probabilities": np.full((4, 2), 0.5), "labels": [0, 1, 0, 1]}
    bare = viewed(Batch.from_columns(columns, task="segmentation").batch)
    named = viewed(Batch.from_columns(columns | {"cases": list("abcd")}, task="segmentation").batch)
    assert stability_by_case(named, "ece")["reason"] == "too_few_units"
    monkeypatch.setattr("calibrant.segmentation.single_cases.MAX_CASES", 3)
    for view, slug, most, reason in (
        (bare, "ece", None, "no_cases"),
        (named, "kde_ece", None, "not_from_bins"),
        (named, "ece", None, "too_many_cases"),
    ):
        with pytest.raises(NoResultError) as rejected:
            stability_by_case(view, slug, max_ratings=most)
        assert rejected.value.reason == reason
    monkeypatch.undo()
    with pytest.raises(NoResultError, match="too_many_ratings"):
        stability_by_case(named, "ece", max_ratings=3)


def test_cases_of_which_there_is_no_curve() -> None:
    columns = {"probabilities": np.full((4, 2), 0.5), "labels": [0, 1, 0, 1], "cases": list("aaaa")}
    batch = Batch.from_columns(columns, task="segmentation").batch
    assert stability_report(viewed(batch, False), "ml1_ece")["reason"] == "too_few_cases"
    plain = batch_of(12)
    assert stability_report(viewed(plain), "ml1_ece")["reason"] == "no_cases"


def test_rows_without_weight_have_no_curve() -> None:
    batch = Batch.from_columns(
        {"confidences": [0.5, 0.4], "labels": [0, 1], "weights": [0, 0]}
    ).batch
    assert stability_report(viewed(batch), "ece")["reason"] == "no_data"


def test_what_would_take_minutes_is_rejected_at_a_service_only() -> None:
    rows = viewed(batch_of(9, n=30))
    assert stability_report(rows, "kde_ece", max_ratings=10)["reason"] is None
    many = batch_of(10, n=12, n_classes=11)
    assert stability_report(viewed(many, raw=False), "nixon_ace")["reason"] == "too_many_classes"
    more = viewed(batch_of(10, n=12, n_classes=21), raw=False)
    assert stability_report(more, "classwise_ece")["reason"] == "too_many_classes"
    assert stability(viewed(many), "nixon_ace", n_bootstraps=2)["raters"]["pooled"]["full"] > 0
    assert (
        stability_report(viewed(batch_of(9, n=335), scope="all"), "ks", max_ratings=10)["reason"]
        == "too_many_rows"
    )
