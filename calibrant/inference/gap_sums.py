"""Statistics that are a function of a weighted sum of absolute or squared gaps over all bins.

Their intervals need such sums for many simulated gaps: true ones along a ray, and the noise of resamples added to each. They
are summed bin after bin, so that any order of the resamples gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Single = NDArray[np.float32]


def _itself(total: Any) -> Any:
    return total


@dataclass(frozen=True)
class GapSum:
    """finish(Σ coefficient · |gap|^power), over all tables and bins.

    Attributes
    ----------
    coefficient : of weights, float64 (..., n_tables, n_bins), to the factors of the gaps, of the same shape
    power : 1 or 2
    finish : of the sums, float64 (...), to the values
    """

    coefficient: Callable[[Any], Any]
    power: int = 1
    finish: Callable[[Any], Any] = _itself

    def __call__(self, weight: Any, gap: Any) -> Any:
        """Return the values of gaps, float64 (..., n_tables, n_bins) to (...)."""
        powers = np.abs(gap) if self.power == 1 else gap * gap
        return self.finish((self.coefficient(weight) * powers).sum(axis=(-1, -2)))

    def less(self, bias: float) -> GapSum:
        """Return the root of a sum of squares less a bias, at least 0."""
        return replace(self, finish=lambda total: np.sqrt(np.maximum(total - bias, 0.0)))

    def simulated(self, factors: Single, truths: Single, noise: Single) -> Any:
        """Return the values of each truth with the noise of each resample, float32 (n_truths, n_resamples).

        Parameters
        ----------
        factors : float32 (n_bins, n_resamples), the coefficients, with the bins of all tables one after another
        truths : float32 (n_truths, n_bins)
        noise : float32 (n_bins, n_resamples)
        """
        sums = np.empty((len(truths), noise.shape[1]), np.float32)
        for truth, total in zip(truths, sums, strict=True):
            gaps = truth[:, None] + noise
            powers = np.abs(gaps, out=gaps) if self.power == 1 else np.square(gaps, out=gaps)
            np.add.reduce(np.multiply(factors, powers, out=powers), axis=0, out=total)
        return self.finish(sums)


def by_bin(values: NDArray[Any]) -> Single:
    """Return values of resamples by bin: (n_resamples, n_tables, n_bins) to float32 (n_tables * n_bins, n_resamples)."""
    return np.ascontiguousarray(values.reshape(len(values), -1).T, np.float32)
