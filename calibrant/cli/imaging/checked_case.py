"""Files of one case as arrays of one grid; anything that does not fit is an error, and nothing is resampled.

Only voxels that count are checked: those in the region of interest to which a reader gave a label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.imaging.grids import on_grid, squeezed, without_channel
from calibrant.cli.imaging.manifest import ManifestCase
from calibrant.cli.imaging.masks import MaskLabels
from calibrant.cli.imaging.reader_rows import MAX_COMPARED
from calibrant.cli.imaging.volumes import Volume, read_volume
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.input.score_columns import ROUNDING


@dataclass(frozen=True)
class CaseArrays:
    """The arrays of one case.

    Attributes
    ----------
    probability : of the class, float32 or float64
    positives : number of readers that marked each voxel, uint8
    rated : number of readers that gave each voxel a label, uint8; 0 where the voxel does not count
    pattern : ratings of each voxel as a number whose digits to the base 3 are those of the readers, the first reader's last: 0 no
        label, 1 the rest, 2 the class; None beyond `MAX_COMPARED` readers
    n_readers : number of readers of this case
    roi : bool, None if the manifest names none
    spacing_mm : distance of voxels, None if no file states it
    n_adjusted : voxels that count whose value was set to 0 or 1, from which it differed by rounding
    """

    probability: NDArray[np.floating]
    positives: NDArray[np.uint8]
    rated: NDArray[np.uint8]
    pattern: NDArray[np.unsignedinteger[Any]] | None
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
    n_readers, pattern = len(case.readers), None
    if n_readers <= MAX_COMPARED:
        pattern = np.zeros(scores.shape, np.min_scalar_type(3**n_readers - 1))
    for place, path in enumerate(case.readers.values()):
        mask = first if path == first.path else read_volume(path)
        marked, has_label = labels.read(path, on_grid(probability, scores.shape, mask), roi)
        positives += marked
        rated += has_label
        if pattern is not None:
            pattern += pattern.dtype.type(3**place) * (marked.astype(np.uint8) + has_label)
    scores, n_adjusted = counted_scores(probability.path, scores, rated, roi)
    spacing = probability.spacing_mm
    return CaseArrays(scores, positives, rated, pattern, n_readers, roi, spacing, n_adjusted)


Floats = NDArray[np.floating]


def scores_of(volume: Volume, shape: tuple[int, ...], class_index: int | None) -> Floats:
    """Return the values of the class; of several channels, the last axis, and in NumPy files the first or last one.

    `shape` is that of a reader's mask; files that state their place in space do not need it. Axes of length 1 count as
    none.

    Raises
    ------
    InputFileError
        Another shape or type, or several classes of which none is named.
    """
    array = volume.array
    shape = array.shape[:3] if volume.affine is not None else without_channel(shape)
    if squeezed(array.shape) != squeezed(shape):
        array = _of_class(volume, shape, class_index)
    if not np.issubdtype(array.dtype, np.floating):
        detail = f"Received values of type {array.dtype}; expected probabilities from 0 to 1."
        raise InputFileError(volume.path, detail, "range")
    return array.reshape(shape)


def _of_class(volume: Volume, shape: tuple[int, ...], class_index: int | None) -> Floats:
    array = volume.array
    last = array.ndim - 1
    either = (0, last) if volume.affine is None else (last,)
    fitting = [axis for axis in either if _without(array.shape, axis) == squeezed(shape)]
    # With as many axes as the mask, another length is a lost slice, not a class.
    axes = fitting if array.ndim > len(shape) else []
    if len(axes) != 1:
        detail = f"Received shape {array.shape}; expected {shape}, the shape of the readers, or one more axis of classes."
        raise InputFileError(volume.path, detail, "shape")
    n_classes = array.shape[axes[0]]
    if class_index is None:
        detail = f"Received probabilities of {n_classes} classes; name the one to score: --class."
        raise InputFileError(volume.path, detail, "class")
    if class_index >= n_classes:
        detail = f"Received {n_classes} classes; expected more than --class {class_index}."
        raise InputFileError(volume.path, detail, "class")
    return np.asarray(np.take(array, class_index, axes[0]))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return squeezed(shape[:axis] + shape[axis + 1 :])


def counted_scores(
    path: Path, scores: Floats, rated: NDArray[np.uint8], roi: NDArray[np.bool_] | None
) -> tuple[Floats, int]:
    """Return the scores with values that differ from 0 or 1 by rounding set to it, and how many these are.

    Voxels outside the region without a probability are unrated from now on: `rated` is changed.

    Raises
    ------
    InputFileError
        A value outside [0, 1] of a voxel that counts.
    """
    low, high = float(scores.min()), float(scores.max())
    if low >= 0.0 and high <= 1.0:
        return scores, 0
    near = (scores >= -ROUNDING) & (scores <= 1.0 + ROUNDING)
    counts = rated > 0 if roi is None else (rated > 0) & roi
    if (counts & ~near).any():
        raise InputFileError(path, _out_of_range(scores[counts]), "range")
    rated[~near] = 0
    n_adjusted = int(((scores < 0.0) | (scores > 1.0))[near & counts].sum())
    return np.clip(np.where(near, scores, 0.0), 0.0, 1.0).astype(scores.dtype), n_adjusted


def _out_of_range(scores: Floats) -> str:
    if np.isnan(scores).any():
        return "Received NaN in voxels that count; expected probabilities from 0 to 1. Leave these voxels out of the region: column roi."
    low, high = float(scores.min()), float(scores.max())
    detail = f"Received values from {low:g} to {high:g}; expected probabilities from 0 to 1. Nothing is clipped."
    if low >= 0.0 and 1.5 < high <= 100.0:
        return f"{detail} If these are percent, divide them by 100."
    return f"{detail} If these are logits, export them after a sigmoid or softmax."
