"""Fuzz for longer, and resume: `python -m tests.fuzzing --requests 100000 --progress fuzz.json`.

A block of requests depends on its number alone. The progress file has the number of the next one and the numbers of
responses so far; a run that was interrupted continues there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from tests.fuzzing.rules import REQUESTS_OF_A_BLOCK, Outcome, run_block


def resumed(progress: Path, n_requests: int, seconds: float = float("inf")) -> Outcome:
    """Send requests up to `n_requests` in total, for at most `seconds`; return the numbers of all."""
    outcome, block, started = Outcome(), 0, time.monotonic()
    if progress.exists():
        found = json.loads(progress.read_text())
        block = found.pop("next_block")
        outcome.statuses.update(found.pop("statuses"))
        outcome.cpu_s, outcome.growth_bytes = found["cpu_s"], found["growth_bytes"]
    with tempfile.TemporaryDirectory() as folder:
        while block * REQUESTS_OF_A_BLOCK < n_requests and time.monotonic() - started < seconds:
            outcome.add(asyncio.run(run_block(block, Path(folder))))
            block += 1
            held = {"next_block": block, **vars(outcome), "statuses": dict(outcome.statuses)}
            progress.write_text(json.dumps(held))
    return outcome


def main() -> None:
    """Read the arguments, fuzz, and print the numbers."""
    parser = argparse.ArgumentParser(description="Fuzz the service in process.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--progress", type=Path, default=Path("fuzz.json"))
    given = parser.parse_args()
    outcome = resumed(given.progress, given.requests, given.seconds)
    print(f"{sum(outcome.statuses.values())} requests: {dict(sorted(outcome.statuses.items()))}")
    print(f"largest cost: {outcome.cpu_s:.2f} CPU s, {outcome.growth_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
