"""Files of one case as arrays of one grid; anything that does not fit is an error, and nothing is resampled.

Only voxels that count are checked: those in the region of interest to which a reader gave a label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.imaging.grids import on_grid
from calibrant.cli.imaging.manifest import ManifestCase
from calibrant.cli.imaging.masks import MaskLabels
from calibrant.cli.imaging.probability_volume import counted_scores, scores_of
from calibrant.cli.imaging.volumes import read_volume
from calibrant.cli.input_files.errors import InputFileError


@dataclass(frozen=True)
class CaseArrays:
    """The arrays of one case.

    Attributes
    ----------
    probability : of the class, float32 or float64
    positives : number of readers that marked each voxel, uint8
    rated : number of readers that gave each voxel a label, uint8; 0 where the voxel does not count
    n_readers : number of readers of this case
    roi : bool, None if the manifest names none
    spacing_mm : distance of voxels, None if no file states it
    n_adjusted : voxels that count whose value was set to 0 or 1, from which it differed by rounding
    """

    probability: NDArray[np.floating]
    positives: NDArray[np.uint8]
    rated: NDArray[np.uint8]
    n_readers: int
    roi: NDArray[np.bool_] | None
    spacing_mm: tuple[float, ...] | None
    n_adjusted: int = 0


def read_case(case: ManifestCase, labels: MaskLabels) -> CaseArrays:
    """Read and check the files of a case.

    Parameters
    ----------
    case : of the manifest
    labels : what the values of masks mean, and which class is scored

    Raises
    ------
    InputFileError
        A file is unreadable, or of another shape, affine or values than expected.
    """
    if not case.readers:
        detail = (
            "Every reader cell of this case is empty. Name at least one mask, or remove the line."
        )
        raise InputFileError(case.probability, detail, "no_reader")
    probability = read_volume(case.probability)
    first = read_volume(next(iter(case.readers.values())))
    scores = scores_of(probability, first.array.shape, labels.class_index)
    roi = None
    if case.roi is not None:
        roi = on_grid(probability, scores.shape, read_volume(case.roi)) != 0
        if not roi.any():
            raise InputFileError(case.roi, "The region of interest is empty.", "empty_roi")
    positives, rated = (np.zeros(scores.shape, np.uint8) for _ in range(2))
    for path in case.readers.values():
        mask = first if path == first.path else read_volume(path)
        marked, has_label = labels.read(path, on_grid(probability, scores.shape, mask), roi)
        positives += marked
        rated += has_label
    scores, n_adjusted = counted_scores(probability.path, scores, rated, roi)
    n_readers, spacing = len(case.readers), probability.spacing_mm
    return CaseArrays(scores, positives, rated, n_readers, roi, spacing, n_adjusted)
