"""Files of one case as arrays of one grid; anything that does not fit is an error, and nothing is resampled."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.imaging.manifest import ManifestCase
from calibrant.cli.imaging.volumes import Volume, read_volume
from calibrant.cli.input_files.errors import InputFileError

# Affines of the same grid that different programs wrote differ by rounding: largest distance of two corners.
MAX_OFFSET_MM = 0.01
MAX_LISTED = 5
MAX_LABEL = 255


@dataclass(frozen=True)
class CaseArrays:
    """The arrays of one case.

    Attributes
    ----------
    probability : of the class, float32 or float64
    positives : number of readers that marked each voxel, uint8
    n_readers : number of readers of this case
    roi : bool, None if the manifest names none
    spacing_mm : distance of voxels, None if no file states it
    """

    probability: NDArray[np.floating]
    positives: NDArray[np.uint8]
    n_readers: int
    roi: NDArray[np.bool_] | None
    spacing_mm: tuple[float, ...] | None


def read_case(case: ManifestCase, class_index: int | None) -> CaseArrays:
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
        raise InputFileError(
            case.probability,
            "Every reader cell of this case is empty. Name at least one mask, or remove the line.",
            "no_reader",
        )
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

    `shape` is that of a reader's mask; files that state their place in space do not need it.
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
        detail = (
            f"Received values from {low:g} to {high:g}; expected probabilities from 0 to 1. Nothing is clipped. If these are logits, "
            "export them after a sigmoid or softmax."
        )
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
    turn = None
    if reference.affine is not None and volume.affine is not None and array.ndim == 3:
        turn = _turn(reference.affine, volume.affine)
        array = _turned(array, turn)
    is_smaller = all(n <= most for n, most in zip(array.shape, shape, strict=False))
    fits = array.shape == shape or (volume.is_partial and turn is not None and is_smaller)
    if array.ndim != len(shape) or not fits:
        detail = f"Received shape {volume.array.shape}; expected {shape} as of {reference.path.name}. Nothing is resampled."
        raise InputFileError(volume.path, detail, "shape")
    if turn is not None:
        start, offset = _place(reference, shape, volume, turn)
        if offset > MAX_OFFSET_MM:
            detail = (
                f"Received an affine that differs from that of {reference.path.name} by up to {offset:.3g} mm at the corners; "
                f"expected the same grid to {MAX_OFFSET_MM:g} mm. Nothing is resampled: export the mask again with the scan as its grid. "
                "A copied affine would shift it."
            )
            raise InputFileError(volume.path, detail, "affine")
    if array.shape == shape:
        return array
    placed = np.zeros(shape, array.dtype)
    ends = zip(start, array.shape, strict=True)
    placed[tuple(slice(first, first + n) for first, n in ends)] = array
    return placed


def _turn(reference: NDArray[np.float64], affine: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the order and direction of the axes in the reference: one entry of 1 or -1 in each row and column."""
    linear = np.linalg.solve(reference, affine)[:3, :3]
    axes = np.argmax(np.abs(linear), axis=1)
    if len(set(axes.tolist())) < 3:
        axes = np.arange(3)
    turn = np.zeros((3, 3))
    for axis, source in enumerate(axes.tolist()):
        turn[axis, source] = -1.0 if linear[axis, source] < 0 else 1.0
    return turn


def _turned(array: NDArray[Any], turn: NDArray[np.float64]) -> NDArray[Any]:
    """Return an array with the axes of the reference."""
    turned = np.transpose(array, np.argmax(np.abs(turn), axis=1))
    return np.flip(turned, tuple(axis for axis in range(3) if turn[axis].min() < 0))


def _place(
    reference: Volume, shape: tuple[int, ...], volume: Volume, turn: NDArray[np.float64]
) -> tuple[tuple[int, ...], float]:
    """Return the voxel of the reference where the turned image starts, and how far its corners are from there in mm.

    An image of all slices starts at the first voxel; one of some slices at the nearest voxel from which it fits.
    """
    assert reference.affine is not None and volume.affine is not None
    last = np.array(volume.array.shape) - 1.0
    corners = np.array(list(product(*((0.0, n) for n in last)))).T
    places = volume.affine[:3, :3] @ corners + volume.affine[:3, 3:]
    turned = turn @ corners
    turned -= turned.min(axis=1, keepdims=True)
    wanted = np.linalg.solve(reference.affine, np.vstack([places, np.ones(8)]))[:3]
    most = np.array(shape) - 1.0 - np.abs(turn) @ last
    start = np.clip(np.rint((wanted - turned).mean(axis=1)), 0.0, most)
    expected = reference.affine[:3, :3] @ (turned + start[:, None]) + reference.affine[:3, 3:]
    offset = float(np.linalg.norm(places - expected, axis=0).max())
    return tuple(int(each) for each in start), offset


def _advice(values: list[float]) -> str:
    """Return what to do about a mask that has other values than 0 and 1."""
    marks = [each for each in values if each]
    if len(marks) == 1 and marks[0] == int(marks[0]) and 0 < marks[0] <= MAX_LABEL:
        return (
            f" If {marks[0]:g} marks the lesion, write the mask as 0 and 1, or pass --class {marks[0]:g} if every mask marks it "
            f"by {marks[0]:g}."
        )
    return " For one of several classes: --class."


def marked(path: Path, array: NDArray[Any], class_index: int | None) -> NDArray[np.bool_]:
    """Return the voxels that a reader gave the class, once all values are classes."""
    values = np.unique(array)
    most = 1 if class_index is None else MAX_LABEL
    wrong = [each for each in values.tolist() if each != int(each) or not 0 <= each <= most]
    if wrong:
        listed = ", ".join(f"{each:g}" for each in wrong[:MAX_LISTED])
        expected = "0 and 1" if class_index is None else "class indices from 0"
        detail = f"Received the label values {listed}; expected {expected}."
        if class_index is None:
            detail += _advice(values.tolist())
        raise InputFileError(path, detail, "label_values")
    return np.asarray(array == (1 if class_index is None else class_index))
