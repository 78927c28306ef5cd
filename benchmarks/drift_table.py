"""`python -m benchmarks.drift_table [--scale 0.1]`: false-alarm rates and delays of the alarm.

Seeded simulated years of a model with scores from Beta(0.7, 2.2), evaluated daily, with a 10-year run length.
`--scale` runs a part of them. `make bench-details ARGS=drift` measures the cost of one step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.drift_simulation import (
    CHANGED_AT,
    N_DAYS,
    RUN_LENGTH,
    Day,
    Pending,
    Rate,
    SimulatedAlarms,
    calibrated,
    changed,
    changed_bin,
    clusters,
    day_effects,
    delayed,
    fitted_temperature,
    pending_labels,
    records,
    simulate,
    slope_change,
    tables,
)
from benchmarks.run import Benchmark, Case
from calibrant.accumulators.units import UNIT_BINS
from calibrant.drift.detector import advance, fresh
from calibrant.drift.expected_delay import PREDICTED_CHANGES, SimulatedChange, expected_delay
from calibrant.drift.tolerance import DEFAULT_TOLERANCE, Tolerance
from calibrant.drift.unit_tables import merged

PREDICTED_DAYS = 500


def predicted_delay(delta: float, change: SimulatedChange, per_day: int = 200) -> float:
    """Return the delay that the service predicts from the days before the change."""
    quiet = merged(tables(records(10_000, 1, per_day, n_days=CHANGED_AT, bins=UNIT_BINS)))
    return float(
        expected_delay(quiet, CHANGED_AT, change, Tolerance.within(delta), RUN_LENGTH)["median"]
        or np.inf
    )


def rows(scale: float) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """A row: name, the number of the design study, and the function that measures ours."""
    most, many, some, few = (max(8, round(n * scale)) for n in (1000, 300, 80, 40))

    @cache
    def year(seed: int, n_runs: int, per_day: int, rate: Rate) -> SimulatedAlarms:
        return simulate(records(seed, n_runs, per_day, rate), n_runs)

    def null(per_day: int, method: str) -> Callable[[], str]:
        return lambda: f"{year(1, most, per_day, calibrated).false_rate(method):.3f}"

    def found(per_day: int, rate: Rate, method: str) -> Callable[[], str]:
        def measure() -> str:
            end = year(2, some, per_day, rate)
            missed = float(np.isinf(getattr(end, method)).mean())
            days = f"{end.false_rate(method, CHANGED_AT):.2f} / {end.median_delay(method):.4g} d"
            return days + (f", {missed:.0%} missed" if missed else "")

        return measure

    def false(
        days: Callable[[], Iterable[Day]], n_runs: int, delta: float = 0.0
    ) -> Callable[[], str]:
        return lambda: f"{simulate(days(), n_runs, delta).false_rate():.3f}"

    def detectors(delta: float) -> Callable[[], str]:
        def measure() -> str:
            early, delay, error = slope_change(few, delta)
            predicted = predicted_delay(delta, SimulatedChange(slope=0.75))
            return f"{early:.2f} / {delay:.4g} d, start off by {error:.3g} d, predicted {predicted:.4g} d"

        return measure

    slope, local = changed(SimulatedChange(slope=0.75)), changed_bin(-0.15)
    shown = (("change", "change alarm"), ("evidence", "evidence since baseline"))
    published = {
        "change": ("0.050", "0.037", "0.00 / 6 d", "0.01 / 37 d", "27 d", "17% missed"),
        "evidence": ("0.010", "0.033", "0.01 / 22 d", "0.04 / 65 d", "60 d", "35-41% missed"),
    }
    for method, title in shown:
        design = published[method]
        yield f"{title}: false in a year, 200/day", design[0], null(200, method)
        yield f"{title}: false in a year, 20/day", design[1], null(20, method)
        yield f"{title}: slope 0.75, 200/day", design[2], found(200, slope, method)
        yield f"{title}: slope 0.75, 20/day", design[3], found(20, slope, method)
        yield f"{title}: one bin −0.15, 200/day", design[4], found(200, local, method)
        yield f"{title}: one bin −0.15, 20/day", design[5], found(20, local, method)
    pixels, votes = (
        partial(clusters, 3, few, 10, 300, 180),
        partial(clusters, 4, some, 40, 5, N_DAYS),
    )
    yield "pixels as units: false in 180 days", "0.95-1.00", false(partial(pixels, 1.0, True), few)
    yield "pixels weighted by case", "0.00", false(partial(pixels, 1.0 / 300, True), few)
    yield "votes as units: false in a year", "1.00", false(partial(votes, 1.0, False), some)
    yield "votes weighted by item", "0.00", false(partial(votes, 0.2, False), some)
    panes = partial(clusters, 8, some, 40, 4, N_DAYS)
    yield "units in four panes a day, counted in each", "-", false(partial(panes, 1.0, True), some)
    yield "units in four panes a day, counted once", "-", false(partial(panes, 0.25, True), some)
    late = partial(delayed, 5, some, 200)
    yield "positives' labels late, counted on arrival", "1.00", false(partial(late, True), some)
    yield "positives' labels late, sealed at 90 days", "0.047", false(partial(late, False), some)
    yield "every record twice", "-", false(partial(records, 6, some, 200, copies=2), some)
    yield from _traps(some)
    fitted = partial(fitted_temperature, 7, many, 100)
    for delta, reported in ((0.0, "0.46-0.51"), (0.01, "0.11-0.13"), (DEFAULT_TOLERANCE, "0.017")):
        yield (
            f"fitted temperature, 100/day, tolerance {delta:g}",
            reported,
            false(fitted, many, delta),
        )
    yield "slope 0.75 at day 90, 200/day, tolerance 0", "≤ 14 d, start ≤ 7 d", detectors(0.0)
    yield "slope 0.75 at day 90, 200/day, tolerance 0.02", "-", detectors(DEFAULT_TOLERANCE)

    for per_day, delta in (
        (200, 0.0),
        (200, DEFAULT_TOLERANCE),
        (20, 0.0),
        (20, DEFAULT_TOLERANCE),
    ):
        for change in PREDICTED_CHANGES:
            name = (
                f"{change.intercept:g} + {change.slope:g} logit, {per_day}/day, tolerance {delta:g}"
            )
            yield (
                name,
                "within 30%",
                partial(measured_against_predicted, few, per_day, delta, change),
            )


def _traps(n_runs: int) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Rows of the traps: alarms in a calibrated year, years in which only the plain statistic crossed, and what detection costs."""
    slope = changed(SimulatedChange(slope=0.75))

    def calm(days: Callable[[], Iterable[Day | Pending]], delta: float) -> Callable[[], str]:
        def measure() -> str:
            end = simulate(days(), n_runs, delta)
            error = (end.false_rate() * (1.0 - end.false_rate()) / n_runs) ** 0.5
            return (
                f"alarm {end.false_rate():.3f} ± {error:.3f}, plain {end.false_rate('plain'):.3f}, "
                f"watch {end.watch_rate:.2f}, warned {end.warned.mean():.2f}"
            )

        return measure

    def cost(days: Callable[[], Iterable[Day | Pending]], delta: float) -> Callable[[], str]:
        def measure() -> str:
            end = simulate(days(), n_runs, delta)
            missed = float(np.isinf(end.change).mean())
            plain = end.median_delay("plain")
            return f"{end.median_delay():.4g} d, plain {plain:.4g} d, missed {missed:.0%}"

        return measure

    for delta in (0.0, DEFAULT_TOLERANCE):
        yield (
            f"no trap, 200/day, tolerance {delta:g}",
            "≤ 0.1",
            calm(partial(records, 9, n_runs, 200), delta),
        )
        for spread, correlation in ((0.1, 0.0), (0.2, 0.0), (0.4, 0.0), (0.2, 0.8), (0.4, 0.8)):
            days = partial(day_effects, 9, n_runs, 200, spread, correlation)
            name = f"day effects {spread:g}, correlation {correlation:g}, tolerance {delta:g}"
            yield name, "≤ 0.1 or watch", calm(days, delta)
        for horizon in (14, 30):
            days_ = partial(pending_labels, 9, n_runs, 200, horizon)
            name = f"positives late, sealed at {horizon} days, tolerance {delta:g}"
            yield name, "≤ 0.1 or watch", calm(days_, delta)
        yield (
            f"slope 0.75, day effects 0.2, tolerance {delta:g}",
            "-",
            cost(partial(day_effects, 9, n_runs, 200, 0.2, 0.0, slope), delta),
        )
        even = partial(pending_labels, 9, n_runs, 200, 30, slope, 3.0, 3.0)
        yield (
            f"slope 0.75, all labels after 3 days, sealed at 30, tolerance {delta:g}",
            "-",
            cost(even, delta),
        )


