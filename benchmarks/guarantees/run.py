"""`python -m benchmarks.guarantees.run`: simulate every row, print the table and write docs/guarantees.md.

Results are cached by row in `.guarantees.json`, so that an interrupted run continues. A call ends after `--minutes`, and the next one
continues. `--runs` simulates at most so many runs of a row, which then may be undecided. FULL=1 adds the slow rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from benchmarks.guarantees.block import Block
from benchmarks.guarantees.rows import blocks, checks
from benchmarks.guarantees.table import write
from benchmarks.validation.checks import Counts

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".guarantees.json"
CHUNK = 500
Results = dict[str, dict[str, float]]
Job = tuple[Block, int]


def key_of(block: Block, start: int) -> str:
    """Name a part of a row by everything that decides its result but the code."""
    parts = (block.check, repr(block.setting), block.slugs, block.seed, start, _stop(block, start))
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def _stop(block: Block, start: int) -> int:
    return min(start + CHUNK, block.runs)


def compute(job: Job) -> tuple[str, dict[str, float]]:
    """Simulate a part of a row."""
    block, start = job
    started = time.process_time()
    counts = checks()[block.check](
        block.setting, block.slugs, block.seed, range(start, _stop(block, start))
    )
    counts["seconds"] = time.process_time() - started
    return key_of(block, start), dict(counts)


def jobs_of(chosen: list[Block]) -> list[Job]:
    return [(block, start) for block in chosen for start in range(0, block.runs, CHUNK)]


def load(path: Path) -> Results:
    return json.loads(path.read_text()) if path.exists() else {}


def save(path: Path, results: Results) -> None:
    """Replace the cache in one step."""
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(results, indent=0, sort_keys=True))
    os.replace(partial, path)


def total(block: Block, results: Results) -> Counts | None:
    """Add up the parts of a row; None while one is missing."""
    found: Counts = defaultdict(float)
    for start in range(0, block.runs, CHUNK):
        part = results.get(key_of(block, start))
        if part is None:
            return None
        for name, value in part.items():
            found[name] += value
    return found


def simulate(
    chosen: list[Block], results: Results, processes: int, cache: Path, minutes: float = 55.0
) -> None:
    """Compute the missing parts and save each as it ends; begin none after so many minutes."""
    missing = [job for job in jobs_of(chosen) if key_of(*job) not in results]
    print(f"{len(missing)} parts to simulate", file=sys.stderr)
    if not missing:
        return
    end = time.monotonic() + 60.0 * minutes
    with ProcessPoolExecutor(processes) as pool:
        waiting = [pool.submit(compute, job) for job in missing]
        for done, future in enumerate(as_completed(waiting), 1):
            if not future.cancelled():
                key, counts = future.result()
                results[key] = counts
                save(cache, results)
                print(f"{done}/{len(missing)}", end="\r", file=sys.stderr)
            if time.monotonic() > end:
                pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="rows whose section contains this")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--minutes", type=float, default=55.0, help="time after which a call ends")
    parser.add_argument("--runs", type=int, help="most runs of a row")
    given = parser.parse_args()
    full = os.environ.get("FULL") == "1"
    every = [block for block in blocks() if full or not block.full]
    if given.runs:
        every = [replace(block, runs=min(block.runs, given.runs)) for block in every]
    results = load(given.cache)
    some = [block for block in every if given.only in block.section]
    simulate(some, results, given.processes, given.cache, given.minutes)
    totals = [(block, total(block, results)) for block in every]
    n_failed = write(ROOT / "docs" / "guarantees.md", totals)
    return 1 if n_failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
