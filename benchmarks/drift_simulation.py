"""Simulated days of a model and the alarms that its detectors raise, many runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from calibrant.core.grid import equal_width_bin
from calibrant.drift.bets import bets_of
from calibrant.drift.detector import MAX_HELD, DetectorState, advance, fresh
from calibrant.drift.dispersion import SETTLED, Dispersion, standardised
from calibrant.drift.evidence import log_bets, log_mixture, shiryaev_roberts
from calibrant.drift.expected_delay import SimulatedChange
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable

Floats = NDArray[np.float64]
Rate = Callable[[Floats, int], Floats]
Day = tuple[Floats, Floats, Floats]
Pending = tuple[Floats, Floats, Floats, Floats]
RUN_LENGTH = 3650.0
N_DAYS, CHANGED_AT = 365, 90
ALPHA = 0.05
LOCAL_BIN = 7  # the design study names none; of bins 2 to 8 this one has the closest delays
SHARED = 0.7  # probability that a contribution's outcome is shared by its unit


@dataclass(frozen=True)
class SimulatedAlarms:
    """Days of the first alarm of each run, inf without one; each float64 (n_runs,).

    `plain` is the change alarm without tempering and without pending labels, which is only a watch; `warned` whether the run
    reported over-dispersion before its alarm, `correlated` whether it reported correlated cohorts, bool (n_runs,).
    """

    change: Floats
    evidence: Floats
    plain: Floats
    warned: NDArray[np.bool_]
    correlated: NDArray[np.bool_]

    @property
    def watch_rate(self) -> float:
        """Share of runs in which only the plain statistic crossed, at some day, before any alarm."""
        return float((self.plain < self.change).mean())

    def false_rate(self, method: str = "change", before: float = np.inf) -> float:
        """Share of runs with an alarm before a day."""
        return float((getattr(self, method) < before).mean())

    def median_delay(self, method: str = "change", since: int = CHANGED_AT) -> float:
        """Median days from the change to the alarm, of runs without an alarm before it."""
        day = getattr(self, method)
        return float(np.median(day[day >= since]) - since + 1)


def simulate(days: Iterable[Day | Pending], n_runs: int, delta: float = 0.0) -> SimulatedAlarms:
    """Both rules over all runs at once, and the plain change statistic, as a detector computes them.

    A day has the tables of labelled records, and possibly the pending ones.
    """
    bets, tolerance = bets_of(DRIFT_BINS), Tolerance.within(delta)
    log_sr, log_evidence = np.full((n_runs, bets.n_bets), -np.inf), np.zeros((n_runs, bets.n_bets))
    plain_sr, dispersion = log_sr, Dispersion.none((n_runs,))
    lowest, caution = np.full(log_sr.shape, np.inf), np.ones(log_sr.shape)
    first, warned = np.full((3, n_runs), np.inf), np.zeros(n_runs, bool)
    alarmed, n_held = warned.copy(), np.zeros(n_runs)
    for day, (weight, confidence, correct, *more) in enumerate(days):
        plain = log_bets(weight, confidence, correct, bets, tolerance)
        gain = plain
        if more:
            gain = log_bets(weight, confidence, correct, bets, tolerance, more[0])
        variance = standardised(weight, confidence, correct)[1]
        factor = dispersion.phi(weight.sum(axis=-1), variance)
        correlated = dispersion.is_correlated
        gain = np.where(correlated[:, None], 0.0, gain / factor[:, None])
        caution = np.where(log_evidence <= lowest, dispersion.caution[:, None], caution)
        lowest = np.minimum(lowest, log_evidence)
        log_sr, log_evidence = shiryaev_roberts(log_sr, gain), log_evidence + gain
        plain_sr = shiryaev_roberts(plain_sr, plain)
        needed = np.log(RUN_LENGTH) * _of_leading(caution, log_sr + bets.log_weights)
        change = (log_mixture(log_sr, bets) >= needed) & ~correlated
        evidence = log_mixture(log_evidence, bets) >= -np.log(ALPHA)
        doubtful = log_mixture(plain_sr, bets) >= np.log(RUN_LENGTH)
        over = np.stack([change, evidence, doubtful])
        held = doubtful & (log_mixture(log_sr, bets) >= np.log(RUN_LENGTH)) & ~change
        first[over & np.isinf(first)] = day
        seen = dispersion.updated(weight, confidence, correct)
        n_held = np.where(log_mixture(log_sr, bets) >= np.log(RUN_LENGTH), n_held + 1, 0)
        is_learned = np.isinf(first[0]) & ~((n_held > 0) & (n_held <= MAX_HELD))
        dispersion = seen.where(is_learned, dispersion)
        warned |= seen.is_over & np.isinf(first[0])
        found = seen.is_correlated & (seen.is_over | doubtful) | held & (seen.n_cohorts >= SETTLED)
        alarmed |= found & np.isinf(first[0])
    return SimulatedAlarms(first[0], first[1], first[2], warned, alarmed)


def _of_leading(values: Floats, log_weight: Floats) -> Floats:
    """Return the value of each run's leading bet; two float64 (n_runs, n_bets) to (n_runs,)."""
    place = log_weight.argmax(axis=-1)[:, None]
    return np.take_along_axis(values, place, axis=-1)[:, 0]


