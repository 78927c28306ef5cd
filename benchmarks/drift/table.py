"""`python -m benchmarks.drift.table [--runs 200] [--only TEXT]`: scenarios of users with Monte-Carlo errors.

Finished rows are stored in a file, and an interrupted run continues. `--again` computes all rows again.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.drift.scenarios import Measured, Scenario, scenarios

DEFAULT_RUNS = 200
STORED = Path(".bench/drift.json")


def measure(scenario: Scenario, n_runs: int, seed: int = 0) -> Measured:
    """Run a scenario with its own stream of random numbers."""
    rng = np.random.default_rng([seed, zlib.crc32(scenario.name.encode())])
    found = scenario.run(rng, n_runs)
    return Measured(found.text, bool(found.holds))


def main(arguments: list[str]) -> int:
    """Print the table; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args(arguments)
    found = {} if given.again or not STORED.exists() else json.loads(STORED.read_text())
    rows = [each for each in scenarios() if given.only in each.name]
    for each in rows:
        key = f"{each.name}|{given.runs}|{given.seed}"
        if key not in found:
            found[key] = asdict(measure(each, given.runs, given.seed))
            STORED.parent.mkdir(exist_ok=True)
            STORED.write_text(json.dumps(found, indent=1, ensure_ascii=False))
        each_measured = Measured(**found[key])
        sys.stderr.write(f"{each.name}: {each_measured.text}\n")
    measured = [Measured(**found[f"{each.name}|{given.runs}|{given.seed}"]) for each in rows]
    _print(rows, measured, given.runs)
    return 0 if all(each.holds for each in measured) else 1


def _print(rows: list[Scenario], measured: list[Measured], n_runs: int) -> None:
    table = Table(title=f"Scenarios of users, {n_runs} runs, 200 units a day unless stated")
    for name in ("scenario", "goal", "measured", "holds"):
        table.add_column(name, overflow="fold")
    for scenario, each in zip(rows, measured, strict=True):
        table.add_row(scenario.name, scenario.goal, each.text, "yes" if each.holds else "MISS")
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
