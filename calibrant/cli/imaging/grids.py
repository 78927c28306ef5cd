"""Images on the grid of another one: axes reordered and reversed, nothing resampled."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.imaging.volumes import Volume
from calibrant.cli.input_files.file_errors import InputFileError

# Affines of the same grid that different programs wrote differ by rounding: largest distance of two corners.
MAX_OFFSET_MM = 0.01


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without axes of length 1, which say nothing about the place of a voxel.

    >>> squeezed((16, 18, 12, 1))
    (16, 18, 12)
    """
    return tuple(n for n in shape if n != 1)


def without_channel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a mask without the axis of its one channel.

    >>> without_channel((16, 18, 12, 1)), without_channel((1, 16, 18, 12)), without_channel((16, 18, 1))
    ((16, 18, 12), (16, 18, 12), (16, 18, 1))
    """
    while len(shape) > 3 and 1 in (shape[0], shape[-1]):
        shape = shape[:-1] if shape[-1] == 1 else shape[1:]
    return shape


def on_grid(reference: Volume, shape: tuple[int, ...], volume: Volume) -> NDArray[Any]:
    """Return an image on the grid of the probabilities: its axes reordered and reversed, nothing resampled.

    Raises
    ------
    InputFileError
        It is of another shape or at another place in space.
    """
    array, start = volume.array, (0,) * len(shape)
    if array.ndim != len(shape) and squeezed(array.shape) == squeezed(shape):
        array = array.reshape(shape)
    turn = None
    if reference.affine is not None and volume.affine is not None and array.ndim == 3:
        turn = _turn(reference.affine, volume.affine)
        array = _turned(array, turn)
    is_smaller = all(n <= most for n, most in zip(array.shape, shape, strict=False))
    fits = array.shape == shape or (volume.is_partial and turn is not None and is_smaller)
    if array.ndim != len(shape) or not fits:
        detail = (
            f"Received shape {volume.array.shape}; expected {shape}, the shape of {reference.path.name}. "
            "Nothing is resampled: export it again, or leave it out of the manifest."
        )
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
