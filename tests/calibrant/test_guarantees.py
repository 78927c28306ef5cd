"""Reduced form of `make guarantees`: fails when a defect of the first version returns, and checks how rows are judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.guarantees import run
from benchmarks.guarantees.block import Block
from benchmarks.guarantees.rows import blocks, checks
from benchmarks.guarantees.table import lines, write
from benchmarks.guarantees.verdicts import Share, verdict
from benchmarks.validation import PROMISES, Promise, outcome
from benchmarks.validation.settings import Setting

MAX_ROWS = 480


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.name)
def test_the_reduced_form_holds(promise: Promise) -> None:
    found = outcome(promise)
    assert found.holds, found.measured


def test_without_a_number_a_promise_does_not_hold() -> None:
    nothing = replace(PROMISES[0], simulate=lambda _: {"ece/runs": 100.0})
    assert not outcome(nothing).holds


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
