"""Columns and tables of pyarrow, polars, pandas and DuckDB read as the same numbers in lists and numpy arrays do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrant as cal
from calibrant import Batch, CalibrationInputError
from calibrant.input.arrow import plain, read_column, read_table
from calibrant.input.arrow_column import Lists

ROWS = [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.0, 1.0, 0.0], [0.25, 0.5, 0.25]]
LABELS = [[0, 1], None, [2], [1, 1, 0]]
LONG = "a-name-of-more-than-twelve-bytes"


def batch(**columns: Any) -> Batch:
    return Batch.from_columns({"probabilities": ROWS} | columns).batch


def rejected(**columns: Any) -> list[tuple[str, str]]:
    with pytest.raises(CalibrationInputError) as caught:
        batch(**columns)
    return [(each.pointer, each.rule) for each in caught.value.violations]


def flat(rows: list[list[float]]) -> pa.Array:
    return pa.array([value for row in rows for value in row])


PROBABILITIES: dict[str, Callable[[], Any]] = {
    "pyarrow list": lambda: pa.array(ROWS),
    "pyarrow large list": lambda: pa.array(ROWS, pa.large_list(pa.float64())),
    "pyarrow fixed-size list": lambda: pa.array(ROWS, pa.list_(pa.float64(), 3)),
    "pyarrow chunked": lambda: pa.chunked_array([pa.array(ROWS[:1]), pa.array(ROWS[1:])]),
    "pyarrow sliced": lambda: pa.array([[9.0], *ROWS, [9.0, 9.0]]).slice(1, 4),
    "pyarrow sliced fixed": lambda: pa.array([ROWS[0], *ROWS, ROWS[0]], pa.list_(pa.float64(), 3)).slice(1, 4),
    "pyarrow table": lambda: pa.table({f"p{k}": [row[k] for row in ROWS] for k in range(3)}),
    "pyarrow sliced table": lambda: pa.table({f"p{k}": [9.0, *(row[k] for row in ROWS)] for k in range(3)}).slice(1),
    "pyarrow tensor": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(np.array(ROWS)),
    "polars list": lambda: pl.Series(ROWS),
    "polars array": lambda: pl.Series(ROWS, dtype=pl.Array(pl.Float64, 3)),
    "polars frame": lambda: pl.DataFrame(ROWS, orient="row"),
    "pandas frame": lambda: pd.DataFrame(ROWS),
    "pandas objects": lambda: pd.Series([np.array(row) for row in ROWS]),
    "pandas arrow frame": lambda: pd.DataFrame(ROWS, dtype="double[pyarrow]"),
    "numpy": lambda: np.array(ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBABILITIES)
def test_matrices_hold_the_same_numbers(name: str) -> None:
    found = Batch.from_columns({"probabilities": PROBABILITIES[name](), "labels": LABELS}).batch
    assert found.digest() == batch(labels=LABELS).digest()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_narrow_floats_are_widened(kind: pa.DataType) -> None:
    narrow = np.array(ROWS).astype(kind.to_pandas_dtype())
    rows = pa.FixedSizeListArray.from_arrays(pa.array(narrow.reshape(-1)), 3)
    assert rows.type.value_type == kind
    expected = Batch.from_columns({"probabilities": narrow}).batch
    assert Batch.from_columns({"probabilities": rows}).batch.digest() == expected.digest()


RATINGS: dict[str, Callable[[], Any]] = {
    "pyarrow": lambda: pa.array(LABELS),
    "pyarrow narrow": lambda: pa.array(LABELS, pa.list_(pa.uint8())),
    "pyarrow chunked": lambda: pa.chunked_array([pa.array(LABELS[:2]), pa.array(LABELS[2:])]),
    "pyarrow null with content": lambda: pa.ListArray.from_arrays(
        [0, 2, 4, 5, 8],
        pa.array([0, 1, 2, 2, 2, 1, 1, 0]),
        mask=pa.array([False, True, False, False]),
    ),
    "polars": lambda: pl.Series(LABELS),
}


@pytest.mark.parametrize("name", RATINGS)
def test_ragged_ratings(name: str) -> None:
    column = RATINGS[name]()
    assert isinstance(read_column("labels", column).values, Lists)
    assert batch(labels=column).digest() == batch(labels=LABELS).digest()


SINGLE = [2, None, 0, 1]
SINGLES: dict[str, Callable[[], Any]] = {
    "pyarrow": lambda: pa.array(SINGLE),
    "pyarrow unsigned": lambda: pa.array(SINGLE, pa.uint64()),
    "pyarrow dictionary": lambda: pa.array(SINGLE).dictionary_encode(),
    "polars": lambda: pl.Series(SINGLE),
    "pandas": lambda: pd.Series(SINGLE, dtype="Int64"),
    "pandas arrow": lambda: pd.Series(SINGLE, dtype="int8[pyarrow]"),
}


@pytest.mark.parametrize("name", SINGLES)
def test_single_labels_where_null_is_none_yet(name: str) -> None:
    assert batch(labels=SINGLES[name]()).digest() == batch(labels=SINGLE).digest()


NAMED: dict[str, Callable[[list[str | None]], Any]] = {
    "pyarrow": pa.array,
    "pyarrow large": lambda texts: pa.array(texts, pa.large_string()),
    "pyarrow view": lambda texts: pa.array(texts, pa.string_view()),
    "pyarrow dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "pyarrow sliced": lambda texts: pa.array(["x", *texts]).slice(1),
    "pyarrow sliced view": lambda texts: pa.array([LONG, *texts], pa.string_view()).slice(1),
    "polars": pl.Series,
    "polars categorical": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "pandas": lambda texts: pd.Series(texts, dtype="str"),
    "pandas category": lambda texts: pd.Series(texts, dtype="category"),
}


@pytest.mark.parametrize("name", NAMED)
def test_texts_of_every_kind(name: str) -> None:
    make = NAMED[name]
    texts: dict[str, list[Any]] = {
        "ids": ["a", "b2", LONG, "é".encode().hex()], "units": ["u", LONG, "u", LONG + "2"], "cases": ["c"] * 4
    }  # fmt: skip
    found = batch(
        **{key: make(values) for key, values in texts.items()},
        slices={"site": make(["A", "B", "A", LONG])},
    )
    assert found.digest() == batch(**texts, slices={"site": ["A", "B", "A", LONG]}).digest()
    assert rejected(units=make(["u", None, "v", None])) == [
        ("/units/1", "null"),
        ("/units/3", "null"),
    ]
    assert rejected(slices={"site": make(["A", "B", None, "A"])}) == [("/slices/site/2", "null")]
    names = make(["cat", None, "dog", "cat"])
    named = Batch.from_columns(
        {"probabilities": ROWS, "labels": names}, class_names=["cat", "cow", "dog"]
    ).batch
    assert named.digest() == batch(labels=[0, None, 2, 0]).digest()


def test_lists_of_class_names() -> None:
    column = pa.array([["cat", "dog"], None, ["cow"], ["cow", "cow", "cat"]])
    found = Batch.from_columns(
        {"probabilities": ROWS, "labels": column}, class_names=["cat", "cow", "dog"]
    ).batch
    assert found.digest() == batch(labels=[[0, 2], None, [1], [1, 1, 0]]).digest()


@pytest.mark.parametrize(
    "make", [pa.array, pl.Series, np.array, pd.Series], ids=["arrow", "polars", "numpy", "pandas"]
)
def test_integers_name_by_their_digits(make: Callable[[list[int]], Any]) -> None:
    numbers, texts = [12, -3, 12, 7], ["12", "-3", "12", "7"]
    found = batch(units=make(numbers), slices={"site": make(numbers)})
    assert found.digest() == batch(units=texts, slices={"site": texts}).digest()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_with_a_zone_are_timestamps(unit: str) -> None:
    at = [datetime(2026, 1, 1, 9, 0, second, tzinfo=UTC) for second in range(4)]
    expected = batch(event_times=[each.isoformat() for each in at]).digest()
    column = pa.array(at, pa.timestamp(unit, "Europe/Berlin"))
    assert batch(event_times=column).digest() == expected
    assert batch(event_times=pd.Series(pd.DatetimeIndex(at).as_unit(unit))).digest() == expected
    if unit != "s":
        assert batch(event_times=pl.Series(at, dtype=pl.Datetime(unit, "UTC"))).digest() == expected
    assert batch(event_times=pa.array([each.isoformat() for each in at])).digest() == expected


def test_times_without_a_zone_are_rejected() -> None:
    at = [datetime(2026, 1, 1, 9)] * 4
    for column in (
        pa.array(at),
        pl.Series(at),
        pd.Series(at),
        pd.Series(at, dtype="timestamp[us][pyarrow]"),
    ):
        assert rejected(event_times=column) == [("/event_times", "time_zone")]
    times = pa.array([*at[:3], None], pa.timestamp("us", "UTC"))
    assert rejected(event_times=times) == [("/event_times/3", "null")]
    assert rejected(event_times=pa.array([1, 2, 3, 4])) == [("/event_times", "arrow_type")]
    assert rejected(event_times=pa.array([at[0].date()] * 4)) == [("/event_times", "arrow_type")]


def test_nulls_are_rejected_with_their_row() -> None:
    assert rejected(probabilities=pa.array([ROWS[0], None, ROWS[2], None])) == [
        ("/probabilities/1", "null"), ("/probabilities/3", "null"),
    ]  # fmt: skip
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 3)):
        rows = [ROWS[0], ROWS[1], [0.5, None, 0.5], ROWS[3]]
        chunks = pa.chunked_array([pa.array(rows[:1], kind), pa.array(rows[1:], kind)])
        assert rejected(probabilities=chunks) == [("/probabilities/2", "null")]
    assert rejected(labels=pa.array([[0], [], None, [2]])) == [("/labels/1", "empty_ratings")]
    assert rejected(labels=pa.array([[0], [7, 1], None, [-1]])) == [
        ("/labels/1", "class_range"),
        ("/labels/3", "class_range"),
    ]
    assert rejected(labels=pa.array([2**64 - 1, 0, 0, 0], pa.uint64())) == [
        ("/labels/0", "class_range")
    ]
    assert rejected(weights=pa.array([1.0, None, 2.0, 0.0])) == [("/weights/1", "null")]
    assert rejected(probabilities=None, confidences=pa.array([0.1, 0.2, None])) == [
        ("/confidences/2", "null")
    ]
    assert rejected(labels=pa.array([0.5, 1.0, None, 2.0])) == [("/labels/0", "class_index")]


def test_rows_of_other_lengths_are_rejected_with_their_row() -> None:
    assert rejected(probabilities=pa.array([*ROWS[:3], [0.5, 0.5]])) == [
        ("/probabilities/3", "n_classes")
    ]
    assert rejected(label_counts=pa.array([[1, 0, 0], [0, 1], None, [0, 0, 1]])) == [
        ("/label_counts/1", "n_classes")
    ]


def test_bad_rows_can_be_dropped() -> None:
    columns = {
        "probabilities": pa.array([ROWS[0], None, ROWS[2], ROWS[3]]),
        "labels": pa.array([0, 1, None, 9]),
    }
    checked = Batch.from_columns(columns, partial=True)
    assert checked.accepted_rows.tolist() == [0, 2]
    assert [(each.pointer, each.rule) for each in checked.violations] == [
        ("/probabilities/1", "null"), ("/labels/3", "class_range"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [pa.uint8(), pa.uint64(), pa.int32()])
def test_label_counts(kind: pa.DataType) -> None:
    counts = [[1, 0, 2], None, [0, 0, 1], [3, 0, 0]]
    column = pa.array(counts, pa.list_(kind, 3))
    assert batch(label_counts=column).digest() == batch(label_counts=counts).digest()
    complete = np.array([[1, 0, 2]] * 4, kind.to_pandas_dtype())
    assert batch(label_counts=complete).digest() == batch(label_counts=complete.tolist()).digest()


def test_columns_share_no_memory_with_what_they_were_read_from() -> None:
    """nanoarrow's buffers do not keep their array alive, so a column that shared its memory would change later."""
    numbers = pa.array(np.arange(6))
    times = pa.array(np.arange(6), pa.timestamp("us", "UTC"))
    fixed = pa.FixedSizeListArray.from_arrays(numbers, 2)
    ragged = pa.ListArray.from_arrays(pa.array([0, 1, 6]), numbers)
    for array in (numbers, numbers.slice(2), times, fixed, ragged, pa.chunked_array([ragged])):
        values = read_column("x", array).values
        parts = [values.values, values.offsets] if isinstance(values, Lists) else [values]
        buffers = [numbers.buffers()[1], times.buffers()[1], ragged.buffers()[1]]
        assert not any(
            np.shares_memory(part, np.frombuffer(buffer, "i8"))
            for part in parts
            for buffer in buffers[:2]
        )
        assert not any(np.shares_memory(part, np.frombuffer(buffers[2], "i4")) for part in parts)


