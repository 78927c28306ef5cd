"""Region of interest of a case: the voxels that are evaluated. In a complete volume, easy background makes every error small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_PROBABILITY = 0.01
MARGIN_MM = 5.0
# Slices that are dilated at once: distances take 20 bytes per voxel.
SLICES = 16


def automatic_region(
    probability: NDArray[np.floating],
    positives: NDArray[np.uint8],
    spacing_mm: tuple[float, ...],
    margin_mm: float = MARGIN_MM,
) -> NDArray[np.bool_]:
    """Return the voxels within a margin of those that a reader marked or that have a probability above 0.01.

    Parameters
    ----------
    probability, positives : of each voxel
    spacing_mm : distance of voxels along each axis
    margin_mm : distance of voxel centres

    Examples
    --------
    >>> p, y = np.zeros((1, 1, 7)), np.zeros((1, 1, 7), np.uint8)
    >>> y[0, 0, 3] = 1
    >>> automatic_region(p, y, (1.0, 1.0, 3.0))[0, 0].astype(int).tolist()
    [0, 0, 1, 1, 1, 0, 0]
    """
    from scipy.ndimage import distance_transform_edt

    seed = (positives > 0) | (probability > MIN_PROBABILITY)
    found = np.zeros(seed.shape, bool)
    reach = int(np.ceil(margin_mm / spacing_mm[-1]))
    for first in range(0, seed.shape[-1], SLICES):
        low, high = max(first - reach, 0), min(first + SLICES + reach, seed.shape[-1])
        part = seed[..., low:high]
        if not part.any():
            continue
        box = _around(part, spacing_mm, margin_mm)
        distance = distance_transform_edt(~part[box], sampling=spacing_mm)
        inside = slice(first - low, first - low + SLICES)
        found[box[:-1]][..., first : first + SLICES] = (distance <= margin_mm)[..., inside]
    return found


def _around(
    seed: NDArray[np.bool_], spacing_mm: tuple[float, ...], margin_mm: float
) -> tuple[slice, ...]:
    """Return the box of the voxels that may be within the margin, along all axes but the last."""
    box = []
    for axis in range(seed.ndim - 1):
        others = tuple(each for each in range(seed.ndim) if each != axis)
        places = np.flatnonzero(seed.any(axis=others))
        reach = int(np.ceil(margin_mm / spacing_mm[axis]))
        box.append(slice(max(int(places[0]) - reach, 0), int(places[-1]) + reach + 1))
    return (*box, slice(None))
