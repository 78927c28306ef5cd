"""What the values of a reader's mask mean: the class, the rest, or no label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.file_errors import InputFileError

MAX_LISTED = 5
MAX_LABEL = 255
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskLabels:
    """Values of masks.

    Attributes
    ----------
    class_index : the class that is scored against the rest; None for masks of 0 and 1
    ignored : values that are no label, such as 255 for a void voxel
    """

    class_index: int | None = None
    ignored: tuple[int, ...] = ()

    def read(self, path: Path, array: NDArray[Any], roi: Bools | None) -> tuple[Bools, Bools]:
        """Return the voxels that a reader gave the class, and those with a label.

        Parameters
        ----------
        path, array : of the mask
        roi : voxels outside have no label if their value is none; None for all inside

        Raises
        ------
        InputFileError
            A value in the region that is no class.
        """
        values = np.unique(array).tolist()
        others = [each for each in values if not self._is_class(each)]
        void = [each for each in others if each in self.ignored]
        wrong = [each for each in others if each not in self.ignored]
        if wrong and _occurs(array, wrong, roi):
            raise InputFileError(path, self._detail(values, wrong), "label_values")
        wanted = 1 if self.class_index is None else self.class_index
        has_label = np.ones(array.shape, bool) if not others else ~np.isin(array, void + wrong)
        return np.asarray(array == wanted) & has_label, has_label

    def _is_class(self, value: float) -> bool:
        most = 1 if self.class_index is None else MAX_LABEL
        return value not in self.ignored and value == int(value) and 0 <= value <= most

    def _detail(self, values: list[float], wrong: list[float]) -> str:
        listed = ", ".join(f"{each:.9g}" for each in wrong[:MAX_LISTED])
        expected = "0 and 1" if self.class_index is None else "class indices from 0"
        detail = f"Received the label values {listed}; expected {expected}."
        if any(0 < abs(each - round(each)) < 0.01 for each in wrong):
            return f"{detail} The mask was resampled: round it to whole numbers first."
        return detail + (_advice(values) if self.class_index is None else "")


def _occurs(array: NDArray[Any], values: list[float], roi: Bools | None) -> bool:
    found = np.isin(array, values)
    return bool(found.any() if roi is None else (found & roi).any())


def _advice(values: list[float]) -> str:
    """Return what to do about a mask that has other values than 0 and 1."""
    marks = [each for each in values if each]
    if len(marks) == 1 and marks[0] == int(marks[0]) and 0 < marks[0] <= MAX_LABEL:
        return (
            f" If {marks[0]:g} marks the lesion, write the mask as 0 and 1, or pass --class {marks[0]:g} if every mask marks it "
            f"by {marks[0]:g}."
        )
    void = f" If {marks[-1]:g} means that a voxel has no label: --ignore-label {marks[-1]:g}."
    return f" For one of several classes: --class.{void if marks[-1] == int(marks[-1]) else ''}"
