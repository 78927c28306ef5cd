"""Errors of input files: file, column, row and rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import Finished

Run = Callable[..., Finished]


def files(folder: Path, scores: str, labels: str) -> list[Path]:
    paths = [folder / "scores.csv", folder / "labels.csv"]
    for path, text in zip(paths, (scores, labels), strict=True):
        path.write_text(text)
    return paths


@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        ("p0,p1\n.5,.5\n.5,x\n", "y\n0\n1\n", "scores.csv, column 'p1', row 1 (line 3): Received 'x'"),
        ("p0,p1\n.5,.5\n.5\n", "y\n0\n1\n", "scores.csv, row 1 (line 3): Received 1 cells; expected 2"),
        ("p0,p1\n.5,.5\n.9,.4\n", "y\n0\n1\n", "scores.csv, row 1 (line 3): "),
        ("p0,p1\n.5,.5\n.5,.5\n", "y\n0\n7\n", "labels.csv, column 'y', row 1 (line 3): Received class 7"),
        ("p0,p1\n.5,.5\n.5,.5\n", "y\n0\ncat\n", "labels.csv, column 'y', row 1 (line 3): Received 'cat'"),
        ("p0,p1\n.5,.5\n.5,.5\n", "y\n0\n", "labels.csv: Received 1 rows; expected 2"),
        ("p0,p1\n.5,.5\n.5,.5\n", "a,b\n0,1\n0,1\n", "labels.csv: No column is known to hold labels"),
        ("p0,p0\n.5,.5\n", "y\n0\n", "scores.csv: Received the column name 'p0' more than once"),
        ("", "y\n0\n", "scores.csv: Received an empty file"),
        ("p0,p1\n.5,.5\n", "y\n\"\"\n", "labels.csv, column 'y': No row has a label"),
        ("p0,p1,logit0\n.5,.5,1\n", "y\n0\n", "scores.csv: Received numbered columns of several kinds"),
    ],
)  # fmt: skip
def test_errors_name_the_place(
    scores: str, labels: str, expected: str, tmp_path: Path, run: Run
) -> None:
    found = run("score", *files(tmp_path, scores, labels))
    assert found.code == 1
    assert expected in found.error.replace(f"{tmp_path}/", "")
    assert "Traceback" not in found.error


def test_a_text_among_scores_is_perhaps_a_column_without_its_role(tmp_path: Path, run: Run) -> None:
    (tmp_path / "mine.csv").write_text("cat,dog,truth\n.5,.5,cat\n")
    found = run("score", tmp_path / "mine.csv")
    assert "column 'truth', row 0 (line 2): Received 'cat'; expected a number." in found.error
    assert "state what the column is: --label" in found.error


def test_unknown_ids_columns_and_formats(tmp_path: Path, run: Run) -> None:
    paths = files(tmp_path, "id,p0,p1\na,.5,.5\nb,.5,.5\n", "id,y\nb,0\nc,1\n")
    assert "row 0 (line 2): Received the id 'a'" in run("score", *paths, "--id", "id").error
    paths = files(tmp_path, "id,p0,p1\na,.5,.5\n", "id,y\na,0\na,1\n")
    repeated = run("score", *paths, "--id", "id").error
    assert "a second time (first in row 0)" in repeated
    assert "--long --raters COLUMN" in repeated
    paths = files(tmp_path, "p0,p1\n.5,.5\n", "y\n1\n")
    assert "Received --unit 'x'; the columns are" in run("score", *paths, "--unit", "x").error
    assert "(format)" in run("score", tmp_path / "scores.xls").error
    assert "does not exist" in run("score", tmp_path / "none.csv").error
    assert "expected one of pooled" in run("score", *paths, "--policy", "best").error
    assert "(format)" in run("score", *paths, "-o", tmp_path / "report.doc").error


def test_arrays_of_objects_are_not_read(tmp_path: Path, run: Run) -> None:
    """Such a file could run code."""
    np.save(tmp_path / "p.npy", np.array([{"a": 1}], object), allow_pickle=True)
    found = run("score", tmp_path / "p.npy")
    assert found.code == 1 and "(format)" in found.error


def test_damaged_files_are_named(tmp_path: Path, run: Run) -> None:
    for ending in ("npy", "npz", "parquet", "arrow", "json"):
        path = tmp_path / f"damaged.{ending}"
        path.write_bytes(b"ARROW1 this is nothing")
        found = run("score", path)
        assert found.code == 1 and f"damaged.{ending}" in found.error, ending
        assert "Traceback" not in found.error


def test_forged_sizes_and_deep_nesting_are_named(tmp_path: Path, run: Run) -> None:
    """Neither ends in a traceback."""
    forged = tmp_path / "p.npy"
    head = (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (900000000000, 3), }".ljust(117) + b"\n"
    )
    forged.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    deep = tmp_path / "p.json"
    deep.write_text("[" * 100_000 + "]" * 100_000)
    for path in (forged, deep):
        found = run("score", path)
        assert found.code == 1 and path.name in found.error, path
        assert "Traceback" not in found.error and "allow_pickle" not in found.error


def test_a_line_of_many_names_is_read_once(tmp_path: Path, run: Run) -> None:
    names = ",".join(f"c{at}" for at in range(200_000))
    path = tmp_path / "scores.csv"
    path.write_text(f"{names},c0\n")
    found = run("score", path)
    assert found.code == 1 and "'c0' more than once" in found.error


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("logits.npy", lambda path: np.save(path, np.eye(3))),
        ("scores.csv", lambda path: path.write_text("p0,p1\n.5,.5\n")),
        ("p.npy", lambda path: np.save(path, np.full(3, 0.5))),
    ],
)
def test_scores_without_labels_are_named(
    name: str, write: Callable[[Path], object], tmp_path: Path, run: Run
) -> None:
    """The scores were called labels of a wrong shape before."""
    write(tmp_path / name)
    error = run("score", tmp_path / name).error
    assert f"No labels: {name} has scores only. Add the file of labels: " in error
    assert f"calibrant score {name} labels.csv" in error


def test_rows_matched_by_order_are_named_if_there_are_ids(tmp_path: Path, run: Run) -> None:
    paths = files(tmp_path, "p0,p1\n.5,.5\n.5,.5\n", "id,label\nb,0\na,1\n")
    expected = "Rows: matched by order; the column id of labels.csv was not used."
    assert expected in run("score", *paths, "--metrics", "ece").out
    paths = files(tmp_path, "id,p0,p1\na,.5,.5\nb,.5,.5\n", "id,label\nb,0\na,1\n")
    error = run("score", *paths, "--metrics", "ece").error
    assert "labels.csv, column 'id', row 0 (line 2): Received another id" in error
    assert "--id id. (other_id)" in error
    assert "Rows:" not in run("score", *paths, "--metrics", "ece", "--id", "id").out


@pytest.mark.parametrize(
    ("text", "expected"),
    [("p0;p1;label\n.5;.5;1\n", "semicolons"), ("p0\tp1\tlabel\n.5\t.5\t1\n", "tabs")],
)
def test_another_separator_is_named(text: str, expected: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(text)
    error = run("score", path).error
    assert f"Received {expected} between the columns" in error and "Pass --delimiter " in error


def test_arrays_of_marked_classes_and_of_one_column(tmp_path: Path, run: Run) -> None:
    scores, labels = tmp_path / "scores.npy", tmp_path / "labels.npy"
    np.save(scores, np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    np.save(labels, np.eye(3, dtype=int)[[0, 1, 2, 2]])
    error = run("score", scores, labels).error
    assert "save the index of the class, labels.argmax(axis=1)" in error
    assert "--raters all" not in error
    np.save(labels, np.array([[0, 1, 2], [2, 0, 1], [2, 2, 1], [2, 2, 1]]))
    assert "For one column per reader: --raters all" in run("score", scores, labels).error
    np.save(labels, np.array([[0], [1], [2], [2]]))
    assert "Expected calibration error                   0.325" in run("score", scores, labels).out
