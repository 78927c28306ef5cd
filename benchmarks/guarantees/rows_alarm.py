"""Rows of section 5: false alarms of calibrated years. The traps of delayed labels and dependent days run with FULL=1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.drift_table import N_DAYS, Day, calibrated, clusters, play, records
from benchmarks.guarantees.block import Block
from benchmarks.guarantees.checks import Check, Counts

MOST_FALSE = 0.10


@dataclass(frozen=True)
class Year:
    """A year of a calibrated model: records a day, or units of dependent records; the tolerance of the alarm."""

    per_day: int
    tolerance: float = 0.0
    size: int = 1

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        each = (
            f"{self.per_day} units of {self.size}" if self.size > 1 else f"{self.per_day} records"
        )
        return f"{each} a day, tolerance {self.tolerance:g}"

    def days(self, seed: int, n_runs: int) -> Iterable[Day]:
        """Return the days of several years at once."""
        if self.size == 1:
            return records(seed, n_runs, self.per_day, calibrated)
        weight = 1.0 / self.size
        return clusters(seed, n_runs, self.per_day, self.size, N_DAYS, weight, own_scores=True)


def false_alarms(year: Year, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count calibrated years with an alarm."""
    counts: Counts = defaultdict(float)
    own = int(np.random.SeedSequence([seed, runs.start]).generate_state(1)[0])
    found = play(year.days(own, len(runs)), len(runs), year.tolerance)
    counts[f"{slugs[0]}/runs"] = counts[f"{slugs[0]}/given"] = len(runs)
    counts[f"{slugs[0]}/held"] = round(found.false_rate() * len(runs))
    return counts


CHECKS: dict[str, Check] = {"false alarms": false_alarms}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this section."""
    years = (
        (Year(2), False), (Year(20), False), (Year(20, 0.02), False), (Year(5, size=10), False),
        (Year(200), True), (Year(2000), True),
    )  # fmt: skip
    return tuple(
        Block(
            "5 Alarm",
            "false alarms",
            year,
            ("alarm",),
            MOST_FALSE,
            700 + i,
            at_least=False,
            full=full,
        )
        for i, (year, full) in enumerate(years)
    )
