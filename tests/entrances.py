"""Entrances of values: the library, the command line, `POST /v1/score`, and a model that stores what it receives.

A value is written once, as lists. Each entrance gets it in the form that its users have, and returns the counts and the metric, or the
rule (of the command line the sentence) by which it is refused.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from calibrant.client import ServiceError
from calibrant.client.rows import body_of, pieces
from tests.end_to_end.deployment import Deployment
from tests.values import Value

Found = dict[str, Any] | str
Entrance = Callable[[Value, "Bench"], Any]
Columns = dict[str, list[Any]]
JSON, NDJSON, ARROW = (
    "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream",
)  # fmt: skip
SINGULAR = {"weights": "weight", "units": "unit", "ids": "id"}
NUMBERS = itertools.count()


@dataclass
class Bench:
    """What the entrances need: the command, a client of the app without a store, a folder, and a service with its store."""

    run: Any
    client: httpx.AsyncClient
    folder: Path
    deployment: Callable[[], Deployment]


def missing(value: Any) -> bool:
    return value is None or value != value


def is_wide(column: list[Any]) -> bool:
    return isinstance(column[0], list)


def without_nan(column: list[Any]) -> list[Any]:
    return [None if missing(each) else each for each in column]


def is_long(value: Value) -> bool:
    return value.column == "annotations"


def long_columns(value: Value) -> Columns:
    items, raters, labels = map(list, zip(*value.labels, strict=True))
    return {"ids": items, "raters": raters, "labels": labels}


def numbers_of(found: dict[str, Any], estimate: dict[str, Any]) -> dict[str, Any]:
    """Return the counts with the one metric that was requested."""
    reasons = {"reason": estimate["reason"]} if estimate.get("reason") else {}
    return found | {"value": estimate.get("value")} | reasons


# The library.


def scored(
    value: Value, of_scores: Callable[[list[Any]], Any], of_labels: Callable[[list[Any]], Any]
) -> Found:
    """Return the numbers of the library for columns of some type."""
    options = {"bins" if key == "bin_edges" else key: each for key, each in value.options.items()}
    try:
        given = {"logits" if value.logits else "probabilities": of_scores(value.scores)}
        given |= {name: of_labels(column) for name, column in value.rows.items()}
        if is_long(value):
            long = {name: of_labels(column) for name, column in long_columns(value).items()}
            given["labels"] = cal.Annotations(**long)
        else:
            given[value.column] = of_labels(value.labels)
        report = cal.evaluate(metrics=value.metric, **given, **options)
    except cal.CalibrationInputError as error:
        return error.violations[0].rule
    return numbers_of(report.about, next(iter(report.values())).to_dict())


def of_lists(value: Value, bench: Bench) -> Found:
    return scored(value, list, list)


def of_tuples(value: Value, bench: Bench) -> Found:
    def frozen(column: list[Any]) -> tuple[Any, ...]:
        return tuple(tuple(each) if isinstance(each, list) else each for each in column)

    return scored(value, frozen, frozen)


def array_of(labels: list[Any]) -> np.ndarray[Any, Any]:
    """Return labels as numpy users have them: floats as soon as one is missing."""
    flat = [each for row in labels for each in (row if isinstance(row, list) else [row])]
    if any(isinstance(each, str) for each in flat) or not any(missing(each) for each in flat):
        return np.array(labels)
    return np.array(labels, float)


def of_numpy(value: Value, bench: Bench) -> Found:
    return scored(value, lambda scores: np.array(scores, value.dtype), array_of)


def frame_of(column: list[Any], dtype: Any = object) -> Any:
    if is_wide(column):
        return pd.DataFrame(column, columns=[f"c{i}" for i in range(len(column[0]))], dtype=dtype)
    return pd.Series(column, dtype=dtype)


def of_pandas(value: Value, bench: Bench) -> Found:
    return scored(value, lambda scores: frame_of(scores, value.dtype), frame_of)


def of_nullable_pandas(value: Value, bench: Bench) -> Found:
    return scored(
        value,
        lambda scores: frame_of(scores, value.dtype),
        lambda labels: frame_of(labels).convert_dtypes(),
    )


def of_pyarrow_pandas(value: Value, bench: Bench) -> Found:
    return scored(
        value,
        lambda scores: frame_of(scores, value.dtype).convert_dtypes(dtype_backend="pyarrow"),
        lambda labels: frame_of(labels).convert_dtypes(dtype_backend="pyarrow"),
    )


def of_polars(value: Value, bench: Bench) -> Found:
    def made(column: list[Any]) -> Any:
        if not is_wide(column):
            return pl.Series(column)
        return pl.DataFrame(column, orient="row", schema=[f"c{i}" for i in range(len(column[0]))])

    return scored(value, made, made)


def table_or_column(column: list[Any]) -> Any:
    if not is_wide(column):
        return pa.array(without_nan(column))
    return pa.table({f"c{i}": [row[i] for row in column] for i in range(len(column[0]))})


def of_arrow(value: Value, bench: Bench) -> Found:
    return scored(value, table_or_column, table_or_column)


def of_arrow_chunks(value: Value, bench: Bench) -> Found:
    def chunked(column: list[Any]) -> Any:
        found = table_or_column(column)
        first, rest = found.slice(0, 1), found.slice(1)
        if isinstance(found, pa.Table):
            return pa.concat_tables([first, rest])
        return pa.chunked_array([first, rest])

    return scored(value, chunked, chunked)


def of_arrow_lists(value: Value, bench: Bench) -> Found:
    return scored(value, pa.array, lambda labels: pa.array(without_nan(labels)))


def of_tensors(value: Value, bench: Bench) -> Found:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, value.dtype)
    return scored(
        value,
        lambda scores: torch.tensor(scores, dtype=dtype, requires_grad=True),
        lambda labels: torch.tensor(array_of(labels)),
    )


# The command line.


def table_of(value: Value) -> Columns:
    """Return a table of cells: scores `p0`, …, or `p`; `label`, or one column per reader."""
    scores, labels = value.scores, value.labels
    name = "logit" if value.logits else "p"
    columns: Columns = {name: scores}
    if is_wide(scores) and len(scores[0]) == 1:
        columns = {name: [row[0] for row in scores]}
    elif is_wide(scores):
        columns = {f"{name}{i}": [row[i] for row in scores] for i in range(len(scores[0]))}
        if value.options.get("classes"):
            columns = dict(zip(map(str, value.options["classes"]), columns.values(), strict=True))
    columns |= value.rows
    if is_long(value):
        return columns
    if not is_wide(labels):
        return columns | {"label": labels}
    return columns | {f"reader_{i}": [row[i] for row in labels] for i in range(len(labels[0]))}


ROW_OPTIONS = {"weights": "--weight", "n_ratings": "--n-ratings", "units": "--unit", "ids": "--id"}


def options_of(value: Value, in_one_file: bool) -> list[Any]:
    """Return the options of `calibrant score` for a value, whose labels are in the file of the scores or in their own."""
    options: list[Any] = ["--logits"] if value.logits else []
    wide = is_wide(value.labels) and not is_long(value)
    columns = ",".join(f"reader_{i}" for i in range(len(value.labels[0]))) if wide else None
    if value.column == "label_shares":
        options += ["--label-shares", columns if in_one_file else "y"]
    elif is_long(value):
        options += ["--long", "--raters", "raters"]
    elif wide and in_one_file:
        options += ["--label" if "task" in value.options else "--raters", columns]
    for name, option in ROW_OPTIONS.items():
        options += [option, name] if name in value.rows else []
    for name, each in value.options.items():
        text = ",".join(map(str, each)) if isinstance(each, list) else str(each)
        if name not in ("classes", "normalize"):
            options.append(f"--{name.replace('_', '-')}={text}")
    return [*options, "--normalize"] if value.options.get("normalize") else options


def of_command(value: Value, bench: Bench, path: Path, *more: Any) -> Found:
    """Return the numbers of `calibrant score`, or its message."""
    out = bench.folder / "out.json"
    options = options_of(value, in_one_file=not more)
    found = bench.run("score", path, *more, *options, "--metrics", value.metric, "-o", out)
    if found.code:
        return str(found.error)
    numbers: dict[str, Any] = json.loads(out.read_text())
    return numbers_of(numbers, next(iter(numbers["metrics"].values())))


def of_files(
    value: Value, bench: Bench, ending: str, write: Callable[[Columns, Path], Any]
) -> Found:
    """Write a table, and the long table of annotations as another file."""
    path = bench.folder / f"f{ending}"
    write(table_of(value), path)
    if not is_long(value):
        return of_command(value, bench, path)
    write(long_columns(value), bench.folder / f"long{ending}")
    return of_command(value, bench, path, bench.folder / f"long{ending}")


def text_of(columns: Columns, separator: str = ",", comma: bool = False) -> str:
    def cell(each: Any) -> str:
        text = "" if missing(each) else str(each)
        text = text.replace(".", ",") if comma and isinstance(each, float) else text
        return f'"{text}"' if separator in text else text

    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return "".join(separator.join(map(cell, row)) + "\n" for row in rows)


def of_csv(value: Value, bench: Bench) -> Found:
    return of_files(value, bench, ".csv", lambda columns, path: path.write_text(text_of(columns)))


def of_compressed(value: Value, bench: Bench) -> Found:
    def write(columns: Columns, path: Path) -> None:
        path.write_bytes(gzip.compress(text_of(columns, "\t").encode()))

    return of_files(value, bench, ".tsv.gz", write)


def of_decimal_commas(value: Value, bench: Bench) -> Found:
    def run(*arguments: Any) -> Any:
        return bench.run(*arguments, "--delimiter", ";", "--decimal", ",")

    def write(columns: Columns, path: Path) -> None:
        path.write_text(text_of(columns, ";", comma=True))

    return of_files(value, Bench(run, bench.client, bench.folder, bench.deployment), ".csv", write)


def of_parquet(value: Value, bench: Bench) -> Found:
    def write(columns: Columns, path: Path) -> None:
        table = {name: without_nan(column) for name, column in columns.items()}
        parquet.write_table(pa.table(table), path)

    return of_files(value, bench, ".parquet", write)


def records_of(columns: Columns) -> list[dict[str, Any]]:
    columns = {name: without_nan(column) for name, column in columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def lines_of(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def of_json_file(value: Value, bench: Bench) -> Found:
    return of_files(
        value, bench, ".json", lambda columns, path: path.write_text(json.dumps(records_of(columns)))
    )  # fmt: skip


def of_json_lines(value: Value, bench: Bench) -> Found:
    return of_files(
        value, bench, ".jsonl", lambda columns, path: path.write_text(lines_of(records_of(columns)))
    )  # fmt: skip


def of_npy(value: Value, bench: Bench) -> Found:
    paths = bench.folder / ("logits.npy" if value.logits else "scores.npy"), bench.folder / "y.npy"
    np.save(paths[0], np.array(value.scores, value.dtype))
    np.save(paths[1], array_of(value.labels))
    is_plain = value.column == "labels" and "task" not in value.options
    readers = is_wide(value.labels) and len(value.labels[0]) > 1 and is_plain
    more = ["--raters", "all"] if readers else []
    if value.options.get("classes"):
        more += ["--classes", ",".join(map(str, value.options["classes"]))]
    return of_command(value, bench, paths[0], paths[1], *more)


# The service.


def text_of_option(each: Any) -> str:
    return ",".join(map(str, each)) if isinstance(each, list) else str(each).lower()


async def posted(
    value: Value, bench: Bench, data: bytes, media_type: str, options: dict[str, Any]
) -> Found:
    """Score a body, and options in the query."""
    params = {"metrics": value.metric}
    params |= {key: text_of_option(each) for key, each in (options | value.query).items()}
    response = await bench.client.post(
        "/v1/score", params=params, content=data, headers={"Content-Type": media_type}
    )
    body: dict[str, Any] = response.json()
    if response.status_code == 200:
        return numbers_of(body, next(iter(body["metrics"].values())))
    return rule_of(response)


def rule_of(response: httpx.Response) -> str:
    """Return the rule by which a body is refused."""
    assert response.status_code in (400, 422), response.text
    return str(response.json()["errors"][0]["rule"])


def columns_of(value: Value) -> dict[str, Any]:
    name = "logits" if value.logits else "probabilities"
    if is_long(value):
        return {name: value.scores, "annotations": long_columns(value)} | value.rows
    return {name: value.scores, value.column: without_nan(value.labels)} | value.rows


def ndjson_of(value: Value) -> tuple[bytes, dict[str, Any]]:
    """Return lines, of which the first has the classes, and what else the query states."""
    lines = records_of({SINGULAR.get(name, name): each for name, each in columns_of(value).items()})
    rest = {name: each for name, each in value.stated.items() if name != "classes"}
    head = [{"classes": value.options["classes"]}] if len(rest) < len(value.stated) else []
    return lines_of([*head, *lines]).encode(), rest


def arrow_of(value: Value) -> bytes:
    table, sink = pa.table(columns_of(value)), io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


async def of_json(value: Value, bench: Bench) -> Found:
    data = json.dumps(columns_of(value) | value.stated).encode()
    return await posted(value, bench, data, JSON, {})


async def of_ndjson(value: Value, bench: Bench) -> Found:
    data, rest = ndjson_of(value)
    return await posted(value, bench, data, NDJSON, rest)


async def of_arrow_body(value: Value, bench: Bench) -> Found:
    return await posted(value, bench, arrow_of(value), ARROW, value.stated)


async def of_csv_body(value: Value, bench: Bench) -> Found:
    """Post a table; one column of scores needs its role, others are known by their names."""
    columns = {SINGULAR.get(name, name): each for name, each in table_of(value).items()}
    roles = [f"{name}:{role}" for name, role in {"p": "confidence", "logit": "logit"}.items() if name in columns]  # fmt: skip
    named = {"columns": roles[0]} if roles else {}
    return await posted(value, bench, text_of(columns).encode(), "text/csv", value.stated | named)


async def of_npy_body(value: Value, bench: Bench) -> Found:
    file, name = io.BytesIO(), "logits" if value.logits else "probabilities"
    np.save(file, np.array(value.scores, value.dtype))
    np.save(file, array_of(value.labels))
    for column in value.rows.values():
        np.save(file, np.array(column))
    named = {"columns": ",".join([name, value.column, *value.rows])}
    return await posted(value, bench, file.getvalue(), "application/x-npy", value.stated | named)


# A model, which stores rows and sums.


def identified(value: Value) -> Value:
    """Return the value with ids, which rows without labels need, because they are labelled later."""
    if "ids" in value.rows or not any(unlabelled(each, value) for each in value.labels):
        return value
    return replace(value, rows=value.rows | {"ids": [f"row {i}" for i in range(len(value.scores))]})


def unlabelled(label: Any, value: Value) -> bool:
    ratings = label if isinstance(label, list) else [label]
    return all(missing(each) or each == value.options.get("ignore_label") for each in ratings)


def new_model(value: Value, bench: Bench) -> str:
    path = f"/v1/models/v{next(NUMBERS)}"
    if classes := value.options.get("classes"):
        settings = {"classes": [str(each) for each in classes]}
        assert bench.deployment().client.put(path, json=settings).status_code == 201
    return path


def stored(
    value: Value, bench: Bench, data: bytes, media_type: str, options: dict[str, Any]
) -> Found:
    """Post a batch to a new model, and read the metric of what is stored."""
    path = new_model(value, bench)
    receipt = sent(bench, f"{path}/predictions", data, media_type, options)
    return together(receipt, read(value, bench, path)) if isinstance(receipt, dict) else receipt


def together(receipt: dict[str, Any], found: Found) -> Found:
    """Return the numbers of a read with what the receipt of the batch states."""
    return receipt | found if isinstance(found, dict) else found


def sent(bench: Bench, path: str, data: bytes, media_type: str, options: dict[str, Any]) -> Found:
    params = {key: text_of_option(each) for key, each in options.items() if key != "classes"}
    headers = {"Content-Type": media_type, "Prefer": "wait=60"}
    response = bench.deployment().client.post(path, params=params, content=data, headers=headers)
    found: dict[str, Any] = response.json()
    if response.status_code == 200:
        assert found["status"] == "merged", found
        return found
    return rule_of(response)


def read(value: Value, bench: Bench, path: str) -> Any:
    params = {"metrics": value.metric, "include": "details"}
    params |= {key: text_of_option(each) for key, each in value.query.items()}
    response = bench.deployment().client.get(f"{path}/metrics", params=params)
    if response.status_code != 200:
        return rule_of(response)
    body: dict[str, Any] = response.json()
    return numbers_of(body, next(iter(body["metrics"].values())))


def of_model(value: Value, bench: Bench) -> Found:
    data = columns_of(identified(value)) | value.stated
    data.pop("classes", None)
    return stored(value, bench, json.dumps(data).encode(), JSON, {})


def of_model_lines(value: Value, bench: Bench) -> Found:
    options = {name: each for name, each in value.options.items() if name != "classes"}
    data, rest = ndjson_of(replace(identified(value), options=options))
    return stored(value, bench, data, NDJSON, rest)


def of_model_arrow(value: Value, bench: Bench) -> Found:
    return stored(value, bench, arrow_of(identified(value)), ARROW, value.stated)


def of_model_client(value: Value, bench: Bench) -> Found:
    """Send with `Model.send`, whose columns are numpy arrays."""
    name = "logits" if value.logits else "probabilities"
    columns = {key: array_of(each) for key, each in identified(value).rows.items()}
    columns |= {name: np.array(value.scores, value.dtype), value.column: array_of(value.labels)}
    options = {key: each for key, each in value.stated.items() if key != "classes"}
    path = new_model(value, bench)
    try:
        with cal.Client(str(bench.deployment().client.base_url)) as client:
            receipt = client.model(path.rpartition("/")[2]).send(**columns, **options, wait=60)
    except (cal.CalibrationInputError, ServiceError) as error:
        return error.violations[0].rule
    return together(receipt.about, read(value, bench, path))


def of_later_labels(value: Value, bench: Bench) -> Found:
    """Post predictions, and then their labels by id; a row without a label has none to post."""
    ids = value.rows.get("ids") or [f"row {i}" for i in range(len(value.scores))]
    columns = columns_of(value) | {"ids": ids}
    columns.pop(value.column)
    options = {name: each for name, each in value.stated.items() if name != "classes"}
    path = new_model(value, bench)
    first = json.dumps(columns | options).encode()
    receipt = sent(bench, f"{path}/predictions", first, JSON, {})
    options.pop("normalize", None)
    later = long_columns(value) if is_long(value) else labels_by_id(value, ids)
    labelled: Found = {}
    if later["ids"] and isinstance(receipt, dict):
        labelled = sent(bench, f"{path}/labels", json.dumps(later | options).encode(), JSON, {})
    if isinstance(receipt, str) or isinstance(labelled, str):
        return receipt if isinstance(receipt, str) else labelled
    return together(receipt | labelled, read(value, bench, path))


def labels_by_id(value: Value, ids: list[Any]) -> Columns:
    rows = [(i, label) for i, label in zip(ids, value.labels, strict=True) if not unlabelled(label, value)]  # fmt: skip
    return {"ids": [i for i, _ in rows], "labels": [label for _, label in rows]}


async def of_client(value: Value, bench: Bench) -> Found:
    """Score the body that `Model.log` makes of numpy arrays."""
    name = "logits" if value.logits else "probabilities"
    given = {name: np.array(value.scores, value.dtype), value.column: array_of(value.labels)}
    data = json.loads(body_of(pieces(given | value.rows), "b")) | value.stated
    return await posted(value, bench, json.dumps(data).encode(), JSON, {})


LIBRARY: dict[str, Entrance] = {
    "lists": of_lists, "tuples": of_tuples, "numpy": of_numpy, "pandas objects": of_pandas, "pandas nullable": of_nullable_pandas,
    "pandas pyarrow": of_pyarrow_pandas, "polars": of_polars, "Arrow": of_arrow, "Arrow in chunks": of_arrow_chunks,
    "Arrow lists": of_arrow_lists, "torch": of_tensors,
}  # fmt: skip
COMMAND: dict[str, Entrance] = {
    "CSV": of_csv, "TSV in gzip": of_compressed, "decimal commas": of_decimal_commas, "Parquet": of_parquet, ".npy": of_npy,
    "JSON file": of_json_file, "JSON lines": of_json_lines,
}  # fmt: skip
SERVICE: dict[str, Entrance] = {
    "JSON": of_json, "NDJSON": of_ndjson, "Arrow stream": of_arrow_body, "CSV body": of_csv_body, "npy body": of_npy_body,
    "client": of_client,
}  # fmt: skip
MODEL: dict[str, Entrance] = {
    "model, JSON": of_model, "model, NDJSON": of_model_lines, "model, Arrow": of_model_arrow, "model, client": of_model_client,
    "model, labels by id": of_later_labels,
}  # fmt: skip
