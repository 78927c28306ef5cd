"""Sums of simulated gaps by the kernel: for each truth and each resample, in one call."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from calibrant.kernel.library import library
from calibrant.kernel.structures import NoisyGaps

Single = NDArray[np.float32]


def noisy_sums(factors: Single, truths: Single, noise: Single, is_squared: bool) -> Single:
    """Return sums over bins of factor · |truth + noise|, or of factor · (truth + noise)².

    Parameters
    ----------
    factors, noise : float32 (n_bins, n_resamples)
    truths : float32 (n_truths, n_bins)
    is_squared : which of the two

    Returns
    -------
    float32 (n_truths, n_resamples)
    """
    n_truths, n_bins = truths.shape
    n_resamples = noise.shape[1]
    arrays = [np.ascontiguousarray(each, np.float32) for each in (factors, truths, noise)]
    sums = np.empty((n_truths, n_resamples), np.float32)
    gaps = NoisyGaps(
        n_truths, n_bins, n_resamples, is_squared, *(each.ctypes.data for each in arrays)
    )
    library().calibrant_kernel_noisy_sums(ctypes.byref(gaps), sums.ctypes.data)
    return sums