def measured_against_predicted(
    n_runs: int, per_day: int, delta: float, change: SimulatedChange
) -> str:
    """Print the median delay of simulated runs and the one that the service predicts."""
    days = records(5, n_runs, per_day, changed(change), PREDICTED_DAYS)
    measured, predicted = (
        simulate(days, n_runs, delta).median_delay(),
        predicted_delay(delta, change, per_day),
    )
    return f"{measured:.4g} d, predicted {predicted:.4g} d ({predicted / measured - 1:+.0%})"


def prepare() -> list[Case]:
    table = next(tables(records(0, 1, 200)))
    state = fresh(Tolerance.within(DEFAULT_TOLERANCE))
    return [
        Case("merge two tables", lambda: merged([table, table])),
        Case("advance a detector", lambda: advance(state, 0, table, RUN_LENGTH)),
    ]


BENCHMARK = Benchmark("A day of the drift alarm", prepare)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-drift", description=__doc__)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="part of the runs; 1 for the documented table"
    )
    asked = parser.parse_args()
    shown = Table(
        "setting", "design", "measured", title=f"Drift alarm, run length {RUN_LENGTH:.0f} days"
    )
    for name, reported, measure in track(list(rows(asked.scale)), description="playing"):
        shown.add_row(name, reported, measure())
    Console(width=None if sys.stdout.isatty() else 120).print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