def test_chunks_are_joined_in_order() -> None:
    def chunks() -> Iterator[pa.RecordBatch]:
        for start in range(0, 3000, 1000):
            some = np.arange(start, start + 1000)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(some.astype(float)), 2)
            ragged = pa.ListArray.from_arrays(pa.array(np.arange(501)), pa.array(some[:500]))
            yield pa.record_batch({"number": some[:500], "list": lists, "ragged": ragged})

    found = read_table(pa.RecordBatchReader.from_batches(next(chunks()).schema, chunks()))
    first = np.concatenate([np.arange(start, start + 500) for start in (0, 1000, 2000)])
    ragged = found["ragged"].values
    assert isinstance(ragged, Lists)
    np.testing.assert_array_equal(found["number"].values, first)
    np.testing.assert_array_equal(found["list"].values, np.arange(3000.0).reshape(-1, 2))
    np.testing.assert_array_equal(ragged.values, first)
    np.testing.assert_array_equal(ragged.offsets, np.arange(1501))


def test_integer_arrays_of_labels_are_one_or_several_per_row() -> None:
    for kind in (np.int8, np.uint64):
        single, double = (
            np.array([0, 2, 1, 0], kind),
            np.array([[0, 1], [2, 2], [1, 0], [0, 0]], kind),
        )
        for labels in (single, double):
            assert batch(labels=labels).digest() == batch(labels=labels.tolist()).digest()
    assert rejected(labels=np.array([[0, 1], [2, -1], [3, 0], [0, 0]])) == [
        ("/labels/1", "class_range"),
        ("/labels/2", "class_range"),
    ]


