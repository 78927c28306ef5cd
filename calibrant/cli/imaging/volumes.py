"""Image files as arrays with their place in space: NIfTI, DICOM segmentations, .npy and .npz."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.missing_packages import needed_by

ENDINGS = (".nii", ".nii.gz", ".dcm", ".npy", ".npz")


@dataclass(frozen=True)
class Volume:
    """An image.

    Attributes
    ----------
    array : voxels, in the type of the file
    affine : (4, 4), from voxel indices to millimetres (right, anterior, superior); None for files that do not state it
    is_partial : whether slices that are not in the file are empty
    """

    path: Path
    array: NDArray[Any]
    affine: NDArray[np.float64] | None
    is_partial: bool = False

    @property
    def spacing_mm(self) -> tuple[float, ...] | None:
        """Distance of neighbouring voxels along each axis, in millimetres."""
        if self.affine is None:
            return None
        return tuple(np.linalg.norm(self.affine[:3, :3], axis=0).tolist())


def read_volume(path: Path) -> Volume:
    """Return the image in a file.

    Raises
    ------
    InputFileError
        The file is missing, of an unknown format, or damaged.
    MissingExtraError
        Its format needs an extra.
    """
    if not path.is_file():
        raise InputFileError(
            path,
            "The file does not exist. Correct its path. If the reader was absent, leave the cell empty.",
            "missing",
        )
    name = path.name.lower()
    if name.endswith((".nii", ".nii.gz")):
        return _nifti(path)
    if name.endswith(".dcm"):
        return _dicom(path)
    if name.endswith((".npy", ".npz")):
        return _numpy(path)
    detail = f"Received the ending of {path.name!r}; expected one of {', '.join(ENDINGS)}."
    raise InputFileError(path, detail, "format")


def _nifti(path: Path) -> Volume:
    with needed_by("Reading NIfTI files", "nifti"):
        import nibabel
        from nibabel.filebasedimages import ImageFileError
    try:
        image: Any = nibabel.load(path)
        slope, intercept = image.dataobj.slope, image.dataobj.inter
        array = image.dataobj.get_unscaled()
        if (slope, intercept) != (1.0, 0.0):
            array = array * np.float32(slope) + np.float32(intercept)
    except (ImageFileError, EOFError, ValueError, OSError) as error:
        raise InputFileError(path, f"Reading the NIfTI file failed: {error}", "format") from error
    affine = np.asarray(image.affine, np.float64)
    if not abs(np.linalg.det(affine)) > 0:
        detail = "Received an affine without a volume per voxel; expected distances above 0. Export the file again."
        raise InputFileError(path, detail, "affine")
    return Volume(path, _without_unit_axes(np.asarray(array)), affine)


def _without_unit_axes(array: NDArray[Any]) -> NDArray[Any]:
    """Return an image without axes of length 1 after the three of space, such as one time or one channel."""
    unit = tuple(axis for axis in range(3, array.ndim) if array.shape[axis] == 1)
    return np.squeeze(array, unit)


def _dicom(path: Path) -> Volume:
    with needed_by("Reading DICOM segmentations", "dicom"):
        import highdicom
        from pydicom.errors import InvalidDicomError
    try:
        segmentation = highdicom.seg.segread(path)
        if segmentation.number_of_segments != 1:
            detail = f"Received {segmentation.number_of_segments} segments; expected 1. Export one segment per file."
            raise InputFileError(path, detail, "segments")
        volume = segmentation.get_volume(combine_segments=True, skip_overlap_checks=True)
    except (InvalidDicomError, ValueError, RuntimeError) as error:
        if isinstance(error, InputFileError):
            raise
        detail = f"Reading the DICOM segmentation failed: {error}"
        raise InputFileError(path, detail, "format") from error
    # DICOM counts to the left and to the back, NIfTI to the right and to the front.
    affine = np.diag([-1.0, -1.0, 1.0, 1.0]) @ np.asarray(volume.affine, np.float64)
    return Volume(path, np.asarray(volume.array), affine, is_partial=True)


def _numpy(path: Path) -> Volume:
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return Volume(path, found, None)
        with found:
            if len(found.files) != 1:
                detail = f"Received the arrays {', '.join(found.files)}; expected one array."
                raise InputFileError(path, detail, "arrays")
            return Volume(path, found[found.files[0]], None)
    except (ValueError, EOFError, OSError) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(path, f"Reading the array failed: {error}", "format") from error