def calibrated(p: Floats, day: int) -> Floats:
    return p


def changed(change: SimulatedChange, at: int = CHANGED_AT) -> Rate:
    """Outcomes that follow the scores before a day and the change from it on."""
    return lambda p, day: expit(change.intercept + change.slope * logit(p)) if day >= at else p


def changed_bin(by: float, place: int = LOCAL_BIN, at: int = CHANGED_AT) -> Rate:
    """Outcomes of one bin become rarer or more frequent."""
    return lambda p, day: np.where(equal_width_bin(p, DRIFT_BINS) == place, p + by * (day >= at), p)


def records(
    seed: int,
    n_runs: int,
    per_day: int,
    rate: Rate = calibrated,
    n_days: int = N_DAYS,
    copies: int = 1,
    bins: int = DRIFT_BINS,
) -> Iterator[Day]:
    """Simulate days of independent records, each counted `copies` times."""
    rng = np.random.default_rng(seed)
    for day in range(n_days):
        p = scores(rng, (n_runs, per_day))
        yield daily(
            p,
            (rng.random(p.shape) < rate(p, day)).astype(np.float64),
            np.full(p.shape, float(copies)),
            bins,
        )


def clusters(
    seed: int, n_runs: int, units: int, size: int, n_days: int, weight: float, own_scores: bool
) -> Iterator[Day]:
    """Simulate days of calibrated units with correlated contributions: pixels of a case, ratings of an item.

    Each contribution has weight `weight`; with `own_scores` each has its own score, else its unit's.
    """
    rng = np.random.default_rng(seed)
    shape = (n_runs, units, size)
    for _ in range(n_days):
        p = np.broadcast_to(scores(rng, shape if own_scores else (n_runs, units, 1)), shape)
        luck = np.where(
            rng.random(shape) < SHARED, rng.random((n_runs, units, 1)), rng.random(shape)
        )
        flat = p.reshape(n_runs, -1)
        yield daily(
            flat, (luck.reshape(n_runs, -1) < flat).astype(np.float64), np.full(flat.shape, weight)
        )


def delayed(
    seed: int, n_runs: int, per_day: int, on_arrival: bool, horizon: int = 90
) -> Iterator[Day]:
    """Simulate calibrated records; labels of positives arrive after 20 days on average, of negatives after 3.

    With `on_arrival`, a label belongs to the day of its arrival; otherwise to the cohort of its record, if it arrives
    within the horizon.
    """
    rng = np.random.default_rng(seed)
    table = np.zeros((3, N_DAYS, n_runs, DRIFT_BINS))
    for day in range(N_DAYS):
        p = scores(rng, (n_runs, per_day))
        positive = rng.random(p.shape) < p
        lag = np.floor(rng.exponential(np.where(positive, 20.0, 3.0))).astype(np.int64)
        counted = day + lag if on_arrival else np.full(p.shape, day)
        kept = (counted < N_DAYS) & (on_arrival | (lag <= horizon))
        run = np.broadcast_to(np.arange(n_runs)[:, None], p.shape)
        place = (counted[kept], run[kept], equal_width_bin(p[kept], DRIFT_BINS))
        for sums, values in zip(table, (np.ones(p.shape), p, positive * 1.0), strict=True):
            np.add.at(sums, place, values[kept])
    for day in range(N_DAYS):
        weight, confidence, correct = table[:, day]
        yield weight, confidence, correct


