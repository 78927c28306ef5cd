"""`--long`: one rating per line, by item and rater."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import Finished

Run = Callable[..., Finished]
SCORES = "id,cat,dog\na,.9,.1\nb,.2,.8\nc,.5,.5\n"
LONG = "id,annotator,label\na,ann,cat\nb,ann,cat\na,bo,dog\nb,ann,dog\nz,bo,dog\nb,bo,\n"
METRICS = ("--metrics", "accuracy,ece")


def written(folder: Path, long: str = LONG) -> tuple[Path, Path]:
    scores, labels = folder / "p.csv", folder / "long.csv"
    scores.write_text(SCORES)
    labels.write_text(long)
    return scores, labels


def scored(run: Run, folder: Path, *arguments: object) -> dict[str, Any]:
    out = folder / "out.json"
    found = run("score", *arguments, "-o", out)
    assert found.code == 0, found.error
    numbers: dict[str, Any] = json.loads(out.read_text())
    return numbers


def test_a_long_table_counts_each_raters_last_label(tmp_path: Path, run: Run) -> None:
    """Of a: cat right, dog wrong. Of b: dog by ann, right, after cat. Of c: nothing."""
    found = scored(run, tmp_path, *written(tmp_path), "--id", "id", "--long", *METRICS)
    assert (found["n_labelled"], found["n_ratings"]) == (2, 3)
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3)
    assert {each["name"]: each["n_ratings"] for each in found["readers"]} == {"ann": 2, "bo": 1}


def test_a_crowd_has_no_results_of_each(tmp_path: Path, run: Run) -> None:
    rows = [
        f"{item},w{line},{'cat' if line % 3 else 'dog'}" for line, item in enumerate("abc" * 40)
    ]
    scores, labels = written(tmp_path, "\n".join(["id,worker,label", *rows, ""]))
    found = scored(run, tmp_path, scores, labels, "--id", "id", "--long", *METRICS)
    assert found["n_ratings"] == 120 and found["readers"] == []
    top = {"a": "cat", "b": "dog", "c": "cat"}
    expected = np.mean([top[row[0]] == row.split(",")[2] for row in rows])
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(expected)


def test_units_and_weights_are_columns_of_the_scores(tmp_path: Path, run: Run) -> None:
    scores, labels = written(tmp_path)
    scores.write_text("id,cat,dog,patient,w\na,.9,.1,x,1\nb,.2,.8,x,3\nc,.5,.5,y,1\n")
    options = ("--id", "id", "--long", "--unit", "patient", "--weight", "w")
    found = scored(run, tmp_path, scores, labels, *options, *METRICS)
    assert found["n_units"] == 1
    assert found["metrics"]["accuracy"]["value"] == pytest.approx((1 + 3) / (2 + 3))


@pytest.mark.parametrize(
    ("long", "options", "message"),
    [
        (LONG, ["--long"], "--long takes a file of labels"),
        (LONG.replace("annotator", "by"), ["--id", "id", "--long"], "Name it: --raters COLUMN"),
        (LONG.replace("a,bo,dog", "a,bo,cow"), ["--id", "id", "--long"], "row 2 (line 4): Received 'cow'"),
        (LONG.replace("a,bo,dog", "a,bo,7"), ["--id", "id", "--long"], "row 2 (line 4): Received class 7"),
        (LONG.replace("a,bo,dog", ",bo,dog"), ["--id", "id", "--long"], "Received no item"),
        ("id,annotator,label\nx,ann,cat\n", ["--id", "id", "--long"], "none is an id of a prediction"),
    ],
)  # fmt: skip
def test_errors(long: str, options: list[str], message: str, tmp_path: Path, run: Run) -> None:
    found = run("score", *written(tmp_path, long), *options)
    assert found.code == 1 and message in found.error
