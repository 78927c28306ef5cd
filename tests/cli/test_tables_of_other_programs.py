"""Tables as spreadsheets, pandas and monitoring libraries write them: read by an option, or refused with the way out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import calibrant as cal
from tests.cli.command import Finished, predictions

Run = Callable[..., Finished]
_, P, LABELS = predictions(60)
FRAME = pd.DataFrame({f"p{i}": P[:, i] for i in range(3)} | {"label": LABELS})
ECE = cal.ece(P, LABELS).value


def value(run: Run, path: Path, *more: object, metric: str = "ece") -> float:
    out = path.parent / "numbers.json"
    found = run("score", path, "--metrics", metric, "-o", out, *more)
    assert found.code == 0, found.error
    return float(json.loads(out.read_text())["metrics"][metric]["value"])


@pytest.mark.parametrize(
    ("name", "options", "arguments"),
    [
        ("f.csv", {"sep": ";", "decimal": ","}, ("--delimiter", ";", "--decimal", ",")),
        ("f.csv", {"sep": "|"}, ("--delimiter", "|")),
        ("f.csv", {"sep": "\t"}, ("--delimiter", "tab")),
        ("f.csv.gz", {}, ()),
        ("f.tsv.gz", {"sep": "\t"}, ()),
    ],
)
def test_text_tables(
    name: str, options: dict[str, str], arguments: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    FRAME.to_csv(tmp_path / name, index=False, **options)
    assert value(run, tmp_path / name, *arguments) == pytest.approx(ECE, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("f.json", {"orient": "records"}),
        ("f.json.gz", {"orient": "records"}),
        ("f.jsonl", {"orient": "records", "lines": True}),
        ("f.ndjson.gz", {"orient": "records", "lines": True, "compression": "gzip"}),
    ],
)
def test_json_tables(name: str, options: dict[str, Any], tmp_path: Path, run: Run) -> None:
    FRAME.to_json(tmp_path / name, double_precision=15, **options)
    assert value(run, tmp_path / name) == pytest.approx(ECE, abs=1e-9)


@pytest.mark.parametrize(
    ("orient", "received"),
    [
        ("columns", "an object of objects"),
        ("index", "an object of objects"),
        ("split", 'orient="split"'),
        ("table", 'orient="table"'),
    ],
)
def test_other_shapes_are_refused_with_the_call(
    orient: Any, received: str, tmp_path: Path, run: Run
) -> None:
    FRAME.to_json(tmp_path / "f.json", orient=orient)
    error = run("score", tmp_path / "f.json").error
    assert received in error and 'DataFrame.to_json(orient="records")' in error
    assert "(format)" in error and "Traceback" not in error


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", "3", '"a"', '{"p0": 1}', '{"p0": null, "label": [1]}', "[{}]", "[[1], 2]"]
)  # fmt: skip
def test_no_json_ends_in_a_traceback(text: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "f.json").write_text(text)
    found = run("score", tmp_path / "f.json")
    assert found.code == 1 and "f.json" in found.error and "Traceback" not in found.error


@pytest.mark.parametrize("name", ["f.csv.gz", "f.json.gz", "f.jsonl.gz"])
def test_damaged_compression_is_named(name: str, tmp_path: Path, run: Run) -> None:
    for content in (b"no gzip", gzip.compress(b"p0,p1,label\n.5,.5,1\n" * 100)[:40]):
        (tmp_path / name).write_bytes(content)
        found = run("score", tmp_path / name)
        assert found.code == 1 and name in found.error and "Traceback" not in found.error
        assert "(gzip)" in found.error or "(format)" in found.error


def test_lines_that_are_no_json_are_named(tmp_path: Path, run: Run) -> None:
    (tmp_path / "f.jsonl").write_text('{"p0": 1}\n\n{"p0": \n')
    assert "Line 3 is not JSON" in run("score", tmp_path / "f.jsonl").error
    (tmp_path / "f.npy.gz").write_bytes(b"")
    assert "'.npy.gz'" in run("score", tmp_path / "f.npy.gz").error


def test_decimal_commas_and_delimiters_are_advised(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.tsv"
    path.write_text("p0\tp1\tlabel\n0,5\t0,5\t1\n")
    assert "pass --decimal ," in run("score", path).error
    assert value(run, path, "--decimal", ",", "--delimiter", "tab", metric="accuracy") == 0.0
    for wrong in (("--decimal", ","), ("--decimal", "x"), ("--delimiter", ";;")):
        assert run("score", path, *wrong).code == 2


@pytest.mark.parametrize(
    "header", ["y_true,y_pred_proba,y_pred", "target,proba,prediction", "label,score,threshold"]
)
def test_columns_of_monitoring_libraries(header: str, tmp_path: Path, run: Run) -> None:
    """The chosen class is no score: .9 and .2 are the probabilities of class 1."""
    path = tmp_path / "f.csv"
    path.write_text(f"{header}\n1,.9,1\n0,.2,0\n")
    assert value(run, path) == pytest.approx(0.15)


def test_columns_that_were_read_as_scores_are_named(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "f.csv"
    path.write_text("label,chance,age\n1,.9,71\n0,.2,35\n")
    error = run("score", path).error
    assert "Columns read as scores: 'chance', 'age'" in error
    path.write_text("label,score,proba\n1,.9,.9\n")
    assert "(ambiguous_column)" in run("score", path).error


def test_logits_that_look_like_probabilities_are_a_warning(tmp_path: Path, run: Run) -> None:
    np.save(tmp_path / "softmax.npy", P)
    np.savetxt(tmp_path / "labels.csv", LABELS, fmt="%d")
    arguments = ("score", tmp_path / "softmax.npy", tmp_path / "labels.csv")
    assert "If they are: --probabilities" in " ".join(run(*arguments, "--logits").out.split())
    assert "Warning" not in run(*arguments).out
