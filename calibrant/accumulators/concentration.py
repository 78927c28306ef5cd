"""The concentration profile: negative log-likelihood of the ratings under Dirichlets around the predictions, by concentration.

Given alpha0, a row's ratings are Dirichlet-multinomial with parameters alpha0 z. The negative log-likelihood (without the
multinomial coefficient) is additive over predictions, and so are its derivatives by log alpha0. With them on a fixed grid, alpha0
is fitted without raw rows. For integer counts the gamma functions are products, Gamma(x + y) / Gamma(x) = x (x + 1) ... (x + y - 1),
and the factor x is the same for every alpha0 up to its logarithm. A single rating therefore adds nothing to the profile.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import (
    LOGIT_SPAN,
    MAX_MASS,
    SQUARED_MASS,
    BlockColumns,
    Range,
    weight_of,
    within,
)
from calibrant.core.spec import PaneSpec

OCTAVES = (-8, 12)
LOG_CONCENTRATIONS = np.log(2.0) * np.arange(OCTAVES[0], OCTAVES[1] + 1)
CONCENTRATIONS = np.exp(LOG_CONCENTRATIONS)
N_POINTS = len(CONCENTRATIONS)
COUNTS = ("predictions", "n_zero_probability")
RANGES = {
    "weight": weight_of("predictions"),
    "nll_limit": Range(0.0, LOGIT_SPAN * MAX_MASS),
    "nll": Range(0.0, LOGIT_SPAN * MAX_MASS),
    "nll_d1": Range(-MAX_MASS, MAX_MASS),
    "nll_d2": Range(-MAX_MASS, MAX_MASS),
    "nll_d1_squared": SQUARED_MASS,
}
SUMS = tuple(RANGES)


class ConcentrationProfile(Accumulator):
    """Block `profile`, one cell per concentration; only predictions with at least two ratings.

    `nll_limit` is the loss at infinite concentration (a multinomial around the prediction). `nll_d1_squared` sums squares by unit, so
    that the standard error allows any dependence inside a unit of a batch. Rows with a rating for a class at probability 0 are
    excluded from the sums and are counted.
    """

    name = "concentration"

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        few, totals = {"n_zero_probability": within("predictions")}, {"predictions": "several"}
        return {"profile": BlockColumns(COUNTS, RANGES, N_POINTS, few, totals, each=True)}


ACCUMULATOR = ConcentrationProfile
