"""Expected delay until a change is found, at a model's own rate of labels and with its own scores.

Computed by simulating seeded cohorts, not by a formula: with the mixture over bets and the tolerance, evidence does
not grow linearly.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.core.documents import Result
from calibrant.drift.bets import bets_of
from calibrant.drift.effect import Recalibration
from calibrant.drift.evidence import log_bets, log_mixture, shiryaev_roberts
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable
from calibrant.inference.seeds import SEED

Floats = NDArray[np.float64]
N_RUNS = 64
N_BEFORE = 60
LONGEST = 730
# Typical factor of the evidence that an alarm needs after 28 independent cohorts (`Dispersion.caution`).
CAUTION = 1.1


@dataclass(frozen=True)
class SimulatedChange:
    """logit E[label] = intercept + slope · logit(score)."""

    intercept: float = 0.0
    slope: float = 1.0


PREDICTED_CHANGES = (SimulatedChange(slope=0.75), SimulatedChange(intercept=0.4))


def expected_delay(
    typical: UnitTable,
    n_cohorts: int,
    change: SimulatedChange,
    tolerance: Tolerance,
    threshold: float,
    *,
    seed: int = SEED,
    runs: int = N_RUNS,
    longest: int = LONGEST,
) -> Result:
    """Return the median number of cohorts from a change to its alarm, for a model calibrated before it.

    Parameters
    ----------
    typical : UnitTable of some cohorts of the model, on the detector's bins or, better, on subdivisions of them (60 for
        15). It gives scores and the rate of labels; the labels themselves are not used
    n_cohorts : number of cohorts in `typical`
    change : the simulated change
    tolerance, threshold : of the detector
    seed : seed of the runs, so that a result repeats
    runs : number of simulated runs; runs with an alarm before the change are excluded
    longest : number of simulated cohorts after the change

    Returns
    -------
    dict: `median` in cohorts (1: at the first cohort after the change; None when fewer than half alarm within
    `longest`), `longest`, `units_per_cohort`, and the change.

    Raises
    ------
    ValueError
        No labelled unit, no cohort, or bins that do not subdivide the detector's.
    """
    bins = len(tolerance.lower)
    if n_cohorts < 1 or not typical.n_units > 0:
        raise ValueError("a rate of labels needs a cohort and a labelled unit")
    if typical.n_bins % bins:
        raise ValueError(f"{typical.n_bins} bins are no parts of {bins}")
    bets, simulated = (
        bets_of(bins),
        _Cohorts(typical, n_cohorts, change, np.random.default_rng(seed)),
    )
    log_sr = np.full((runs, bets.n_bets), -np.inf)
    delay = np.full(runs, np.inf)
    early = np.zeros(runs, bool)
    for cohort in range(-N_BEFORE, longest):
        weight, confidence, correct = simulated.draw(runs, bins, changed=cohort >= 0)
        log_sr = shiryaev_roberts(log_sr, log_bets(weight, confidence, correct, bets, tolerance))
        alarm = log_mixture(log_sr, bets) >= CAUTION * np.log(threshold)
        if cohort < 0:
            early |= alarm
            continue
        delay[alarm & np.isinf(delay)] = cohort + 1
        if early.all() or np.isfinite(delay[~early]).mean() > 0.5:
            break
    # Runs without an alarm so far would alarm later than the median.
    median = float(np.median(delay[~early])) if not early.all() else np.inf
    return {
        "change": asdict(change),
        "median": median if np.isfinite(median) else None,
        "longest": longest,
        "units_per_cohort": typical.n_units / n_cohorts,
    }


class _Cohorts:
    """Simulated cohorts of a model: independent units at its rate, with its scores."""

    def __init__(
        self, typical: UnitTable, n_cohorts: int, change: SimulatedChange, rng: np.random.Generator
    ) -> None:
        self.rate, self.score, self.rng = typical.weight / n_cohorts, typical.mean_confidence, rng
        follows = Recalibration(change.intercept, change.slope, (0.0, 0.0), 0.0)
        self.changed = np.where(self.rate > 0, follows(self.score), 0.0)

    def draw(self, runs: int, bins: int, changed: bool) -> Floats:
        """Return weight, confidence and correct of a cohort in each run, float64 (3, runs, bins)."""
        weight = self.rng.poisson(self.rate, (runs, len(self.rate)))
        correct = self.rng.binomial(weight, self.changed if changed else self.score)
        sums = np.stack(
            [weight.astype(np.float64), weight * self.score, correct.astype(np.float64)]
        )
        return np.asarray(sums.reshape(3, runs, bins, -1).sum(axis=3))
