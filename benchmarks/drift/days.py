"""Simulated days of a model: tables by bin of the score, many runs at once, from other code than the detector's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from calibrant.drift.change import Effects
from calibrant.drift.unit_tables import DRIFT_BINS

Floats = NDArray[np.float64]
PER_DAY, LOGIT_SD = 200, 2.0
Truth = Callable[[Floats, int], Floats]
Scores = Callable[[np.random.Generator, tuple[int, int], int], Floats]


@dataclass(frozen=True)
class Days:
    """Tables of runs and days; each float64 (n_runs, n_days, n_bins).

    Attributes
    ----------
    weight, confidence, correct : of labelled units
    occupancy : units, labelled or not
    """

    weight: Floats
    confidence: Floats
    correct: Floats
    occupancy: Floats

    @property
    def effects(self) -> Effects:
        """Effects of the rule of change."""
        return Effects.of(self.weight, self.confidence, self.correct)

    @property
    def columns(self) -> Floats:
        """Weight, confidence, correct and squared weight, float64 (4, n_runs, n_days, n_bins)."""
        return np.stack([self.weight, self.confidence, self.correct, self.weight])

    def before(self, day: int) -> Days:
        """Return the first days."""
        return Days(*(each[:, :day] for each in self._sums))

    @property
    def _sums(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.weight, self.confidence, self.correct, self.occupancy


def normal_logits(
    sd: float = LOGIT_SD, mean: float = 0.0, shift: float = 0.0, at: int = 10**6
) -> Scores:
    """Scores whose log-odds are normal; their mean shifts on a day."""
    return lambda rng, shape, day: expit(rng.normal(mean + shift * (day >= at), sd, shape))


def same(p: Floats, day: int) -> Floats:
    """Outcomes that follow the scores."""
    return p


def tempered(temperature: float, at: int = 0) -> Truth:
    """Outcomes less extreme than the scores, from a day on."""
    return lambda p, day: expit(logit(p) / temperature) if day >= at else p


def simulate(
    rng: np.random.Generator,
    n_runs: int,
    n_days: int,
    truth: Truth = same,
    scores: Scores | None = None,
    *,
    per_day: int | NDArray[np.int64] = PER_DAY,
    effects: Floats | None = None,
    copies: int = 1,
    known: Callable[[np.random.Generator, Floats, Floats], NDArray[np.bool_]] | None = None,
) -> Days:
    """Simulate days.

    Parameters
    ----------
    per_day : units per day, or of each day, int64 (n_days,)
    effects : float64 (n_runs, n_days), shifts of a day's outcomes in log-odds
    copies : rows per unit with one outcome, each counted as a unit
    known : which labels are known, from scores and outcomes
    """
    draw = scores or normal_logits()
    sums = np.zeros((4, n_runs, n_days, DRIFT_BINS))
    volume = np.broadcast_to(per_day, (n_days,))
    for day in range(n_days):
        p = draw(rng, (n_runs, int(volume[day]) // copies), day)
        q = truth(p, day)
        if effects is not None:
            q = expit(logit(np.clip(q, 1e-12, 1 - 1e-12)) + effects[:, day, None])
        y = (rng.random(p.shape) < q).astype(np.float64)
        has_label = np.ones(p.shape, bool) if known is None else known(rng, p, y)
        sums[:, :, day] = copies * tables(p, y, has_label)
    return Days(*sums)


def tables(p: Floats, y: Floats, known: NDArray[np.bool_]) -> Floats:
    """Return the sums of one day by bin (a, b], float64 (4, n_runs, n_bins); p, y and known (n_runs, n)."""
    n_runs = len(p)
    place = np.clip(np.ceil(p * DRIFT_BINS).astype(np.int64) - 1, 0, DRIFT_BINS - 1)
    place = (place + DRIFT_BINS * np.arange(n_runs)[:, None]).ravel()
    columns = (known, known * p, known * y, np.ones(p.shape))
    size = n_runs * DRIFT_BINS
    found = [np.bincount(place, each.ravel().astype(np.float64), size) for each in columns]
    return np.stack(found).astype(np.float64).reshape(4, n_runs, DRIFT_BINS)


def autoregressive(
    rng: np.random.Generator, n_runs: int, n_days: int, sd: float, correlation: float = 0.0
) -> Floats:
    """Normal effects of days, each correlated with its neighbour."""
    found = np.empty((n_runs, n_days))
    found[:, 0] = rng.normal(0.0, sd, n_runs)
    step = sd * (1.0 - correlation**2) ** 0.5
    for day in range(1, n_days):
        found[:, day] = correlation * found[:, day - 1] + rng.normal(0.0, step, n_runs)
    return found


def yearly_sine(rng: np.random.Generator, n_runs: int, n_days: int, size: float) -> Floats:
    """One wave a year with a random phase."""
    phase = rng.uniform(0.0, 2.0 * np.pi, (n_runs, 1))
    return np.asarray(size * np.sin(2.0 * np.pi * np.arange(n_days) / 365.0 + phase))


def weekly(n_runs: int, n_days: int, size: float = 0.3) -> Floats:
    """Weekends differ from weekdays."""
    days = np.where(np.arange(n_days) % 7 >= 5, size, -0.4 * size)
    return np.broadcast_to(days, (n_runs, n_days))
