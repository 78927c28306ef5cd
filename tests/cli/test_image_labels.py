"""Which voxels count: void ones do not, axes of length 1 say nothing, and only what counts is checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from calibrant.cli.imaging.reduction import reduced
from tests.cli.command import Finished

Run = Callable[..., Finished]
RNG = np.random.default_rng(3)
SHAPE = (6, 5, 16)
P = RNG.beta(0.5, 0.8, SHAPE).astype(np.float32)
MASK = (RNG.random(SHAPE) < P**2).astype(np.uint8)
OTHER = (RNG.random(SHAPE) < P**2).astype(np.uint8)
ONES = np.ones(SHAPE, np.uint8)


def ece(p: np.ndarray, positive: np.ndarray, n: np.ndarray | int = 1, bins: int = 15) -> float:
    """Expected calibration error of ratings: in each bin, the gap of the sums."""
    p = p.astype(float)
    place = np.clip(np.ceil(p * bins) - 1, 0, bins - 1).astype(int)
    ratings = np.broadcast_to(n, p.shape)
    gaps = np.bincount(place, ratings * p - positive, bins)
    return float(np.abs(gaps).sum() / ratings.sum())


def bin_sizes(p: np.ndarray, bins: int = 15) -> list[int]:
    place = np.clip(np.ceil(p.astype(float).ravel() * bins - 1e-6) - 1, 0, bins - 1).astype(int)
    return np.bincount(place, minlength=bins).tolist()


def manifest(folder: Path, kind: str = "npy", **arrays: np.ndarray) -> Path:
    files = {"case": "c", "patient": "p"}
    for name, array in arrays.items():
        files[name] = f"{name}.{kind}"
        if kind == "npy":
            np.save(folder / files[name], array)
        else:
            nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), folder / files[name])
    path = folder / "cases.csv"
    path.write_text(",".join(files) + "\n" + ",".join(files.values()) + "\n")
    return path


def numbers(run: Run, path: Path, *more: object) -> dict[str, Any]:
    out = path.parent / "numbers.json"
    found = run("score", "--manifest", path, "--metrics", "ece,accuracy,nll", "-o", out, *more)
    assert found.code == 0, found.error
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def void(mask: np.ndarray, *slices: int, value: int = 255) -> np.ndarray:
    found = mask.copy()
    found[..., list(slices)] = value
    return found


@pytest.mark.parametrize("more", [(), ("--class", 1)])
def test_void_voxels_are_not_background(more: tuple[object, ...], tmp_path: Path, run: Run) -> None:
    path = manifest(tmp_path, probability=P, reader_1=void(MASK, 0, 1), roi=ONES)
    found = numbers(run, path, "--ignore-label", 255, *more)
    assert found["metrics"]["ece"]["value"] == pytest.approx(
        ece(P[..., 2:].ravel(), MASK[..., 2:].ravel())
    )
    assert found["n_predictions"] == found["metrics"]["ece"]["n"] == 6 * 5 * 14


def test_a_void_voxel_of_one_reader_is_rated_by_the_other(tmp_path: Path, run: Run) -> None:
    path = manifest(
        tmp_path, probability=P, reader_1=void(MASK, 0, value=9), reader_2=OTHER, roi=ONES
    )
    n = np.full(SHAPE, 2)
    n[..., 0] = 1
    positive = np.where(n == 2, MASK, 0) + OTHER
    found = numbers(run, path, "--ignore-label", "9,255")
    assert found["metrics"]["ece"]["value"] == pytest.approx(
        ece(P.ravel(), positive.ravel(), n.ravel())
    )
    assert found["n_ratings"] == found["metrics"]["ece"]["n_ratings"] == int(n.sum())
    assert found["rater_disagreement"] == pytest.approx((MASK != OTHER)[n == 2].mean())


def test_counts_are_of_voxels_everywhere(tmp_path: Path, run: Run) -> None:
    """Equal voxels are stored as one row: `n` was the number of rows."""
    coarse = np.round(P.astype(float), 1)
    path = manifest(tmp_path, probability=coarse, reader_1=MASK, reader_2=OTHER, roi=ONES)
    found = numbers(run, path)
    assert found["n_predictions"] == found["n_labelled"] == P.size
    assert {each["n"] for each in found["metrics"].values()} == {P.size}
    assert {each["n_ratings"] for each in found["metrics"].values()} == {2 * P.size}
    table = found["reliability"]["table"]
    assert found["reliability"]["n"] == found["temperature"]["n"] == P.size
    assert [each["n_predictions"] for each in table] == bin_sizes(coarse)
    assert [each["count"] for each in table] == [2 * n for n in bin_sizes(coarse)]
    assert found["n_majority_ties"] == int((MASK != OTHER).sum())
    impossible = ((coarse == 0) * (MASK + OTHER) + (coarse == 1) * (2 - MASK - OTHER)).sum()
    assert found["metrics"]["nll"]["n_zero_probability"] == impossible > 0


@pytest.mark.parametrize("kind", ["npy", "nii.gz"])
@pytest.mark.parametrize("more", [(), ("--class", 1)])
def test_axes_of_length_1_say_nothing(
    kind: str, more: tuple[object, ...], tmp_path: Path, run: Run
) -> None:
    path = manifest(
        tmp_path, kind, probability=P[..., None], reader_1=MASK, reader_2=OTHER[..., None], roi=ONES[..., None]
    )  # fmt: skip
    found = numbers(run, path, *more)
    expected = ece(P.ravel(), (MASK + OTHER).ravel(), 2)
    assert found["metrics"]["ece"]["value"] == pytest.approx(expected)


def test_channels_after_an_axis_of_length_1_are_classes(tmp_path: Path, run: Run) -> None:
    channels = np.stack([1 - P, P / 4, P * 3 / 4], axis=-1)[..., None, :].astype(np.float32)
    path = manifest(tmp_path, "nii.gz", probability=channels, reader_1=MASK * 2, roi=ONES)
    found = numbers(run, path, "--class", 2)
    expected = ece((channels[..., 0, 2]).ravel(), MASK.ravel())
    assert found["metrics"]["ece"]["value"] == pytest.approx(expected)


def test_a_class_that_no_reader_marked_is_refused(tmp_path: Path, run: Run) -> None:
    path = manifest(tmp_path, probability=P, reader_1=MASK, roi=ONES)
    error = run("score", "--manifest", path, "--class", 3).error
    assert "No reader marked class 3 in any of the 1 cases" in error and "(unmarked_class)" in error
    error = run("score", "--manifest", path, "--class", 3, "--ignore-label", 3).error
    assert "(ignored_class)" in error


def test_only_voxels_that_count_are_checked(tmp_path: Path, run: Run) -> None:
    """Outside the region a probability may be NaN, and a mask may have any value."""
    region, p, mask = void(ONES, 0, 1, value=0), P.copy(), void(MASK, 0, value=77)
    p[..., 1] = np.nan
    path = manifest(tmp_path, probability=p, reader_1=mask, roi=region)
    found = numbers(run, path)
    expected = ece(P[..., 2:].ravel(), MASK[..., 2:].ravel())
    assert found["metrics"]["ece"]["value"] == pytest.approx(expected)
    p[0, 0, 5] = np.nan
    path = manifest(tmp_path, probability=p, reader_1=mask, roi=region)
    assert "Received NaN in voxels that count" in run("score", "--manifest", path).error


def test_values_beyond_0_and_1_by_rounding_are_set_and_stated(tmp_path: Path, run: Run) -> None:
    p = P.copy()
    p[0, 0, :2] = 1.0000005, -1e-7
    path = manifest(tmp_path, probability=p, reader_1=MASK, roi=ONES)
    out = run("score", "--manifest", path, "--metrics", "ece").out
    assert "2 probabilities outside [0, 1] by rounding were set to 0 or 1" in " ".join(out.split())
    p[0, 0, 0] = 1.001
    path = manifest(tmp_path, probability=p, reader_1=MASK, roi=ONES)
    assert "(range)" in run("score", "--manifest", path).error


def test_resampled_masks_and_void_values_are_advised(tmp_path: Path, run: Run) -> None:
    path = manifest(tmp_path, probability=P, reader_1=MASK * 0.9999999, roi=ONES)
    error = run("score", "--manifest", path).error
    assert "0.9999999; expected 0 and 1" in error and "round it" in error
    path = manifest(tmp_path, probability=P, reader_1=void(MASK, 0), roi=ONES)
    assert "--ignore-label 255" in run("score", "--manifest", path).error
    assert "expected whole numbers" in run("score", "--manifest", path, "--ignore-label", "x").error


def test_labels_of_tables_are_ignored_too(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p0,p1,label\n.9,.1,0\n.2,.8,-100\n.2,.8,1\n.6,.4,255.0\n")
    out = tmp_path / "numbers.json"
    found = run("score", path, "--ignore-label", "-100,255", "--metrics", "accuracy", "-o", out)
    assert found.code == 0, found.error
    accuracy = json.loads(out.read_text())["metrics"]["accuracy"]
    assert (accuracy["value"], accuracy["n"]) == (1.0, 2)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_rows_of_scores_on_edges_have_the_scores(kind: type) -> None:
    """A mean of equal scores may differ from them by rounding, and be in another bin."""
    p = np.repeat(np.arange(3601) / 3600, 7).astype(kind)
    ones = np.ones(len(p), np.uint8)
    rows = reduced(p, ones, ones)
    assert sorted(rows.probability) == sorted(set(p.astype(float).tolist()))
    assert set(rows.weight) == {7.0}
