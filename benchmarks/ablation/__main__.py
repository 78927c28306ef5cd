"""`python -m benchmarks.ablation [SWITCH…]`: what each fast path gains in a user's scenario.

Two services run, one without the path. They repeat the scenario in turns, and the table has the median ratio of CPU seconds over
pairs with the range of its middle half. A path below 1.10 is deleted; a new path gets a row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.ablation.scenarios import SCENARIOS
from benchmarks.ablation.switches import SWITCHES
from benchmarks.requests import Service, served

Repeat = Callable[[], float]


@contextmanager
def _service(off: str) -> Iterator[Service]:
    environment = SWITCHES[off].environment if off else {}
    with served(None, ["benchmarks.ablation.switches", off], **environment) as service:
        yield service


def _prepared(stack: ExitStack, scenario: str, off: str) -> Repeat:
    """Return what measures one repetition of a scenario, in seconds."""
    _, (prepare, measure) = SCENARIOS[scenario]
    service = stack.enter_context(_service(off))
    prepare(service)
    return lambda: measure(service)


def pairs(name: str, n: int) -> np.ndarray:
    """Return the CPU seconds of n pairs of repetitions, with and without the path: (n, 2)."""
    with ExitStack() as stack:
        both = [_prepared(stack, SWITCHES[name].scenario, off) for off in ("", name)]
        for each in both:
            each()
        found = np.empty((n, 2))
        for i in range(n):
            for side in (0, 1) if i % 2 else (1, 0):
                found[i, side] = both[side]()
        return found


def main(chosen: list[str], n: int) -> None:
    """Print one row per path."""
    table = Table("fast path", "scenario", "with, ms", "without, ms", "ratio", "middle half")
    console = Console(width=150)
    for name in chosen or SWITCHES:
        found = pairs(name, n)
        ratio = found[:, 1] / found[:, 0]
        low, mid, high = np.quantile(ratio, [0.25, 0.5, 0.75])
        spent = [f"{1e3 * each:.1f}" for each in np.median(found, axis=0)]
        what = SCENARIOS[SWITCHES[name].scenario][0]
        table.add_row(name, what, *spent, f"{mid:.2f}", f"{low:.2f} to {high:.2f}")
        console.print(f"{name}: {mid:.2f} ({low:.2f} to {high:.2f})")
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("switches", nargs="*", choices=[*SWITCHES, []], help="all by default")
    parser.add_argument("--pairs", type=int, default=15)
    options = parser.parse_args()
    main(options.switches, options.pairs)
