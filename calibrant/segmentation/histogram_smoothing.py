"""Smoothing along the bins of a histogram, as a view of it: the stored sums do not change.

A sample counts in overlapping channels instead of one bin: its mass is distributed over the neighbours by a triangle.
Mass beyond 0 or 1 is mirrored, so that no mass is lost.

Source
------
Kock, Thielke et al., section 2.2, name it; the channels are Granlund's (Pattern Recognition Letters 2000).
"""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError

WIDEST = 100


def smoothed(mass: Floats, width: int) -> Floats:
    """Distribute the mass of each bin over `width` bins to each side.

    Parameters
    ----------
    mass : float64 (..., n_bins)
    width : the triangle reaches 0 at width + 1 bins; 0 leaves the mass unchanged

    Returns
    -------
    float64 (..., n_bins), with the same sum along the bins.

    Raises
    ------
    CalibrationInputError
        A width below 0 or above 100, or more than there are bins.

    Examples
    --------
    >>> smoothed(np.array([4.0, 0.0, 0.0]), 1).tolist()
    [3.0, 1.0, 0.0]
    """
    if not 0 <= width <= min(WIDEST, mass.shape[-1]):
        detail = f"Received smoothing={width}; expected 0 to {min(WIDEST, mass.shape[-1])} bins."
        raise CalibrationInputError.at("/smoothing", "range", detail)
    reach = np.arange(-width, width + 1)
    kernel = (width + 1.0 - np.abs(reach)) / (width + 1.0) ** 2
    padding = [(0, 0)] * (mass.ndim - 1) + [(width, width)]
    mirrored = np.pad(mass, padding, mode="symmetric")
    n = mass.shape[-1]
    total = np.zeros_like(mass)
    for place, share in enumerate(kernel):
        total += share * mirrored[..., place : place + n]
    return total
