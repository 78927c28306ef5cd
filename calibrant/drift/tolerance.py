"""Tolerance: a band of allowed gaps per bin.

A map that was fitted on a sample is never exactly calibrated. With a tolerance of zero, an alarm is therefore raised
eventually although nothing changed.
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
        """Allow at most `delta` to either side in each bin, to test whether the model is calibrated.

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
            raise ValueError(f"Received tolerance {delta}; expected a number in [0, 1).")
        return cls(np.full(bins, -delta), np.full(bins, delta))

    @classmethod
    def of_reference(
        cls, reference: UnitTable, delta: float = DEFAULT_TOLERANCE, level: float = 0.95
    ) -> Tolerance:
        """Allow the reference's gaps with their uncertainty, widened by `delta`, to test for a change.

        Parameters
        ----------
        reference : UnitTable; a bin without units there allows any gap
        delta : in [0, 1)
        level : simultaneous coverage of the reference's true gaps by the bands of all bins

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
        """Return the band for mean scores that are known only between two bounds.

        Parameters
        ----------
        table : UnitTable of a cohort
        slack : float64 (2, n_bins), sums of weight times the error bound of the mean score below and above
        """
        below, above = np.divide(
            slack, table.weight, out=np.zeros_like(slack), where=table.weight > 0
        )
        return Tolerance(self.lower - below, self.upper + above)

    def check(self) -> Tolerance:
        """Return the band after checking it.

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
