"""Images of other axes on the grid of the probabilities: reordered, never resampled."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import nibabel
import numpy as np
import pytest

from calibrant.cli.imaging.grids import on_grid
from calibrant.cli.imaging.volumes import Volume, read_volume
from calibrant.cli.input_files.file_errors import InputFileError
from tests.cli.dicom_files import write_segmentation

SHAPE, SPACING = (6, 5, 4), (1.0, 1.0, 2.5)
MASK = np.random.default_rng(0).integers(0, 2, SHAPE).astype(np.uint8)
AFFINE = np.array([[1.0, 0, 0, -3], [0, 1.5, 0, 7], [0, 0, 2.5, 11], [0, 0, 0, 1]])
REFERENCE = Volume(Path("p.nii"), np.zeros(SHAPE), AFFINE)


@pytest.mark.parametrize("axes", list(permutations(range(3))))
def test_every_order_and_direction_of_axes_is_the_same_image(axes: tuple[int, ...]) -> None:
    for signs in product((1, -1), repeat=3):
        array, to_reference = np.transpose(MASK, axes), np.zeros((4, 4))
        to_reference[3, 3] = 1
        for place, axis in enumerate(axes):
            to_reference[axis, place] = signs[place]
            if signs[place] < 0:
                array = np.flip(array, place)
                to_reference[axis, 3] = SHAPE[axis] - 1
        found = on_grid(REFERENCE, SHAPE, Volume(Path("m.nii"), array, AFFINE @ to_reference))
        np.testing.assert_array_equal(found, MASK)


@pytest.mark.parametrize(
    ("change", "offset"),
    [
        ("half a voxel", "0.5"),
        ("a voxel", "1"),
        ("a voxel back", "1"),
        ("a slice", "2.5"),
        ("another sign", "5"),
        ("spacing", "0.3"),
        ("turn", "0.835"),
    ],
)
def test_what_would_need_resampling_is_rejected_with_its_largest_offset(
    change: str, offset: str
) -> None:
    moved = np.eye(4)
    match change:
        case "half a voxel":
            moved[0, 3] = 0.5
        case "a voxel":
            moved[0, 3] = 1
        case "a voxel back":
            moved[0, 3] = -1
        case "a slice":
            moved[2, 3] = 1
        case "another sign":
            moved[0, 0] = -1
        case "spacing":
            moved[1, 1] = 1.05
        case "turn":
            c, s = np.cos(0.1), np.sin(0.1)
            moved[:2, :2] = [[c, -s], [s, c]]
    with pytest.raises(InputFileError, match=f"by up to {offset} mm at the corners.*affine"):
        on_grid(REFERENCE, SHAPE, Volume(Path("m.nii"), MASK, AFFINE @ moved))


def test_a_spacing_is_compared_over_the_complete_volume() -> None:
    """0.9 micrometres per voxel are 0.46 mm after 512 voxels; the rounding of a float32 header is nothing."""
    shape, mask = (512, 4, 3), np.zeros((512, 4, 3), np.uint8)
    affine = np.diag([0.7, 0.7, 1.2, 1.0])
    affine[:3, 3] = [-250.3, 181.7, -1034.9]
    reference = Volume(Path("p.nii"), np.zeros(shape), affine)
    rounded = Volume(Path("m.nii"), mask, affine.astype(np.float32).astype(float))
    assert on_grid(reference, shape, rounded) is not None
    other = affine @ np.diag([1.0009, 1, 1, 1])
    with pytest.raises(InputFileError, match=r"by up to 0\.322 mm"):
        on_grid(reference, shape, Volume(Path("m.nii"), mask, other))


def test_a_segmentation_of_some_slices_must_lie_inside() -> None:
    inside, outside = AFFINE.copy(), AFFINE.copy()
    inside[2, 3] += 2 * 2.5
    outside[2, 3] += 3 * 2.5
    part = MASK[..., :2]
    found = on_grid(REFERENCE, SHAPE, Volume(Path("m.dcm"), part, inside, is_partial=True))
    np.testing.assert_array_equal(found[..., 2:], part)
    assert not found[..., :2].any()
    with pytest.raises(InputFileError, match=r"by up to 2\.5 mm"):
        on_grid(REFERENCE, SHAPE, Volume(Path("m.dcm"), part, outside, is_partial=True))
    with pytest.raises(InputFileError, match="shape"):
        on_grid(REFERENCE, SHAPE, Volume(Path("m.nii"), part, inside))


def test_a_dicom_segmentation_is_on_the_grid_of_a_nifti_file(tmp_path: Path) -> None:
    """DICOM rows run to the back and columns to the left; omitted frames are empty."""
    mask = MASK.copy()
    mask[..., 0] = 0
    write_segmentation(tmp_path / "r.dcm", mask, SPACING)
    # Axes (column, row, slice) to the left and to the back, as converters to NIfTI write them.
    affine = np.diag([-1.0, -1.0, 2.5, 1.0])
    reference = Volume(Path("p.nii"), np.zeros((5, 6, 4)), affine)
    found = on_grid(reference, (5, 6, 4), read_volume(tmp_path / "r.dcm"))
    np.testing.assert_array_equal(found, np.swapaxes(mask, 0, 1))


def test_files_that_are_no_segmentation_are_named(tmp_path: Path) -> None:
    for name in ("a.dcm", "a.nii", "a.nii.gz", "a.npz", "a.npy", "a.mha"):
        (tmp_path / name).write_bytes(b"nothing of this kind" * 30)
        with pytest.raises(InputFileError, match=name):
            read_volume(tmp_path / name)


def test_a_nifti_file_whose_voxels_have_no_size_is_named(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(MASK, None)
    image.header.set_sform(np.diag([1.0, 1.0, 0.0, 1.0]), code=1)
    nibabel.save(image, tmp_path / "flat.nii")
    with pytest.raises(InputFileError, match=r"flat\.nii.*\(affine\)"):
        read_volume(tmp_path / "flat.nii")
