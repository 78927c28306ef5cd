"""What a posted batch can be asked beside its metrics: each section is the library's own answer, from the rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.calibrators.temperature.fit import fit_temperature_exact
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.raters.disagreement_report import disagreement_report
from calibrant.raters.posterior import posterior_epistemic_loss
from calibrant.report import score_batch
from calibrant.report_sections import SECTIONS
from calibrant.segmentation.case_report import cases_of


def batch_of(n_classes: int, n: int = 240, n_votes: int = 3, task: str = "segmentation") -> Batch:
    rng = np.random.default_rng(n_classes)
    p = rng.dirichlet(np.ones(n_classes), n)
    ratings = np.array([rng.multinomial(n_votes, row) for row in p])
    columns = {
        "probabilities": p**1.5 / (p**1.5).sum(axis=1, keepdims=True),
        "label_counts": ratings,
    }
    return Batch.from_columns(
        columns | {"cases": [f"c{i % 60}" for i in range(n)]}, task=task
    ).batch


def scored(batch: Batch, *names: str, **params: object) -> dict:
    return score_batch(batch, {"metrics": ["ece"], "include": names} | params)


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_section_answers_as_json(name: str, n_classes: int) -> None:
    if name == "temperature_surface" and n_classes > 2:
        with pytest.raises(CalibrationInputError, match="two"):
            scored(batch_of(n_classes), name)
        return
    found = scored(batch_of(n_classes), name)[name]
    json.dumps(found, allow_nan=False)
    # Two temperatures need logits, and the batch has probabilities.
    reasons = {"temperature_surface": "logits_not_kept", "consensus": "raters_not_named"}
    reasons["compat"] = "several_ratings"
    expected = reasons.get(name)
    assert (found.get("reason") or None) == expected, found


def test_nothing_is_included_unasked() -> None:
    assert not set(SECTIONS) & set(scored(batch_of(3)))


def test_sections_are_the_librarys_answers() -> None:
    batch = batch_of(3)
    pane = Pane(PaneSpec("segmentation", 3))
    pane.fill_batch(batch)
    view = View(pane, PaneQuery(), batch)
    found = scored(batch, "cases", "disagreement", case="c2", frequency_bins=7)
    expected = cases_of(view, 7)
    assert found["cases"]["summary"] == expected["summary"]
    assert found["cases"]["histogram"] == expected["histogram"]
    assert found["cases"]["case"]["case"] == "c2"
    assert found["disagreement"] == disagreement_report(view, 0)


def test_the_posterior_section_follows_from_the_losses() -> None:
    found = scored(batch_of(3), "posterior")["posterior"]
    parts = found["epistemic_loss"], found["irreducible_loss"], found["concentration"]
    for each in found["after_votes"]:
        assert each["epistemic_loss"] == posterior_epistemic_loss(*parts, each["n_votes"])


@pytest.mark.parametrize("name", ["disagreement", "posterior", "alpha_calibration"])
def test_one_vote_leaves_a_reason(name: str) -> None:
    assert scored(batch_of(3, n_votes=1), name)[name]["reason"] == "one_vote"


def test_stability_takes_its_metric_and_subsets() -> None:
    found = scored(batch_of(3, 60), "stability", metric="mce", subsets="independent")["stability"]
    assert (found["metric"], found["subsets"], found["source"]) == ("mce", "independent", "rows")
    apart = scored(batch_of(3, 60), "stability", metric="kde_ece", leave="instance")["stability"]
    assert apart["raters"]["pooled"]["full"] == pytest.approx(
        apart["baselines"]["pooled"]["value"], abs=1e-12
    )


def test_curves_that_take_minutes_are_rejected_with_the_baselines_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("calibrant.stability.curves.MAX_ROWS", 59)
    found = scored(batch_of(3, 60), "stability", metric="kde_ece")["stability"]
    assert (found["raters"], found["reason"]) == (None, "too_many_rows")
    assert found["baselines"]["majority"]["value"] is not None
    monkeypatch.setattr("calibrant.report_sections.MAX_RATINGS", 179)
    assert scored(batch_of(3, 60), "stability")["stability"]["reason"] == "too_many_ratings"
    assert (
        scored(batch_of(3, 60), "stability", subsets="independent")["stability"]["reason"] is None
    )
    monkeypatch.setattr("calibrant.report_sections.MAX_RATINGS_OF_INDEPENDENT", 179)
    apart = scored(batch_of(3, 60), "stability", subsets="independent")["stability"]
    assert (apart["reason"], apart["baselines"]["pooled"]["value"] is None) == (
        "too_many_ratings",
        False,
    )


def test_an_unknown_section_is_rejected_with_the_known() -> None:
    with pytest.raises(CalibrationInputError, match="uncertainty") as rejected:
        scored(batch_of(3), "casess")
    assert rejected.value.violations[0].pointer == "/include"


def test_each_case_alone() -> None:
    batch = batch_of(3)
    found = scored(batch, "by_case", metric="brier", raters="mean")["by_case"]
    assert found["n_cases"] == 60
    expected = {}
    for name in {str(case) for case in batch.cases}:  # type: ignore[union-attr]
        own = batch.take(np.array([case == name for case in batch.cases]))  # type: ignore[union-attr]
        share = own.label_counts / own.label_counts.sum(axis=1, keepdims=True)
        squares = (
            (own.probabilities**2).sum(axis=1) - 2 * (own.probabilities * share).sum(axis=1) + 1
        )
        expected[name] = squares.mean()
    assert {each["case"]: each["value"] for each in found["cases"]} == pytest.approx(expected)
    assert found["mean"] == pytest.approx(np.mean(list(expected.values())))
    assert found["sd"] == pytest.approx(np.std(list(expected.values())))


def test_a_case_alone_may_have_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(3, 60, n_votes=1)
    found = scored(batch, "by_case", metric="epistemic_loss")["by_case"]
    assert (found["mean"], found["cases"][0]["reason"]) == (None, "one_vote")
    monkeypatch.setattr("calibrant.segmentation.single_cases.MAX_CASES", 59)
    assert scored(batch, "by_case")["by_case"]["reason"] == "too_many_cases"
    bare = Batch.from_columns(
        {"probabilities": [[0.5, 0.5]], "labels": [0]}, task="multiclass"
    ).batch
    assert scored(bare, "by_case")["by_case"]["reason"] == "no_cases"


def test_the_temperature_by_ece_takes_bins_and_their_least_samples() -> None:
    """20 bins of at least 50 samples in the paper on confidence histograms."""
    batch = batch_of(3, 600)
    pane_query = {"objective": "ece", "bins": 20, "min_count": 50}
    found = score_batch(batch, {"metrics": ["ece"]} | pane_query)["temperature"]
    expected = fit_temperature_exact(batch, **pane_query)
    assert (found["bins"], found["min_count"]) == (20, 50)
    assert found["temperature"] == expected["temperature"]
    assert found["after"]["ece"] == expected["after"]["ece"] < found["before"]["ece"]


def test_errors_at_several_numbers_of_bins() -> None:
    batch = batch_of(3)
    rows = scored(batch, "cases", sensitivity=True)["cases"]["sensitivity"]
    assert [row["bins"] for row in rows] == [5, 10, 20, 50, 100]
    for row in rows:
        summary = scored(batch, "cases", bins=row["bins"])["cases"]["summary"]
        assert row["ace"]["value"] == summary["ace"]["macro"]["value"]
