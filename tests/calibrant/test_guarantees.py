"""Reduced form of `make guarantees`: fails when a defect of the first version returns, and checks how rows are judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.guarantees import run
from benchmarks.guarantees.block import Block
from benchmarks.guarantees.checks import CHECKS
from benchmarks.guarantees.rows import blocks, checks
from benchmarks.guarantees.settings import Setting, Units
from benchmarks.guarantees.table import lines, write
from benchmarks.guarantees.verdicts import Share, verdict

MAX_ROWS = 150
DEPENDENT = Units(100, 10, 0.7, one_score=True)

# Metric, setting, runs, least share. In brackets the share of the first version. With a true share of .95, each least share has a
# chance of less than 1 in 1,000 to be missed.
COVERED = (
    ("ece", Setting("beta", n=100), 100, 0.86),  # (.75)
    ("ace", Setting("beta", n=100), 100, 0.86),  # (.50)
    ("classwise_ece", Setting(n=300, n_classes=10), 40, 0.80),  # (.39)
    ("ece", Setting("beta", n=900, weights=1.5), 100, 0.86),  # (.60 at n = 500)
    ("ece", Setting("beta", units=DEPENDENT), 100, 0.86),  # (.81)
    ("adaptive_ece", Setting("corner", "flat", 3000), 40, 0.80),  # (0)
)


@pytest.mark.parametrize(("slug", "setting", "runs", "least"), COVERED)
def test_intervals_hold_the_true_error(
    slug: str, setting: Setting, runs: int, least: float
) -> None:
    counts = CHECKS["coverage"](setting, (slug,), 5, range(runs))
    assert counts[f"{slug}/given"] >= 0.9 * runs
    assert counts[f"{slug}/held"] / counts[f"{slug}/given"] >= least


def test_differences_hold_the_true_difference() -> None:
    pair = (Setting(curve="slope .6", n_classes=10), Setting(n_classes=10))
    counts = CHECKS["difference"](pair, ("ece",), 5, range(60))
    assert counts["ece/held"] >= 50  # (.82)


def test_no_interval_contradicts_its_null_reference() -> None:
    counts = CHECKS["contradiction"](Setting("beta", n=100), ("ece", "rmsce"), 5, range(60))
    assert counts["ece/given"] == 60
    assert counts["ece/held"] == counts["rmsce/held"] == 0  # (.19)


def test_a_wrong_segmentation_model_is_found_and_a_calibrated_one_is_not() -> None:
    wrong = Setting("beta", "slope .6", units=Units(40, 500, 0.05))
    assert CHECKS["above null"](wrong, ("ece",), 5, range(8))["ece/held"] == 8  # (0)
    right = Setting("beta", units=Units(40, 25, 0.7))
    # 7 % are promised; ten of sixty have a chance of 1 in 120.
    assert CHECKS["above null"](right, ("ece",), 5, range(60))["ece/held"] < 10


def test_intervals_are_hardly_wider_than_an_oracle_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.guarantees.oracle.oracle_of.__defaults__", (200,))
    counts = CHECKS["width"](Setting("beta", n=300), ("ece",), 5, range(20))
    assert counts["ece/width"] <= 1.3 * counts["ece/oracle"]


def test_the_list_is_bounded_and_no_simulation_is_listed_twice() -> None:
    every = blocks()
    assert sum(len(block.slugs) for block in every) <= MAX_ROWS
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
