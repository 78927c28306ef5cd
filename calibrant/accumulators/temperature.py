"""The temperature profile: losses and reliability tables of softmax(z / T), z the logits, on a fixed geometric grid of 1 / T.

NLL as a function of beta = 1 / T is convex and additive over predictions, and so are its derivatives. With them on a grid of ratio
sqrt(2), the temperature is the root of a piecewise polynomial, without raw rows. Because exp(2 beta z) is the square of
exp(beta z), two exponentials give the complete grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.ranges import (
    LOGIT_SPAN,
    MASS,
    MAX_MASS,
    BlockColumns,
    Range,
    square_of,
    within,
)
from calibrant.accumulators.replicates import TABLE_SUMS, columns_of_tables
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.spec import PaneSpec

STEPS_PER_OCTAVE = 2
OCTAVES = 5
BETAS = 2.0 ** (
    np.arange(-OCTAVES * STEPS_PER_OCTAVE, OCTAVES * STEPS_PER_OCTAVE + 1) / STEPS_PER_OCTAVE
)
N_BETAS = len(BETAS)


TABLE_BINS = 60
CURVE_COUNTS = ("predictions", "n_zero_probability")
UNIT_COUNTS = ("predictions", "units", "correct_units", "incorrect_units")
# Logits are multiplied by at most the largest beta, and so are their differences.
_SPAN = LOGIT_SPAN * float(BETAS[-1])
CURVE_RANGES = {
    "weight": within("weight_all"),
    "nll": within("weight", 0, _SPAN),
    "nll_d1": within("weight", -LOGIT_SPAN, LOGIT_SPAN),
    "nll_d2": within("weight", 0, LOGIT_SPAN**2),
    "nll_d1_squared": square_of("weight", LOGIT_SPAN**2),
    "weight_all": MASS,
    "brier": within("weight_all", 0, 2),
    "brier_d1": within("weight_all", -4 * LOGIT_SPAN, 4 * LOGIT_SPAN),
}
CURVE_SUMS = tuple(CURVE_RANGES)
CURVATURE_RANGES = {
    "brier_d2": Range(-16 * LOGIT_SPAN**2 * MAX_MASS, 16 * LOGIT_SPAN**2 * MAX_MASS),
    "brier_d1_squared": Range(0.0, 16 * LOGIT_SPAN**2 * MAX_MASS**2),
}
CURVATURE_SUMS = tuple(CURVATURE_RANGES)


class TemperatureProfile(Accumulator):
    """Blocks `curve` and `curvature` (policies x betas), `tables` (betas x 60 bins of the score) and `units` (policies), flat in that order.

    The table at beta 1 bins the scores as they were sent, so that scores on an edge stay there. `nll_d1_squared` sums squares by unit,
    so that the standard error allows any dependence inside a unit of a batch. Ratings of a class at probability 0 are excluded from the
    NLL columns and are counted. `weight_all` is the weight of the Brier columns.

    Format 2 added `curvature`, with the second derivative of the Brier score and the squares by unit of the first, and `units`: units
    with a prediction of positive weight, and those of them with a rating that is the top class, and with one that is another.
    """

    name = "temperature"
    format = 2
    later_blocks: ClassVar[Mapping[str, int]] = {"curvature": 2, "units": 2}

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        size, few = N_POLICIES * N_BETAS, {name: within("predictions") for name in UNIT_COUNTS[1:]}
        one, totals = CURVE_COUNTS[:1], {"predictions": "n_labelled"}
        return {
            "curve": BlockColumns(CURVE_COUNTS, CURVE_RANGES, size, totals=totals, each=True),
            "tables": columns_of_tables(N_BETAS, TABLE_BINS),
            "curvature": BlockColumns(one, CURVATURE_RANGES, size, totals=totals, each=True),
            "units": BlockColumns(UNIT_COUNTS, {}, N_POLICIES, few, totals, each=True),
        }


ACCUMULATOR = TemperatureProfile
__all__ = ["BETAS", "N_BETAS", "OCTAVES", "STEPS_PER_OCTAVE", "TABLE_SUMS", "TemperatureProfile"]
