"""Rows of section 5: false alarms of calibrated years. Some traps of delayed labels and dependent days run with FULL=1 alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.drift_simulation import (
    N_DAYS,
    Day,
    Pending,
    calibrated,
    clusters,
    day_effects,
    pending_labels,
    records,
    simulate,
)
from benchmarks.guarantees.block import Block
from benchmarks.guarantees.checks import Check, Counts

MOST_FALSE = 0.10


@dataclass(frozen=True)
class Year:
    """A year of a calibrated model: records a day, or units of dependent records; the tolerance of the alarm.

    Traps: `spread` and `correlation` of effects of a day on the log-odds; `horizon` of days at which cohorts are sealed, if labels of
    positives arrive after 20 days on average and of negatives after 3.
    """

    per_day: int
    tolerance: float = 0.0
    size: int = 1
    spread: float = 0.0
    correlation: float = 0.0
    horizon: int = 0

    @property
    def text(self) -> str:
        """The setting as a cell of the table."""
        each = (
            f"{self.per_day} units of {self.size}" if self.size > 1 else f"{self.per_day} records"
        )
        trap = ""
        if self.spread:
            trap = f", day effects {self.spread:g}, correlation {self.correlation:g}"
        if self.horizon:
            trap = f", positives late, sealed at {self.horizon} days"
        return f"{each} a day, tolerance {self.tolerance:g}{trap}"

    def days(self, seed: int, n_runs: int) -> Iterable[Day | Pending]:
        """Return the days of several years at once."""
        if self.spread:
            return day_effects(seed, n_runs, self.per_day, self.spread, self.correlation)
        if self.horizon:
            return pending_labels(seed, n_runs, self.per_day, self.horizon)
        if self.size == 1:
            return records(seed, n_runs, self.per_day, calibrated)
        weight = 1.0 / self.size
        return clusters(seed, n_runs, self.per_day, self.size, N_DAYS, weight, own_scores=True)


def false_alarms(year: Year, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count calibrated years with an alarm."""
    counts: Counts = defaultdict(float)
    own = int(np.random.SeedSequence([seed, runs.start]).generate_state(1)[0])
    found = simulate(year.days(own, len(runs)), len(runs), year.tolerance)
    counts[f"{slugs[0]}/runs"] = counts[f"{slugs[0]}/given"] = len(runs)
    counts[f"{slugs[0]}/held"] = round(found.false_rate() * len(runs))
    return counts


CHECKS: dict[str, Check] = {"false alarms": false_alarms}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this section."""
    years = (
        (Year(2), False), (Year(20), False), (Year(20, 0.02), False), (Year(5, size=10), False),
        (Year(200), True), (Year(2000), True),
        (Year(100, spread=0.4), False), (Year(100, 0.02, spread=0.4), False),
        (Year(200, 0.02, spread=0.2, correlation=0.8), True),
        (Year(200, 0.02, spread=0.4, correlation=0.8), True),
        (Year(50, 0.02, horizon=14), False), (Year(200, horizon=30), True),
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