def test_labels_of_nulls_alone() -> None:
    assert batch(labels=pa.nulls(4)).digest() == batch(labels=[None] * 4).digest()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, True, True]), pa.array([b"a"] * 4), pa.array([[[0.5]]] * 4), pa.array([{"a": [1]}] * 4),
        pa.array([1, 2, 3, 4], pa.decimal128(5, 2)), pa.array([["a"]] * 4),
    ],
    ids=lambda column: str(column.type),
)  # fmt: skip
def test_other_types_are_rejected_everywhere(column: pa.Array) -> None:
    for name in ("probabilities", "labels", "weights", "units", "event_times", "label_counts"):
        given = {name: column} if name == "probabilities" else {"probabilities": ROWS, name: column}
        with pytest.raises(CalibrationInputError) as caught:
            Batch.from_columns(given)
        assert caught.value.violations[0].pointer.startswith(f"/{name}")


def test_masks_on_any_bit_boundary() -> None:
    rng = np.random.default_rng(3)
    values = [int(v) if v >= 0 else None for v in rng.integers(-1, 3, 40)]
    for start in range(20):
        found = read_column("labels", pa.array(values).slice(start, 19))
        assert found.null.tolist() == [value is None for value in values[start : start + 19]]
        bits = read_column(
            "x", pa.array([None if v is None else v == 1 for v in values]).slice(start, 19)
        ).values
        assert isinstance(bits, np.ndarray)
        assert [bool(b) for b, v in zip(bits, values[start:], strict=False) if v is not None] == [
            v == 1 for v in values[start : start + 19] if v is not None
        ]


