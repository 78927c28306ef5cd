"""Rows of section 5: false alarms of calibrated years, false warnings, and changes that are found. The longest run with FULL=1 alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.drift_simulation import (
    CHANGED_AT,
    N_DAYS,
    Day,
    Pending,
    SimulatedAlarms,
    calibrated,
    changed,
    clusters,
    day_effects,
    pending_labels,
    records,
    simulate,
)
from benchmarks.guarantees.block import Block
from calibrant.drift.expected_delay import SimulatedChange
from calibrant.validation.checks import Check, Counts

MAX_FALSE, MAX_WARNED, MIN_FOUND = 0.10, 0.05, 0.90
WARNINGS = ("over_dispersed", "cohorts_correlated")
FEW, SOME, MANY = 500, 1500, 3500
# Days after a change within which it is found.
WITHIN = 60


@dataclass(frozen=True)
class Year:
    """A year of a calibrated model: records a day, or units of dependent records; the tolerance of the alarm.

    Traps: `spread` and `correlation` of effects of a day on the log-odds; `horizon` of days at which cohorts are sealed, if labels of
    positives arrive after `slow` days on average and of negatives after 3. From day 90 the log-odds have the given `slope`.
    """

    per_day: int
    tolerance: float = 0.0
    size: int = 1
    spread: float = 0.0
    correlation: float = 0.0
    horizon: int = 0
    slow: float = 20.0
    slope: float = 1.0

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
            late = "positives late" if self.slow > 3.0 else "all labels after 3 days"
            trap = f", {late}, sealed at {self.horizon} days"
        if self.slope != 1.0:
            trap += f", slope {self.slope:g} from day {CHANGED_AT}"
        return f"{each} a day, tolerance {self.tolerance:g}{trap}"

    def days(self, seed: int, n_runs: int) -> Iterable[Day | Pending]:
        """Return the days of several years at once."""
        rate = calibrated if self.slope == 1.0 else changed(SimulatedChange(slope=self.slope))
        if self.spread:
            return day_effects(seed, n_runs, self.per_day, self.spread, self.correlation, rate)
        if self.horizon:
            return pending_labels(seed, n_runs, self.per_day, self.horizon, rate, self.slow)
        if self.size == 1:
            return records(seed, n_runs, self.per_day, rate)
        weight = 1.0 / self.size
        return clusters(seed, n_runs, self.per_day, self.size, N_DAYS, weight, own_scores=True)


def _played(year: Year, seed: int, runs: range) -> SimulatedAlarms:
    own = int(np.random.SeedSequence([seed, runs.start]).generate_state(1)[0])
    return simulate(year.days(own, len(runs)), len(runs), year.tolerance)


def _counted(slugs: tuple[str, ...], n_runs: int, held: Iterable[float]) -> Counts:
    counts: Counts = defaultdict(float)
    for slug, count in zip(slugs, held, strict=True):
        counts[f"{slug}/runs"] = counts[f"{slug}/given"] = n_runs
        counts[f"{slug}/held"] = count
    return counts


def false_alarms(year: Year, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count calibrated years with an alarm."""
    found = _played(year, seed, runs)
    return _counted(slugs, len(runs), [float(np.isfinite(found.change).sum())])


def false_warnings(year: Year, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count calibrated years without a trap that report a warning of each kind."""
    found = _played(year, seed, runs)
    kinds = {
        "over_dispersed": found.warned,
        "cohorts_correlated": found.correlated,
        "labels_pending": found.plain < found.change,
    }
    return _counted(slugs, len(runs), [float(kinds[slug].sum()) for slug in slugs])


def found_changes(year: Year, slugs: tuple[str, ...], seed: int, runs: range) -> Counts:
    """Count years whose change raises an alarm within 60 days, of those without an earlier alarm."""
    change = _played(year, seed, runs).change
    counts = _counted(slugs, len(runs), [float((change < CHANGED_AT + WITHIN).sum())])
    early = float((change < CHANGED_AT).sum())
    counts[f"{slugs[0]}/held"] -= early
    counts[f"{slugs[0]}/given"] -= early
    return counts


CHECKS: dict[str, Check] = {
    "false alarms": false_alarms,
    "false warnings": false_warnings,
    "found changes": found_changes,
}


def blocks() -> tuple[Block, ...]:
    """Return the rows of this section."""
    return (*_false_alarms(), *_false_warnings(), *_found())


def _false_alarms() -> Iterable[Block]:
    clean = (
        (Year(2), FEW, False), (Year(20), SOME, False), (Year(20, 0.02), FEW, False),
        (Year(5, size=10), FEW, False), (Year(200), SOME, False), (Year(2000), SOME, True),
    )  # fmt: skip
    traps = (
        (Year(200, spread=0.2), SOME, False), (Year(200, spread=0.4), SOME, False),
        (Year(200, 0.02, spread=0.4), FEW, False),
        (Year(200, spread=0.2, correlation=0.2), SOME, False),
        (Year(200, spread=0.2, correlation=0.5), MANY, False),
        (Year(200, spread=0.2, correlation=0.8), MANY, False),
        (Year(200, spread=0.4, correlation=0.8), MANY, False),
        (Year(200, 0.02, spread=0.2, correlation=0.2), FEW, False),
        (Year(200, 0.02, spread=0.2, correlation=0.5), FEW, False),
        (Year(200, 0.02, spread=0.2, correlation=0.8), SOME, False),
        (Year(200, 0.02, spread=0.4, correlation=0.8), SOME, False),
        (Year(200, horizon=14), FEW, False), (Year(200, horizon=30), FEW, False),
        (Year(200, 0.02, horizon=14), FEW, False), (Year(200, 0.02, horizon=30), FEW, False),
    )  # fmt: skip
    for i, (year, runs, full) in enumerate((*clean, *traps)):
        yield Block(
            "5 Alarm", "false alarms", year, ("alarm",), MAX_FALSE, 760 + i, False, runs, full
        )


def _false_warnings() -> Iterable[Block]:
    for i, (year, slugs) in enumerate(
        ((Year(100), WARNINGS), (Year(100, horizon=30, slow=3.0), ("labels_pending",)))
    ):
        yield Block("5 Warnings", "false warnings", year, slugs, MAX_WARNED, 730 + i, False, SOME)


def _found() -> Iterable[Block]:
    years = (
        Year(200, slope=0.75),
        Year(200, spread=0.2, slope=0.75),
        Year(200, 0.02, horizon=30, slow=3.0, slope=0.75),
    )
    for i, year in enumerate(years):
        yield Block(
            "5 Power", "found changes", year, ("change found",), MIN_FOUND, 740 + i, runs=FEW
        )
