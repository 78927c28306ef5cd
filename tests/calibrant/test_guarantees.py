"""Reduced form of `make guarantees`: fails when a defect of the first version returns, and checks how rows are judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.guarantees import run
from benchmarks.guarantees.block import Block
from benchmarks.guarantees.rows import blocks, checks
from benchmarks.guarantees.table import lines, write
from benchmarks.guarantees.verdicts import Share, verdict
from benchmarks.validation import PROMISES, Promise, outcome
from benchmarks.validation.checks import above_null, coverage, difference_coverage
from benchmarks.validation.settings import Setting, Units, rows_of, view_of
from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import METRICS, compute_metrics, slug_of

MAX_ROWS = 700


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.name)
def test_the_reduced_form_holds(promise: Promise) -> None:
    found = outcome(promise)
    assert found.holds, found.measured


@pytest.mark.parametrize(("slug", "least"), [("ks", 400), ("kuiper", 200)])
def test_cumulative_errors_have_an_interval_only_where_it_contains_the_truth(
    slug: str, least: int
) -> None:
    """At n = 50 the intervals of `ks` contained the true value in .83 of the runs, those of `kuiper` in .87."""
    few, enough = (Setting("confident", "slope .6", n) for n in (least - 10, least + 200))
    assert f"{slug}/given" not in coverage(few, (slug,), 5, range(5))
    counts = coverage(enough, (slug,), 5, range(60))
    assert counts[f"{slug}/given"] == 60
    # With a true share of .95, fewer than 50 of 60 have a chance below 1 in 1,000.
    assert counts[f"{slug}/held"] >= 50


def test_an_error_that_may_be_0_leaves_the_difference_as_uncertain_as_the_other_error() -> None:
    """Where the second error is 0, intervals of the difference that combined both by their squares held it in .78 to .88 of runs."""
    pair = (Setting("confident", "slope .6", 600), Setting("confident", "calibrated", 600))
    slugs = ("ece", "ks", "smooth_ece")
    counts = difference_coverage(pair, slugs, 5, range(60))
    for slug in slugs:
        # With a true share of .95, fewer than 50 of 60 have a chance below 1 in 1,000.
        assert counts[f"{slug}/held"] >= 50 + counts[f"{slug}/given"] - 60


@pytest.mark.parametrize("n", [50, 150])
def test_groups_with_few_outcomes_have_a_reference_of_drawn_labels(n: int) -> None:
    """By the chi-square distribution .10 of calibrated models were above the reference."""
    counts = above_null(Setting("confident", n=n), ("hosmer_lemeshow",), 5, range(200))
    # With a true share of .05, more than 22 of 200 have a chance below 1 in 1,000.
    assert counts["hosmer_lemeshow/held"] <= 22


def test_no_interval_where_only_lucky_windows_would_have_one() -> None:
    """Of 600 predictions with 3 expected and 12 observed outcomes, only samples with many outcomes had an interval."""
    few = coverage(Setting("accurate", "slope .6", 600), ("oe_ratio",), 5, range(60))
    assert few["oe_ratio/given"] == 0
    units = Setting("confident", "slope .6", units=Units(50, 10, 0.2))
    assert coverage(units, ("ks",), 5, range(20))["ks/given"] == 0
    narrow = Setting("accurate", "slope .6", 3000)
    assert coverage(narrow, ("calibration_slope",), 5, range(5))["calibration_slope/given"] == 0
    several = Setting(curve="slope .6", n=50, n_classes=3, raters=3)
    assert coverage(several, ("disagreement_ce",), 5, range(5))["disagreement_ce/given"] == 0


def test_the_reason_for_no_interval_is_the_number_of_samples() -> None:
    setting = Setting("confident", "slope .6", 50)
    view = view_of(setting, rows_of(setting, np.random.default_rng(5)))
    found = compute_metrics(view, ["ks", "kuiper"])
    assert [each["interval_reason"] for each in found.values()] == ["too_few_units"] * 2


def test_without_a_number_a_promise_does_not_hold() -> None:
    nothing = replace(PROMISES[0], simulate=lambda _: {"ece/runs": 100.0})
    assert not outcome(nothing).holds


OF_INTERVALS = {"coverage", "over cases", "with options"}
# One rating of each prediction, and three.
RICH = (
    Setting("confident", "slope .6", 3000),
    Setting(curve="slope .6", n=3000, n_classes=3, raters=3),
)


def results_of_every_metric() -> list[dict[str, dict[str, object]]]:
    """Results of all metrics, of which each returns an interval and a null reference somewhere, if it ever does."""
    found = []
    for setting in RICH:
        rows = rows_of(setting, np.random.default_rng(5))
        found.append(compute_metrics(view_of(setting, rows), METRICS))
    rng = np.random.default_rng(5)
    score, case = rng.random(600), np.repeat(np.arange(12), 50)
    columns = {
        "probabilities": np.stack([1.0 - score, score], axis=1),
        "labels": (rng.random(600) < score).astype(int),
        "cases": case,
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    pane = Pane(PaneSpec("segmentation", 2))
    pane.fill_batch(batch)
    over_cases = [slug for slug, each in METRICS.items() if "cases" in each.needs]
    return [*found, compute_metrics(View(pane, PaneQuery()), over_cases)]


def test_every_metric_with_an_interval_or_a_null_has_rows() -> None:
    covered = {"interval": set(), "null_q95": set()}
    for block in blocks():
        kind = "null_q95" if block.check == "above null" else "interval"
        if block.check in OF_INTERVALS or kind == "null_q95":
            covered[kind] |= {slug_of(key) for key in block.slugs}
    results = results_of_every_metric()
    for kind, slugs in covered.items():
        given = {
            slug for each in results for slug, found in each.items() if found[kind] is not None
        }
        assert len(given) > 20 and given - slugs == set(), kind


def test_the_list_is_bounded_and_no_simulation_is_listed_twice() -> None:
    every = blocks()
    assert sum(len(block.slugs) for block in every if not block.full) <= MAX_ROWS
    keys = [run.key_of(*job) for job in run.jobs_of(list(every))]
    assert len(set(keys)) == len(keys)
    assert {block.check for block in every} <= set(checks())
    assert all(
        block.runs >= 3000 for block in every if block.check == "coverage" and not block.full
    )


@pytest.mark.parametrize(
    ("count", "runs", "promise", "at_least", "expected"),
    [
        (2850, 3000, 0.93, True, "holds"),
        (2700, 3000, 0.93, True, "fails"),
        (95, 100, 0.93, True, "undecided"),
        (150, 3000, 0.07, False, "holds"),
        (330, 3000, 0.07, False, "fails"),
        (0, 0, 0.93, True, "undecided"),
    ],
)
def test_verdicts(count: int, runs: int, promise: float, at_least: bool, expected: str) -> None:
    assert verdict(Share(count, runs), promise, at_least) == expected


def test_a_run_continues_from_its_cache_and_names_failed_rows(tmp_path: Path) -> None:
    block = Block("1 Intervals", "coverage", Setting(n=60), ("ece",), 1.1, 1, runs=4)
    cache, results = tmp_path / "cache.json", {}
    run.simulate([block], results, 1, cache)
    again = run.load(cache)
    assert run.total(block, again) == run.total(block, results)
    run.simulate([block], again, 0, cache)  # No process is needed where nothing is missing.
    missing = Block("1 Intervals", "coverage", Setting(n=61), ("ece",), 0.9, 1, runs=4)
    page = tmp_path / "guarantees.md"
    totals = [(block, run.total(block, again)), (missing, run.total(missing, again))]
    assert write(page, totals) == 1
    assert [line.verdict for line in lines(totals)] == ["fails", "undecided"]
    assert "1 fails, 1 undecided" in page.read_text()