def day_effects(
    seed: int,
    n_runs: int,
    per_day: int,
    spread: float,
    correlation: float = 0.0,
    rate: Rate = calibrated,
) -> Iterator[Day]:
    """Simulate days whose outcomes all move together by a normal effect on the log-odds, correlated between neighbours."""
    rng = np.random.default_rng(seed)
    effect = rng.normal(0.0, spread, (n_runs, 1))
    for day in range(N_DAYS):
        p = scores(rng, (n_runs, per_day))
        truth = expit(logit(rate(p, day)) + effect)
        yield daily(p, (rng.random(p.shape) < truth).astype(np.float64), np.ones(p.shape))
        step = rng.normal(0.0, spread, (n_runs, 1))
        effect = correlation * effect + (1.0 - correlation**2) ** 0.5 * step


def pending_labels(
    seed: int,
    n_runs: int,
    per_day: int,
    horizon: int,
    rate: Rate = calibrated,
    slow: float = 20.0,
    fast: float = 3.0,
) -> Iterator[Pending]:
    """Simulate cohorts sealed at a horizon; labels of positives arrive after `slow` days on average, of negatives after `fast`."""
    rng = np.random.default_rng(seed)
    for day in range(N_DAYS):
        p = scores(rng, (n_runs, per_day))
        positive = rng.random(p.shape) < rate(p, day)
        known = (rng.exponential(np.where(positive, slow, fast)) <= horizon).astype(np.float64)
        weight, confidence, correct = daily(p, positive.astype(np.float64), known)
        pending, _, _ = daily(p, np.zeros(p.shape), 1.0 - known)
        yield weight, confidence, correct, pending


def fitted_temperature(seed: int, n_runs: int, per_day: int, n_fit: int = 1000) -> Iterator[Day]:
    """Simulate days of an unchanged model whose temperature was fitted on calibrated labels."""
    rng = np.random.default_rng(seed)
    x = logit(scores(rng, (n_runs, n_fit)))
    y = rng.random(x.shape) < expit(x)
    beta = np.ones((n_runs, 1))
    for _ in range(20):
        q = expit(beta * x)
        beta += (x * (y - q)).sum(axis=1, keepdims=True) / (x**2 * q * (1 - q)).sum(
            axis=1, keepdims=True
        )
    for _ in range(N_DAYS):
        p = scores(rng, (n_runs, per_day))
        yield daily(
            expit(beta * logit(p)), (rng.random(p.shape) < p).astype(np.float64), np.ones(p.shape)
        )


def scores(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw scores of the simulated model; scores that round to 0 are raised."""
    return np.maximum(rng.beta(0.7, 2.2, shape), 1e-12)


def daily(p: Floats, y: Floats, weight: Floats, bins: int = DRIFT_BINS) -> Day:
    """Return the tables of a day; p, y and weight float64 (n_runs, n) to three float64 (n_runs, bins)."""
    n_runs = len(p)
    place = equal_width_bin(p.ravel(), bins) + bins * np.repeat(np.arange(n_runs), p.shape[1])
    size = n_runs * bins
    sums = np.stack([np.bincount(place, v.ravel(), size) for v in (weight, weight * p, weight * y)])
    count, confidence, correct = sums.astype(np.float64).reshape(3, n_runs, bins)
    return count, confidence, correct


def tables(days: Iterable[Day]) -> Iterator[UnitTable]:
    """Return a single run's days as tables."""
    for weight, confidence, correct in days:
        yield UnitTable(weight[0], confidence[0], correct[0], weight[0], weight[0])


def until_alarm(days: Iterable[Day], delta: float) -> DetectorState:
    """Return a detector at its first alarm, or after the last day."""
    state = fresh(Tolerance.within(delta))
    for day, table in enumerate(tables(days)):
        state = advance(state, day, table, RUN_LENGTH)
        if state.alarmed_at is not None:
            break
    return state


def slope_change(
    n_seeds: int, delta: float, per_day: int = 200, rate: Rate | None = None
) -> tuple[float, float, float]:
    """Return the share of alarms before the change, median delay in days, median error of the start of change in days."""
    rate = rate or changed(SimulatedChange(slope=0.75))
    ends = [until_alarm(records(seed, 1, per_day, rate), delta) for seed in range(n_seeds)]
    alarmed = np.array([np.inf if s.alarmed_at is None else s.alarmed_at for s in ends])
    starts = np.array([-1 if s.start_of_change is None else s.start_of_change for s in ends])
    right = alarmed >= CHANGED_AT
    error = np.abs(starts - CHANGED_AT)[right]
    return (
        float((~right).mean()),
        float(np.median(alarmed[right]) - CHANGED_AT + 1),
        float(np.median(error)),
    )
