"""Files of one case as arrays of one grid; anything that does not fit is an error, and nothing is resampled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.imaging.manifest import Case
from calibrant.cli.imaging.volumes import Volume, read_volume
from calibrant.cli.input_files.errors import InputFileError

# Affines of the same grid that different programs wrote differ by rounding, in millimetres.
MAX_AFFINE_DIFFERENCE = 1e-3
MAX_LISTED = 5


@dataclass(frozen=True)
class CaseArrays:
    """The arrays of one case.

    Attributes
    ----------
    probability : of the class, float32 or float64
    positives : number of readers that marked each voxel, uint8
    n_readers : number of readers of this case
    roi : bool, None if the manifest names none
    spacing_mm : distance of voxels, None if no file tells
    """

    probability: NDArray[np.floating]
    positives: NDArray[np.uint8]
    n_readers: int
    roi: NDArray[np.bool_] | None
    spacing_mm: tuple[float, ...] | None


def read_case(case: Case, class_index: int | None) -> CaseArrays:
    """Read and check the files of a case.

    Parameters
    ----------
    case : of the manifest
    class_index : the class that is scored against the rest, None for files with one probability per voxel

    Raises
    ------
    InputFileError
        A file is unreadable, or of another shape, affine or values than expected.
    """
    probability = read_volume(case.probability)
    scores: NDArray[np.floating] | None = None
    positives: NDArray[np.uint8] | None = None
    for path in case.readers.values():
        mask = read_volume(path)
        if scores is None or positives is None:
            scores = scores_of(probability, mask.array.shape, class_index)
            positives = np.zeros(scores.shape, np.uint8)
        array = on_grid(probability, scores.shape, mask)
        positives += marked(path, array, class_index)
    if scores is None or positives is None:
        raise InputFileError(case.probability, "No reader marked this case.", "no_reader")
    roi = None
    if case.roi is not None:
        roi = on_grid(probability, scores.shape, read_volume(case.roi)) != 0
        if not roi.any():
            raise InputFileError(case.roi, "The region of interest is empty.", "empty_roi")
    return CaseArrays(scores, positives, len(case.readers), roi, probability.spacing_mm)


def scores_of(
    volume: Volume, shape: tuple[int, ...], class_index: int | None
) -> NDArray[np.floating]:
    """Return the probability of the class; of several channels, the last axis, and in NumPy files the first or last one.

    `shape` is that of a reader's mask; files that tell their place in space do not need it.
    """
    array = volume.array
    if volume.affine is not None:
        shape = array.shape[:3]
    if array.shape != shape:
        last = array.ndim - 1
        either = (0, last) if volume.affine is None else (last,)
        axes = [axis for axis in either if _without(array.shape, axis) == shape]
        if len(axes) != 1:
            detail = f"Received shape {array.shape}; expected {shape} as of the readers, or one more axis of classes."
            raise InputFileError(volume.path, detail, "shape")
        n_classes = array.shape[axes[0]]
        if class_index is None:
            detail = (
                f"Received probabilities of {n_classes} classes; name the one to score: --class."
            )
            raise InputFileError(volume.path, detail, "class")
        if class_index >= n_classes:
            detail = f"Received {n_classes} classes; expected more than --class {class_index}."
            raise InputFileError(volume.path, detail, "class")
        array = np.take(array, class_index, axes[0])
    if not np.issubdtype(array.dtype, np.floating):
        detail = f"Received values of type {array.dtype}; expected probabilities from 0 to 1."
        raise InputFileError(volume.path, detail, "range")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0.0 and high <= 1.0):
        detail = f"Received values from {low:g} to {high:g}; expected probabilities from 0 to 1. Nothing is clipped."
        raise InputFileError(volume.path, detail, "range")
    return array


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def on_grid(reference: Volume, shape: tuple[int, ...], volume: Volume) -> NDArray[Any]:
    """Return an image on the grid of the probabilities: its axes reordered and reversed, nothing resampled.

    Raises
    ------
    InputFileError
        It is of another shape or at another place in space.
    """
    array, start = volume.array, (0,) * len(shape)
    if reference.affine is not None and volume.affine is not None and array.ndim == 3:
        to_reference = np.linalg.inv(reference.affine) @ volume.affine
        rounded = np.rint(to_reference)
        difference = float(np.abs(reference.affine @ rounded - volume.affine).max())
        turned = np.abs(rounded[:3, :3])
        if difference > MAX_AFFINE_DIFFERENCE or not (turned @ turned.T == np.eye(3)).all():
            difference = float(np.abs(reference.affine - volume.affine).max())
            detail = (
                f"Received an affine that differs from that of {reference.path.name} by up to {difference:.3g} mm; expected the "
                "same grid. Nothing is resampled: export both on one grid."
            )
            raise InputFileError(volume.path, detail, "affine")
        array, start = _turned(array, rounded)
    if array.shape == shape and not any(start):
        return array
    ends = [first + n for first, n in zip(start, array.shape, strict=True)]
    fits = len(ends) == len(shape) and min(start) >= 0
    if volume.is_partial and fits and all(end <= n for end, n in zip(ends, shape, strict=True)):
        placed = np.zeros(shape, array.dtype)
        placed[tuple(slice(first, end) for first, end in zip(start, ends, strict=True))] = array
        return placed
    detail = f"Received shape {volume.array.shape}; expected {shape} as of {reference.path.name}. Nothing is resampled."
    raise InputFileError(volume.path, detail, "shape")


def _turned(
    array: NDArray[Any], rounded: NDArray[np.float64]
) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return an array with the axes of the reference, and the place of its first voxel there."""
    axes = [int(np.argmax(np.abs(rounded[axis, :3]))) for axis in range(3)]
    turned, start = np.transpose(array, axes), []
    for axis, source in enumerate(axes):
        first = int(rounded[axis, 3])
        if rounded[axis, source] < 0:
            turned = np.flip(turned, axis)
            first -= turned.shape[axis] - 1
        start.append(first)
    return turned, tuple(start)


def marked(path: Path, array: NDArray[Any], class_index: int | None) -> NDArray[np.bool_]:
    """Return the voxels that a reader gave the class, once all values are classes."""
    values = np.unique(array)
    most = 1 if class_index is None else 255
    wrong = [each for each in values.tolist() if each != int(each) or not 0 <= each <= most]
    if wrong:
        listed = ", ".join(f"{each:g}" for each in wrong[:MAX_LISTED])
        expected = "0 and 1" if class_index is None else "class indices from 0"
        detail = f"Received the label values {listed}; expected {expected}."
        if class_index is None:
            detail += " For one of several classes: --class."
        raise InputFileError(path, detail, "label_values")
    return np.asarray(array == (1 if class_index is None else class_index))
