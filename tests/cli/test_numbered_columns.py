"""Numbers in the names of columns are classes: they are never counted again from 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Finished

Run = Callable[..., Finished]
# Class 3 does not occur; every label is the class of the largest score but that of row 2, which is .7: gaps .2, .1, .3, .3.
ROWS = "{}\n.8,.1,.1,1\n.1,.8,.1,2\n.7,.2,.1,1\n.2,.7,.1,2\n"


def numbers(
    run: Run, folder: Path, path: Path, *more: object, metrics: str = "accuracy,ece"
) -> dict[str, float]:
    out = folder / "out.json"
    found = run("score", path, "--metrics", metrics, "-o", out, *more)
    assert found.code == 0, found.error
    values = json.loads(out.read_text())["metrics"]
    return {name: each["value"] for name, each in values.items()}


@pytest.mark.parametrize(
    "header", ["p1,p2,p3", "class_1,class_2,class_3", "1,2,3", "proba class 1,proba class 2,proba class 3"]
)  # fmt: skip
def test_labels_from_1_are_the_numbers_of_the_columns(
    header: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "f.csv"
    path.write_text(ROWS.format(f"{header},label"))
    assert numbers(run, tmp_path, path) == pytest.approx({"accuracy": 1.0, "ece": 0.25})


def test_numbers_with_gaps_and_in_another_order(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p20,p3,label\n.1,.9,3\n.8,.2,20\n.3,.7,3.0\n")
    assert numbers(run, tmp_path, path)["accuracy"] == 1.0
    path.write_text("p2,p1,p0,label\n.1,.1,.8,0\n.8,.1,.1,2\n")
    assert numbers(run, tmp_path, path)["accuracy"] == 1.0
    assert numbers(run, tmp_path, path, "--scores", "p2,p1,p0")["accuracy"] == 1.0


def test_other_labels_are_refused_with_the_way_out(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text(ROWS.format("p1,p2,p3,label").replace(",2\n", ",0\n"))
    error = run("score", path).error
    assert "row 1 (line 3): Received '0'; expected one of '1', '2', '3'" in error
    assert "--classes 0,1,2" in error
    assert numbers(run, tmp_path, path, "--classes", "1,0,2")["accuracy"] == 1.0


def test_declared_numbers_are_names(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("a,b,label\n.9,.1,10\n.2,.8,20\n")
    assert numbers(run, tmp_path, path, "--classes", "10,20")["accuracy"] == 1.0
    path.write_text("a,b,label\n.9,.1,0\n.2,.8,1\n")
    assert "expected one of '10', '20'" in run("score", path, "--classes", "10,20").error


def test_one_column_of_another_class_is_refused(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p0,label\n.9,0\n.2,1\n")
    assert "(class_number)" in run("score", path).error
    path.write_text("p1,label\n.9,1\n.2,0\n")
    assert numbers(run, tmp_path, path)["accuracy"] == 1.0


def test_a_class_twice_is_refused(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p1,p01,label\n.9,.1,1\n")
    assert "(repeated_class)" in run("score", path).error


def test_a_name_that_a_terminal_would_obey_is_no_class(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("cat,\x1b[31mdog,label\n.9,.1,cat\n")
    found = run("score", path)
    assert "(class_name)" in found.error and "\x1b[31m" not in found.error + found.out


def test_the_class_of_a_scope_is_named_as_its_column(tmp_path: Path, run: Run) -> None:
    """The scores of the column 1 are .8, .1, .7 and .2, and its class is that of the rows 0 and 2."""
    path = tmp_path / "f.csv"
    path.write_text(ROWS.format("p1,p2,p3,label"))
    found = numbers(run, tmp_path, path, "--scope", "class:1")
    assert found["ece"] == pytest.approx((0.2 + 0.1 + 0.3 + 0.2) / 4)
    by_metric = numbers(run, tmp_path, path, metrics="ece(scope=class:1)")
    assert by_metric["ece(scope=class:0)"] == pytest.approx(found["ece"])
    assert "expected one of the model: 1, 2, 3" in run("score", path, "--scope", "class:4").error


def test_classes_in_another_order_than_their_columns_are_refused(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("cat,dog,label\n.9,.1,cat\n.2,.8,dog\n")
    assert numbers(run, tmp_path, path, "--classes", "cat,dog")["accuracy"] == 1.0
    assert "expected one order" in run("score", path, "--classes", "dog,cat").error
