"""How far calibration may be off before it counts: a band of allowed gaps, bin by bin.

A map that was fitted on a sample is never exactly calibrated, so a tolerance of zero alarms in time although
nothing changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.drift.confidence_sequence import rate_bounds
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable

Floats = NDArray[np.float64]
DEFAULT_TOLERANCE = 0.02


@dataclass(frozen=True)
class Tolerance:
    """Allowed gaps E[label] − mean score: `lower` and `upper`, float64 (n_bins,)."""

    lower: Floats
    upper: Floats

    @classmethod
    def within(cls, delta: float = DEFAULT_TOLERANCE, bins: int = DRIFT_BINS) -> Tolerance:
        """Tolerate at most `delta` to either side in every bin, to ask whether the model is calibrated.

        Raises
        ------
        ValueError
            Outside [0, 1).

        Examples
        --------
        >>> Tolerance.within(0.02, 2).upper.tolist()
        [0.02, 0.02]
        """
        if not 0.0 <= delta < 1.0:
            raise ValueError("a tolerance lies in [0, 1)")
        return cls(np.full(bins, -delta), np.full(bins, delta))

    @classmethod
    def of_reference(
        cls, reference: UnitTable, delta: float = DEFAULT_TOLERANCE, level: float = 0.95
    ) -> Tolerance:
        """Widen the reference's gaps, as far as they are known, by `delta`, to ask whether calibration changed.

        Parameters
        ----------
        reference : UnitTable; a bin without units there allows any gap
        delta : in [0, 1)
        level : that the bands of all bins hold the reference's true gaps together

        Raises
        ------
        ValueError
            `delta` outside [0, 1) or `level` outside (0, 1).
        """
        around = cls.within(delta, reference.n_bins)
        low, high = rate_bounds(
            reference.weight, reference.correct, (1.0 - level) / reference.n_bins
        )
        mean, known = reference.mean_confidence, reference.weight > 0
        lower = np.where(known, low - mean + around.lower, -1.0)
        return cls(lower, np.where(known, high - mean + around.upper, 1.0))

    def widened(self, table: UnitTable, slack: Floats) -> Tolerance:
        """The band where mean scores are known only to lie between two ends.

        Parameters
        ----------
        table : UnitTable of a cohort
        slack : float64 (2, n_bins), sums of weight times how far below and above its mean score may lie
        """
        below, above = np.divide(
            slack, table.weight, out=np.zeros_like(slack), where=table.weight > 0
        )
        return Tolerance(self.lower - below, self.upper + above)

    def check(self) -> Tolerance:
        """The band itself, where it is one.

        Raises
        ------
        ValueError
            Not finite, of different lengths, or with its ends in the wrong order.
        """
        if self.lower.shape != self.upper.shape or self.lower.ndim != 1:
            raise ValueError("a tolerance has a lower and an upper end in every bin")
        if not np.isfinite([self.lower, self.upper]).all() or (self.lower > self.upper).any():
            raise ValueError("the ends of a tolerance are finite and in order")
        return self