def test_tables() -> None:
    table = pa.table({"a": [1.0, 2.0], "b": ["x", None]})
    for each in (
        table,
        pl.from_arrow(table),
        table.to_pandas(),
        table.to_batches()[0],
        table.to_reader(),
    ):
        found = read_table(each)
        assert list(found) == ["a", "b"]
        assert found["b"].null.tolist() == [False, True]
    assert [len(column) for column in read_table(table.slice(0, 0)).values()] == [0, 0]
    assert list(read_table(pa.Table.from_batches([], table.schema))) == ["a", "b"]
    for wrong in (pa.array([1.0]), pa.table([[1], [2]], ["a", "a"])):
        with pytest.raises(CalibrationInputError, match="table"):
            read_table(wrong)


@pytest.mark.parametrize(
    "make", [pa.array, pl.Series, pd.Series], ids=["arrow", "polars", "pandas"]
)
def test_functions_and_panes_take_columns_of_every_library(make: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet(np.ones(3), 60), rng.integers(0, 3, 60)
    more = {"units": rng.integers(0, 9, 60), "weights": rng.choice([0.5, 1.0], 60)}
    made = {name: make(values) for name, values in more.items()}
    rows = make(p.tolist())
    found, expected = cal.ece(rows, make(labels), **made), cal.ece(p, labels, **more)
    assert (found.value, found.interval) == (expected.value, expected.interval)
    pane = cal.Pane.fill(rows, make(labels), **made)
    assert pane.digest() == cal.Pane.fill(p, labels, **more).digest()
    top = cal.brier(make(p[:, 1]), make(labels == 1))
    assert top.value == cal.brier(p[:, 1], labels == 1).value
    assert cal.brier(pl.Series(p[:, 1]), pl.Series([None, *(labels[1:] == 1).tolist()])).n == 59


def test_what_is_no_column_stays_as_it_is() -> None:
    for value in ([1], np.ones(2), "text", 5, None):
        assert plain("x", value) is value
    assert isinstance(plain("x", pd.Series([1, 2])), np.ndarray)


def test_duckdb_relations() -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql(
        "select * from (values (0.25::double, 1), (0.5, null)) t(confidences, labels)"
    )
    found = Batch.from_columns(
        {name: column for name, column in read_table(relation).items()}
    ).batch
    assert (
        found.digest()
        == Batch.from_columns({"confidences": [0.25, 0.5], "labels": [1, None]}).batch.digest()
    )


WITHOUT = """
import sys
sys.modules["nanoarrow"] = None
import numpy as np
from calibrant import Batch
class Column:
    def __arrow_c_stream__(self, requested_schema=None): raise AssertionError
Batch.from_columns({"confidences": np.array([0.5]), "labels": [1]})
try:
    Batch.from_columns({"confidences": Column()})
except ImportError as error:
    assert "pip install 'calibrant[arrow]'" in str(error), error
else:
    raise AssertionError
"""


def test_without_the_extra_an_error_names_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
