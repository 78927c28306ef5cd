"""`python -m benchmarks.small_commits`: CPU per row of a partition by the number of batches in a commit, driven by hand in one thread.

More workers find fewer batches for each commit, so the fixed cost of a commit decides what they cost. The last column is relative to the kernel's
fill of the same number of rows in the same round, so that two versions can be compared on a busy machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.fleet import N_CLASSES
from benchmarks.one_model import measured, payloads
from calibrant import Batch, Pane, PaneSpec

ROWS_FILLED = 8000


def filling_us(n_fills: int = 10) -> float:
    """Return the µs of CPU per row of filling alone."""
    rows = Batch.unpack(next(payloads(1, ROWS_FILLED)))
    pane = Pane(PaneSpec("multiclass", N_CLASSES))
    pane.fill_batch(rows)
    started = time.thread_time()
    for _ in range(n_fills):
        # Hashes are computed once per batch: every fill gets a batch of its own.
        pane.fill_batch(Batch(rows.task, rows.scores, rows.is_logits, rows.ratings))
    return 1e6 * (time.thread_time() - started) / (n_fills * ROWS_FILLED)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-commit", type=int, nargs="+", default=(1, 2, 5, 20, 100))
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = np.empty((given.rounds, len(given.per_commit)))
    filling = np.empty(given.rounds)
    for number in range(given.rounds):
        for place, per_commit in enumerate(given.per_commit):
            found[number, place], _ = measured(per_commit, given.batches, given.rows)
        filling[number] = filling_us()
    over_last = np.median(found / found[:, -1:], axis=0)
    over_filling = np.median(found / filling[:, None], axis=0)
    print(
        f"| batches of {given.rows:,} rows in a commit | µs of CPU per row | over the last line | over filling alone |"
    )
    print("|---|---|---|---|")
    for place, per_commit in enumerate(given.per_commit):
        cells = (
            f"{np.median(found[:, place]):.2f} | {over_last[place]:.2f} | {over_filling[place]:.2f}"
        )
        print(f"| {per_commit} | {cells} |")


if __name__ == "__main__":
    main()
