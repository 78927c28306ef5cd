"""How long until a change would be found, at a model's own rate of labels and with its own scores.

Found by playing seeded cohorts, not by a formula: the mixture over bets and the tolerance make the growth of
evidence far from straight.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.drift.bets import bets_of
from calibrant.drift.effect import Recalibration
from calibrant.drift.evidence import log_bets, log_mixture, shiryaev_roberts
from calibrant.drift.tables import UnitTable
from calibrant.drift.tolerance import Tolerance

Floats = NDArray[np.float64]
N_RUNS = 64
N_BEFORE = 60
LONGEST = 730


@dataclass(frozen=True)
class Change:
    """logit E[label] = intercept + slope · logit(score)."""

    intercept: float = 0.0
    slope: float = 1.0


ASKED = (Change(slope=0.75), Change(intercept=0.4))


def expected_delay(
    typical: UnitTable,
    n_cohorts: int,
    change: Change,
    tolerance: Tolerance,
    threshold: float,
    *,
    seed: int = 0,
    runs: int = N_RUNS,
    longest: int = LONGEST,
) -> dict[str, Any]:
    """Median number of cohorts from a change to its alarm, were the model calibrated before it.

    Parameters
    ----------
    typical : UnitTable of some cohorts of the model, labels of no matter; scores and rate of labels are taken
        from it
    n_cohorts : how many cohorts it holds
    change : what happens
    tolerance, threshold : the detector's
    seed : of the runs, so that an answer repeats
    runs : played; those that alarm before the change are left out
    longest : cohorts after the change that are played

    Returns
    -------
    dict: `median` in cohorts (1: at the first cohort after the change; None when fewer than half alarm within
    `longest`), `longest`, `units_per_cohort`, and the change.

    Raises
    ------
    ValueError
        No labelled unit, or no cohort.
    """
    if n_cohorts < 1 or not typical.n_units > 0:
        raise ValueError("a rate of labels needs a cohort and a labelled unit")
    rate, score = typical.weight / n_cohorts, typical.mean_confidence
    after = np.where(rate > 0, Recalibration(change.intercept, change.slope, (0.0, 0.0), 0.0)(score), 0.0)
    bets, rng = bets_of(typical.n_bins), np.random.default_rng(seed)
    log_sr = np.full((runs, bets.n_bets), -np.inf)
    delay = np.full(runs, np.inf)
    early = np.zeros(runs, bool)
    for cohort in range(-N_BEFORE, longest):
        weight = rng.poisson(rate, (runs, len(rate)))
        correct = rng.binomial(weight, score if cohort < 0 else after).astype(np.float64)
        units = weight.astype(np.float64)
        log_sr = shiryaev_roberts(log_sr, log_bets(units, units * score, correct, bets, tolerance))
        alarm = log_mixture(log_sr, bets) >= np.log(threshold)
        if cohort < 0:
            early |= alarm
            continue
        delay[alarm & np.isinf(delay)] = cohort + 1
        if np.isfinite(delay[~early]).mean() > 0.5:
            break
    # Runs that have not alarmed yet do so later than the middle one.
    median = float(np.median(delay[~early])) if not early.all() else np.inf
    return {
        "change": asdict(change),
        "median": median if np.isfinite(median) else None,
        "longest": longest,
        "units_per_cohort": float(rate.sum()),
    }
