"""One rule for each kind of value, at every entrance: the table value × entrance.

Each value has one stated result, computed by hand or by the few lines of `ece_of`, which share nothing with the product: the number of
labelled predictions, the number of ratings and the ECE of 15 bins; or the rule by which it is refused. A value is written once, as lists,
and each entrance gets it in the form that its users have. What an entrance cannot hold is in `EXCEPTIONS`, with the reason.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

import calibrant as cal
from calibrant.client.rows import body_of, pieces
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from tests.cli.command import runner
from tests.service.fakes import FakeInbox, FakeRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.one_server]

P3 = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
P1 = [0.9, 0.2, 0.6, 0.3]
LOGISTIC = [1 / (1 + math.exp(-z)) for z in (2.0, -2.0, 1.0, -1.0)]
# A row of 100 classes rounded to three decimals, whose sum is 1.049: as many classes are rounded up as can be.
MANY = [[0.055] + [0.010] * 98 + [0.014]]
NAN = math.nan


@dataclass(frozen=True)
class Value:
    """A kind of value.

    Attributes
    ----------
    scores : one number per row, or one per class
    labels : one per row, or one per reader
    expected : labelled predictions, ratings and ECE; or the rule by which it is refused
    options : of the call
    logits : whether scores are logits
    dtype : of the scores, at entrances whose values have one
    states : what the result states in addition
    column : argument that `labels` is; `label_shares` for soft labels
    rows : further arguments with one value per row
    """

    scores: list[Any]
    labels: list[Any]
    expected: tuple[int, int, float] | str
    options: dict[str, Any] = field(default_factory=dict)
    logits: bool = False
    dtype: str = "float64"
    states: dict[str, Any] = field(default_factory=dict)
    column: str = "labels"
    rows: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def query(self) -> dict[str, Any]:
        """Options that are parameters of the query, never fields of a body."""
        return {name: each for name, each in self.options.items() if name == "task"}


def ece_of(confidence: list[float], correct: list[list[int]]) -> float:
    """The ECE of 15 right-closed bins by its definition: `correct` has 1 or 0 for each rating of a row."""
    bins: dict[int, list[tuple[float, int]]] = {}
    for p, hits in zip(confidence, correct, strict=True):
        bins.setdefault(max(math.ceil(p * 15), 1), []).extend((p, hit) for hit in hits)
    gaps = [abs(sum(hit - p for p, hit in some)) for some in bins.values()]
    return sum(gaps) / sum(map(len, bins.values()))


# Shares of the top classes are .5, 1, .75 and 0; two rows are in the bin of .8.
SHARES = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0]]
SHARED = (0.7 - 0.5 + (1 + 0.75 - 1.6) + 0.4) / 4
EVENTS = [[0.9, 0.8], [0.2, 0.7], [0.6, 0.3]]
MULTILABEL = {"task": "multilabel"}
# The highest class of each row, and whether each rating is it.
TOP = [0.7, 0.8, 0.8, 0.4]
VALUES: dict[str, Value] = {
    # Labels. The missing cells are those of an annotator who skipped items.
    "readers with missing cells": Value(
        P3, [[0, 0], [1, None], [2, 1], [None, 1]], (4, 6, ece_of(TOP, [[1, 1], [1], [1, 0], [0]]))),
    "readers with a row of nothing": Value(
        P3, [[0, 0], [None, None], [2, 1], [None, 1]], (3, 5, ece_of([0.7, 0.8, 0.4], [[1, 1], [1, 0], [0]]))),
    "a missing label": Value(P3, [0, None, 2, 2], (3, 3, ece_of([0.7, 0.8, 0.4], [[1], [1], [1]]))),
    "whole floats with NaN": Value(P1, [1.0, 0.0, NAN, 1.0], (3, 3, ece_of([0.9, 0.2, 0.3], [[1], [0], [1]]))),
    "truth values of two classes": Value(P1, [True, False, True, True], (4, 4, ece_of(P1, [[1], [0], [1], [1]]))),
    "truth values of three classes": Value(P3, [True, False, True, True], "class_index"),
    "a fraction as a label": Value(P3, [0.5, 1.0, 2.0, 2.0], "class_index"),
    "a class out of range": Value(P3, [0, 1, 2, 3], "class_range"),
    "-100 for no label": Value(
        P3, [0, 1, -100, 2], (3, 3, ece_of([0.7, 0.8, 0.4], [[1], [1], [1]])), {"ignore_label": -100}),
    "255 for no label": Value(P1, [1, 0, 255, 1], (3, 3, ece_of([0.9, 0.2, 0.3], [[1], [0], [1]])), {"ignore_label": 255}),
    "-100 without saying so": Value(P3, [0, 1, -100, 2], "class_range"),
    "names of classes": Value(
        P3, ["cat", "cow", "dog", "cat"], (4, 4, ece_of(TOP, [[1], [1], [1], [0]])), {"classes": ["cat", "cow", "dog"]}),
    "numbers as names": Value(
        P3, [10, 20, 30, 10], (4, 4, ece_of(TOP, [[1], [1], [1], [0]])), {"classes": [10, 20, 30]}),
    "an index among numbers as names": Value(P3, [10, 20, 1, 10], "class_index", {"classes": [10, 20, 30]}),
    "one-hot rows": Value(P3, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], "one_hot"),
    "few one-hot rows": Value(
        P3[:3], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], (3, 9, ece_of(TOP[:3], [[0, 1, 1], [0, 1, 0], [0, 0, 0]])),
        states={"warnings": ["possibly_one_hot"]}),
    "two columns of one-hot": Value(
        P1, [[1, 0], [0, 1], [0, 1], [1, 0]], (4, 8, ece_of(P1, [[1, 0]] * 4)), states={"warnings": ["possibly_one_hot"]}),
    # Scores.
    "log-odds": Value([2.0, -2.0, 1.0, -1.0], [1, 1, 0, 0], (4, 4, ece_of(LOGISTIC, [[1], [1], [0], [0]])), logits=True),
    "log-odds as a column": Value(
        [[2.0], [-2.0], [1.0], [-1.0]], [1, 1, 0, 0], (4, 4, ece_of(LOGISTIC, [[1], [1], [0], [0]])), logits=True),
    "sigmoids as a column": Value([[each] for each in P1], [1, 0, 0, 1], (4, 4, ece_of(P1, [[1], [0], [0], [1]]))),
    "rounding above 1 and below 0": Value(
        [1.0000000000000002, -1e-17, 1.00000536, 0.3], [1, 0, 1, 0], (4, 4, 0.3 / 4), states={"n_adjusted": 3}),
    "a column of two classes above 1": Value([[1.00000536, 0.0], [0.0, 1.0]], [0, 1], (2, 2, 0.0), states={"n_adjusted": 1}),
    "above 1 by more than rounding": Value([1.00002, 0.2], [1, 0], "range"),
    "thirds of two decimals": Value([[0.33, 0.33, 0.33], [0.1, 0.8, 0.1]], [0, 1], (2, 2, (2 / 3 + 0.2) / 2)),
    "a hundred classes of three decimals": Value(MANY, [0], (1, 1, 1 - 0.055 / 1.049), states={"n_normalised": 1}),
    "a sum off by more than rounding": Value([[0.5, 0.3, 0.1], [0.1, 0.8, 0.1]], [0, 1], "row_sum"),
    "weights divided by their sum": Value(
        [[2.0, 1.0, 1.0], [0.1, 0.8, 0.1]], [0, 1], (2, 2, (0.5 + 0.2) / 2), {"normalize": True},
        states={"n_normalised": 1, "largest_deviation": 3.0}),
    "percent": Value([[70.0, 30.0], [20.0, 80.0]], [0, 1], "range"),
    "independent labels": Value([[0.9, 0.8, 0.1], [0.2, 0.7, 0.6]], [0, 1], "row_sum"),
    "float32 on an edge": Value(
        [0.4, 0.4, 0.45, 0.45], [1, 0, 0, 0], (4, 4, (abs(1 - 0.8) + 0.9) / 4), dtype="float32"),
    "float16": Value([0.75, 0.25, 0.5, 0.125], [1, 0, 1, 0], (4, 4, (0.25 + 0.25 + 0.5 + 0.125) / 4), dtype="float16"),
    "float32": Value([0.75, 0.25, 0.5, 0.125], [1, 0, 1, 0], (4, 4, (0.25 + 0.25 + 0.5 + 0.125) / 4), dtype="float32"),
    # Weights, soft labels and independent events.
    "weights of rows": Value(P1, [1, 0, 0, 1], (4, 4, (2 * 0.1 + 0.2 + 0.6 + 0.7) / 5), rows={"weights": [2.0, 1.0, 1.0, 1.0]}),
    "a negative weight": Value(P1, [1, 0, 0, 1], "weight", rows={"weights": [2.0, -1.0, 1.0, 1.0]}),
    "shares of classes": Value(P3, SHARES, (4, 4, SHARED), column="label_shares"),
    "shares of four ratings": Value(P3, SHARES, (4, 16, SHARED), column="label_shares", rows={"n_ratings": [4, 4, 4, 4]}),
    "shares of three ratings": Value(P3, SHARES, "shares", column="label_shares", rows={"n_ratings": [3, 3, 3, 3]}),
    "shares that do not sum to 1": Value(P3, [[0.5, 0.2, 0.1], *SHARES[1:]], "row_sum", column="label_shares"),
    "events": Value(EVENTS, [[1, 1], [0, None], [1, 0]], (3, 5, ((0.1 + 0.2 + 0.4) / 3 + (0.2 + 0.3) / 2) / 2), MULTILABEL),
    "events of a class 2": Value(EVENTS, [[1, 1], [0, 2], [1, 0]], "class_range", MULTILABEL),
    "normalised events": Value(EVENTS, [[1, 1], [0, 1], [1, 0]], "not_taken", MULTILABEL | {"normalize": True}),
    "shares of events": Value(EVENTS, [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]], "not_taken", MULTILABEL, column="label_shares"),
}  # fmt: skip

Entrance = Callable[[Value, "Bench"], Any]


@dataclass
class Bench:
    """What the entrances need: the command, a client of the service, and a folder."""

    run: Any
    client: httpx.AsyncClient
    folder: Path


# The library.


def missing(value: Any) -> bool:
    return value is None or value != value


def is_wide(column: list[Any]) -> bool:
    return isinstance(column[0], list)


def scored(value: Value, scores: Any, labels: Any) -> dict[str, Any] | str:
    """Return the numbers of the library, or the rule by which it refuses."""
    given = {"logits" if value.logits else "probabilities": scores}
    try:
        given |= {value.column: labels} | value.rows
        report = cal.evaluate(metrics="ece", **given, **value.options)
    except cal.CalibrationInputError as error:
        return error.violations[0].rule
    return report.about | {"ece": report["ece"].value}


def of_lists(value: Value, bench: Bench) -> Any:
    return scored(value, value.scores, value.labels)


def of_tuples(value: Value, bench: Bench) -> Any:
    def frozen(column: list[Any]) -> tuple[Any, ...]:
        return tuple(tuple(each) if isinstance(each, list) else each for each in column)

    return scored(value, frozen(value.scores), frozen(value.labels))


def of_numpy(value: Value, bench: Bench) -> Any:
    return scored(value, np.array(value.scores, value.dtype), array_of(value.labels))


def array_of(labels: list[Any]) -> np.ndarray[Any, Any]:
    """Return labels as numpy users have them: floats as soon as one is missing."""
    flat = [each for row in labels for each in (row if isinstance(row, list) else [row])]
    if any(isinstance(each, str) for each in flat) or not any(missing(each) for each in flat):
        return np.array(labels)
    return np.array(labels, float)


def frame_of(column: list[Any], dtype: Any = object) -> pd.DataFrame | pd.Series:
    if is_wide(column):
        return pd.DataFrame(column, columns=[f"c{i}" for i in range(len(column[0]))], dtype=dtype)
    return pd.Series(column, dtype=dtype)


def of_pandas(value: Value, bench: Bench) -> Any:
    return scored(value, frame_of(value.scores, value.dtype), frame_of(value.labels))


def of_nullable_pandas(value: Value, bench: Bench) -> Any:
    return scored(
        value, frame_of(value.scores, value.dtype), frame_of(value.labels).convert_dtypes()
    )


def of_pyarrow_pandas(value: Value, bench: Bench) -> Any:
    labels = frame_of(value.labels).convert_dtypes(dtype_backend="pyarrow")
    scores = frame_of(value.scores, value.dtype).convert_dtypes(dtype_backend="pyarrow")
    return scored(value, scores, labels)


def of_polars(value: Value, bench: Bench) -> Any:
    def made(column: list[Any]) -> Any:
        if not is_wide(column):
            return pl.Series(column)
        return pl.DataFrame(column, orient="row", schema=[f"c{i}" for i in range(len(column[0]))])

    return scored(value, made(value.scores), made(value.labels))


def arrow_of(column: list[Any], name: str) -> dict[str, pa.Array]:
    """Return one column, or one per reader or class."""
    if not is_wide(column):
        return {name: pa.array([None if missing(each) else each for each in column])}
    return {f"{name}{i}": pa.array([row[i] for row in column]) for i in range(len(column[0]))}


def table_or_column(column: list[Any]) -> Any:
    found = arrow_of(column, "c")
    return pa.table(found) if is_wide(column) else found["c"]


def of_arrow(value: Value, bench: Bench) -> Any:
    return scored(value, table_or_column(value.scores), table_or_column(value.labels))


def of_arrow_chunks(value: Value, bench: Bench) -> Any:
    def chunked(column: list[Any]) -> Any:
        found = table_or_column(column)
        first, rest = found.slice(0, 1), found.slice(1)
        if isinstance(found, pa.Table):
            return pa.concat_tables([first, rest])
        return pa.chunked_array([first, rest])

    return scored(value, chunked(value.scores), chunked(value.labels))


def of_arrow_lists(value: Value, bench: Bench) -> Any:
    return scored(
        value, pa.array(value.scores), pa.array([None if missing(x) else x for x in value.labels])
    )


def of_tensors(value: Value, bench: Bench) -> Any:
    torch = pytest.importorskip("torch")
    scores = torch.tensor(value.scores, dtype=getattr(torch, value.dtype), requires_grad=True)
    return scored(value, scores, torch.tensor(array_of(value.labels)))


# The command line.


def table_of(value: Value) -> dict[str, list[Any]]:
    """Return a table of cells: scores `p0`, …, or `p`; `label`, or one column per reader."""
    scores, labels = value.scores, value.labels
    name = "logit" if value.logits else "p"
    columns: dict[str, list[Any]] = {name: scores}
    if is_wide(scores) and len(scores[0]) == 1:
        columns = {name: [row[0] for row in scores]}
    elif is_wide(scores):
        columns = {f"{name}{i}": [row[i] for row in scores] for i in range(len(scores[0]))}
        if value.options.get("classes"):
            columns = dict(zip(map(str, value.options["classes"]), columns.values(), strict=True))
    columns |= value.rows
    if not is_wide(labels):
        return columns | {"label": labels}
    return columns | {f"reader_{i}": [row[i] for row in labels] for i in range(len(labels[0]))}


def of_command(value: Value, bench: Bench, path: Path, *more: Any) -> dict[str, Any] | str:
    """Return the numbers of `calibrant score`, or its message."""
    out = bench.folder / "out.json"
    options: list[Any] = ["--logits"] if value.logits else []
    columns = ",".join(f"reader_{i}" for i in range(len(value.labels[0]))) if is_wide(value.labels) else None  # fmt: skip
    if value.column == "label_shares":
        options += ["--label-shares", "y" if more else columns]
    elif value.query and not more:
        options += ["--label", columns]
    elif columns is not None and not more:
        options += ["--raters", columns]
    options += [f"--task={value.options['task']}"] if value.query else []
    for name, option in {"weights": "--weight", "n_ratings": "--n-ratings"}.items():
        options += [option, name] if name in value.rows else []
    if "ignore_label" in value.options:
        options.append(f"--ignore-label={value.options['ignore_label']}")
    if value.options.get("normalize"):
        options.append("--normalize")
    found = bench.run("score", path, *more, *options, "--metrics", "ece", "-o", out)
    if found.code:
        return str(found.error)
    numbers: dict[str, Any] = json.loads(out.read_text())
    return numbers | {"ece": numbers["metrics"]["ece"]["value"]}


def cell(value: Any) -> str:
    return "" if missing(value) else str(value)


def of_csv(value: Value, bench: Bench) -> Any:
    columns = table_of(value)
    rows = zip(*columns.values(), strict=True)
    path = bench.folder / "f.csv"
    path.write_text(
        "\n".join([",".join(columns), *(",".join(map(cell, row)) for row in rows)]) + "\n"
    )
    return of_command(value, bench, path)


def plain_table(value: Value) -> dict[str, list[Any]]:
    return {
        name: [None if missing(each) else each for each in column]
        for name, column in table_of(value).items()
    }


def of_parquet(value: Value, bench: Bench) -> Any:
    path = bench.folder / "f.parquet"
    parquet.write_table(pa.table(plain_table(value)), path)
    return of_command(value, bench, path)


def records_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def of_json_file(value: Value, bench: Bench) -> Any:
    path = bench.folder / "f.json"
    path.write_text(json.dumps(records_of(plain_table(value))))
    return of_command(value, bench, path)


def of_json_lines(value: Value, bench: Bench) -> Any:
    path = bench.folder / "f.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records_of(plain_table(value))))
    return of_command(value, bench, path)


def of_npy(value: Value, bench: Bench) -> Any:
    paths = bench.folder / ("logits.npy" if value.logits else "scores.npy"), bench.folder / "y.npy"
    np.save(paths[0], np.array(value.scores, value.dtype))
    np.save(paths[1], array_of(value.labels))
    is_plain = value.column == "labels" and not value.query
    more = ["--raters", "all"] if is_wide(value.labels) and is_plain else []
    if value.options.get("classes"):
        more += ["--classes", ",".join(map(str, value.options["classes"]))]
    return of_command(value, bench, paths[0], paths[1], *more)


# The service.


async def posted(value: Value, bench: Bench, data: bytes, media_type: str) -> dict[str, Any] | str:
    options = value.options | value.query
    params = {"metrics": "ece"} | {key: str(each).lower() for key, each in options.items()}
    response = await bench.client.post(
        "/v1/score", params=params, content=data, headers={"Content-Type": media_type}
    )
    body: dict[str, Any] = response.json()
    if response.status_code == 200:
        return body | {"ece": body["metrics"]["ece"]["value"]}
    assert response.status_code == 422, response.text
    return str(body["errors"][0]["rule"])


def columns_of(value: Value) -> dict[str, Any]:
    name = "logits" if value.logits else "probabilities"
    labels = [None if missing(each) else each for each in value.labels]
    return {name: value.scores, value.column: labels} | value.rows


async def of_json(value: Value, bench: Bench) -> Any:
    stated = {name: each for name, each in value.options.items() if name not in value.query}
    data = json.dumps(columns_of(value) | stated).encode()
    plain = replace(value, options=value.query)
    return await posted(plain, bench, data, "application/json")


async def of_ndjson(value: Value, bench: Bench) -> Any:
    columns = {"weight" if name == "weights" else name: each for name, each in columns_of(value).items()}  # fmt: skip
    lines = records_of(columns)
    rest = {name: each for name, each in value.options.items() if name != "classes"}
    head = [{"classes": value.options["classes"]}] if len(rest) < len(value.options) else []
    data = "".join(json.dumps(each) + "\n" for each in [*head, *lines]).encode()
    return await posted(replace(value, options=rest), bench, data, "application/x-ndjson")


async def of_arrow_body(value: Value, bench: Bench) -> Any:
    table, sink = pa.table(columns_of(value)), io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return await posted(value, bench, sink.getvalue(), "application/vnd.apache.arrow.stream")


async def of_client(value: Value, bench: Bench) -> Any:
    """Post the body that `Model.send` and `Model.log` make of numpy arrays."""
    name = "logits" if value.logits else "probabilities"
    given = {
        name: np.array(value.scores, value.dtype),
        "labels": array_of(value.labels),
    } | value.rows
    data = json.loads(body_of(pieces(given), "b")) | value.options
    return await posted(
        replace(value, options={}), bench, json.dumps(data).encode(), "application/json"
    )


LIBRARY: dict[str, Entrance] = {
    "lists": of_lists, "tuples": of_tuples, "numpy": of_numpy, "pandas objects": of_pandas, "pandas nullable": of_nullable_pandas,
    "pandas pyarrow": of_pyarrow_pandas, "polars": of_polars, "Arrow": of_arrow, "Arrow in chunks": of_arrow_chunks,
    "Arrow lists": of_arrow_lists, "torch": of_tensors,
}  # fmt: skip
COMMAND: dict[str, Entrance] = {
    "CSV": of_csv, "Parquet": of_parquet, ".npy": of_npy, "JSON file": of_json_file, "JSON lines": of_json_lines,
}  # fmt: skip
SERVICE: dict[str, Entrance] = {
    "JSON": of_json, "NDJSON": of_ndjson, "Arrow stream": of_arrow_body, "client": of_client,
}  # fmt: skip

# What an entrance cannot hold, or holds as something else, and why.
NO_FIELD = "an Arrow stream has columns only: names of classes are those of its columns of scores"
EXCEPTIONS: dict[tuple[str, str], str] = {}


def excepted(entrances: dict[str, Entrance], pattern: str, reason: str) -> None:
    """Except the values whose names match, at some entrances."""
    for name in VALUES:
        if re.fullmatch(pattern, name):
            EXCEPTIONS.update({(name, entrance): reason for entrance in entrances})


excepted({"Arrow stream": of_arrow_body}, "names of classes|.*numbers as names", NO_FIELD)
excepted(
    {"client": of_client},
    ".*events.*",
    "Model.multilabel sends events as rows of a binary model: tests/end_to_end/test_multilabel.py",
)
excepted(
    {"client": of_client},
    "shares.*",
    "the client sends to models, which store ratings: label_counts",
)
excepted(
    {".npy": of_npy},
    "weights.*|.*weight|shares of (four|three) ratings",
    "an array has no further columns; .npz has",
)
excepted({"torch": of_tensors}, "names of classes", "tensors hold no texts")


@pytest.fixture
async def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    registry = FakeRegistry()
    settings = Settings(data_dir=tmp_path, log_requests=False)
    app = create_app(settings, Connection(FakeInbox(registry), registry))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield Bench(runner(capsys), client, tmp_path)


CASES = [
    (name, entrance)
    for entrances in (LIBRARY, COMMAND, SERVICE)
    for entrance in entrances
    for name in VALUES
    if (name, entrance) not in EXCEPTIONS
]


@pytest.mark.parametrize(("name", "entrance"), CASES, ids=[" | ".join(case) for case in CASES])
async def test_a_value_means_the_same_at_every_entrance(
    name: str, entrance: str, bench: Bench
) -> None:
    value = VALUES[name]
    found = (LIBRARY | COMMAND | SERVICE)[entrance](value, bench)
    if not isinstance(found, dict | str):
        found = await found
    if isinstance(value.expected, str):
        # The command line has sentences, no rules: it is enough that it refuses, and without a traceback.
        assert isinstance(found, str), found
        assert found == value.expected or (entrance in COMMAND and "Traceback" not in found)
        return
    assert isinstance(found, dict), found
    n, n_ratings, ece = value.expected
    assert (found["n_labelled"], found["n_ratings"]) == (n, n_ratings)
    assert found["ece"] == pytest.approx(ece, abs=1e-9 if value.dtype == "float64" else 1e-7)
    if entrance not in COMMAND:
        for key, stated in value.states.items():
            assert found[key] == pytest.approx(stated)


def test_every_exception_has_a_reason_and_a_value() -> None:
    assert all(name in VALUES and reason for (name, _), reason in EXCEPTIONS.items())
