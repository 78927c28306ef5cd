"""Texts that mean no value: blank cells and `null` in files of texts, nulls in files that have them, and what `--na` names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.command import Finished

Run = Callable[..., Finished]


def scored(run: Run, folder: Path, *arguments: object) -> dict[str, Any]:
    out = folder / "out.json"
    found = run("score", *arguments, "-o", out)
    assert found.code == 0, found.error
    numbers: dict[str, Any] = json.loads(out.read_text())
    return numbers


@pytest.mark.parametrize("name", ["NA", "None", "nan", "NaN", "none", "N/A", "NULL"])
def test_a_class_of_any_name_is_scored(name: str, tmp_path: Path, run: Run) -> None:
    """Both rows are right: accuracy 1, gaps .3 and .2."""
    path = tmp_path / "f.csv"
    path.write_text(f"{name},NO,country\n.7,.3,{name}\n.2,.8,NO\n")
    found = scored(run, tmp_path, path, "--label", "country", "--metrics", "accuracy,ece")
    assert found["n_predictions"] == 2 and found["left_out"] == []
    assert found["metrics"]["accuracy"]["value"] == 1.0
    assert found["metrics"]["ece"]["value"] == pytest.approx(0.25)


def test_a_declared_class_named_null_is_a_class(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p0,p1,label\n.7,.3,null\n.2,.8,NO\n.5,.5,\n")
    found = scored(run, tmp_path, path, "--classes", "null,NO", "--metrics", "accuracy")
    assert found["metrics"]["accuracy"]["value"] == 1.0
    assert found["metrics"]["accuracy"]["n"] == 2 and found["left_out"][0]["n"] == 1


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_every_text_of_a_file_with_nulls_is_a_value(kind: str, tmp_path: Path, run: Run) -> None:
    rows = {"null": [0.7, 0.2, 0.5], "b": [0.3, 0.8, 0.5], "label": ["null", "b", None]}
    path = tmp_path / f"f.{kind}"
    if kind == "json":
        path.write_text(json.dumps(rows))
    else:
        parquet.write_table(pa.table(rows), path)
    found = scored(run, tmp_path, path, "--metrics", "accuracy")
    assert found["metrics"]["accuracy"]["value"] == 1.0
    assert found["metrics"]["accuracy"]["n"] == 2


def test_readers_subgroups_and_patients_of_any_name(tmp_path: Path, run: Run) -> None:
    """Two readers, of whom one is absent twice: 4 ratings, of which 3 are right; each of the subgroups has its rows."""
    path = tmp_path / "f.csv"
    path.write_text(
        "NA,b,reader_1,reader_2,region,patient\n"
        ".7,.3,NA,,NA,NA\n.2,.8,b,NA,None,NA\n.9,.1,NA,null,nan,None\n"
    )
    roles = ("--raters", "reader_*", "--slice", "region", "--unit", "patient")
    found = scored(run, tmp_path, path, *roles, "--metrics", "accuracy,ece")
    assert found["n_ratings"] == 4 and found["metrics"]["accuracy"]["value"] == 0.75
    assert sorted(found["subgroups"]) == ["NA", "None", "nan"]
    assert found["n_units"] == 2 and found["left_out"] == []


def test_na_names_what_else_is_no_value(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("p0,p1,label\n.7,.3,0\n.2,.8,nan\n.2,.8,NA\n.1,.9,1\n")
    error = run("score", path).error
    assert "row 1 (line 3): Received 'nan'" in error and "pass --na nan" in error
    found = scored(run, tmp_path, path, "--na", "nan,NA", "--metrics", "accuracy")
    assert found["metrics"]["accuracy"]["n"] == 2
    error = run("score", path, "--classes", "NA,b", "--na", "NA").error
    assert "'NA' as a class and in --na" in error and "(missing_class)" in error
