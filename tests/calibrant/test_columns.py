"""Every violation of a batch: where it is, which rule it breaks; and what is accepted in its many forms."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import Batch, CalibrationInputError
from calibrant.input.input_columns import MAX_WEIGHT, MIN_WEIGHT
from calibrant.input.score_columns import MAX_LOGIT
from calibrant.input.timestamps import counted_from_1970, timestamp_us

GOOD: dict[str, Any] = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]}
BINARY: dict[str, Any] = {"confidences": [0.1, 0.5, 1.0]}
NAN, INF = math.nan, math.inf


def read(columns: dict[str, Any], **options: Any) -> Batch:
    return Batch.from_columns(columns, **options).batch


def violations(columns: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(CalibrationInputError) as rejected:
        Batch.from_columns(columns, **options)
    assert all(o.detail for o in rejected.value.violations)
    return [(o.pointer, o.rule) for o in rejected.value.violations]


def third(column: str, value: Any) -> dict[str, Any]:
    """Good columns with one more whose last row is `value`."""
    first = {"labels": [0, 1], "label_counts": [[1, 0, 0], [0, 2, 0]], "weights": [1, 1.5]}
    times = ["2026-11-20T09:00:00Z"] * 2
    return GOOD | {
        column: [*first.get(column, times if column == "event_times" else ["a", "b"]), value]
    }


def scores(value: Any, column: str = "probabilities") -> dict[str, Any]:
    return {column: [*GOOD["probabilities"][:2], value]}


ROW_VIOLATIONS: list[tuple[dict[str, Any], str, str]] = [
    (scores([0.5, 0.5, 0.5]), "/probabilities/2", "row_sum"),
    (scores([0.5, 0.5, 0.0011]), "/probabilities/2", "row_sum"),
    (scores([0.0, 0.0, 0.0]), "/probabilities/2", "row_sum"),
    (scores([1.1, -0.1, 0.0]), "/probabilities/2", "range"),
    (scores([-1.1e-5, 1.0, 0.0]), "/probabilities/2", "range"),
    (scores([1.000011, 0.0, 0.0]), "/probabilities/2", "range"),
    (scores([NAN, 0.5, 0.5]), "/probabilities/2", "finite"),
    (scores([INF, 0.5, 0.5]), "/probabilities/2", "finite"),
    (scores([10**400, 0, 0]), "/probabilities/2", "finite"),
    (scores([10**30, 0, 0]), "/probabilities/2", "range"),
    (scores([True, False, False]), "/probabilities/2", "number"),
    (scores([True, 0.0, 0.0]), "/probabilities/2", "number"),
    (scores(["1", "0", "0"]), "/probabilities/2", "number"),
    (scores([None, 0.5, 0.5]), "/probabilities/2", "number"),
    (scores([[1.0], [0.0], [0.0]]), "/probabilities/2", "number"),
    (scores([1j, 0.0, 0.0]), "/probabilities/2", "number"),
    (scores([0.5, 0.5]), "/probabilities/2", "n_classes"),
    (scores([]), "/probabilities/2", "n_classes"),
    (scores(1.0), "/probabilities/2", "matrix"),
    (scores(None), "/probabilities/2", "matrix"),
    (scores("abc"), "/probabilities/2", "matrix"),
    (scores([NAN, 0.0, 0.0], "logits"), "/logits/2", "finite"),
    (scores([-INF, 0.0, 0.0], "logits"), "/logits/2", "finite"),
    (scores([1e39, 0.0, 0.0], "logits"), "/logits/2", "range"),
    (scores([True, 2.0, 3.0], "logits"), "/logits/2", "number"),
    ({"confidences": [0.1, 0.5, 1.000011]}, "/confidences/2", "range"),
    ({"confidences": [0.1, 0.5, -0.5]}, "/confidences/2", "range"),
    ({"confidences": [0.1, 0.5, NAN]}, "/confidences/2", "finite"),
    ({"confidences": [0.1, 0.5, True]}, "/confidences/2", "number"),
    ({"confidences": [0.1, 0.5, "0.5"]}, "/confidences/2", "number"),
    ({"confidences": [0.1, 0.5, [0.5]]}, "/confidences/2", "number"),
    (third("labels", 3), "/labels/2", "class_range"),
    (third("labels", -1), "/labels/2", "class_range"),
    (third("labels", 2**70), "/labels/2", "class_range"),
    (third("labels", 10**5000), "/labels/2", "class_range"),
    (third("labels", [0, 3]), "/labels/2", "class_range"),
    (third("labels", [0, 0.5]), "/labels/2", "class_index"),
    (third("labels", []), "/labels/2", "empty_ratings"),
    (third("labels", 1.5), "/labels/2", "class_index"),
    (third("labels", INF), "/labels/2", "class_index"),
    (third("labels", 3.0), "/labels/2", "class_range"),
    (third("labels", True), "/labels/2", "class_index"),
    (third("labels", [True]), "/labels/2", "class_index"),
    (third("labels", "1"), "/labels/2", "class_index"),
    (third("labels", [[1]]), "/labels/2", "class_index"),
    (third("labels", {"a": 1}), "/labels/2", "class_index"),
    (third("label_counts", [1, 0]), "/label_counts/2", "n_classes"),
    (third("label_counts", [1, 0, 0, 0]), "/label_counts/2", "n_classes"),
    (third("label_counts", 1), "/label_counts/2", "n_classes"),
    (third("label_counts", [1, 0, -1]), "/label_counts/2", "negative_count"),
    (third("label_counts", [1, 0, -(2**70)]), "/label_counts/2", "negative_count"),
    (third("label_counts", [1, 0, 1_000_001]), "/label_counts/2", "count_limit"),
    (third("label_counts", [1, 0, 2**63]), "/label_counts/2", "count_limit"),
    (third("label_counts", [1, 0, 2**70]), "/label_counts/2", "count_limit"),
    (third("label_counts", [1.5, 0, 0]), "/label_counts/2", "integer"),
    (third("label_counts", [INF, 0, 0]), "/label_counts/2", "integer"),
    (third("label_counts", ["1", 0, 0]), "/label_counts/2", "integer"),
    (third("weights", -1), "/weights/2", "weight"),
    (third("weights", NAN), "/weights/2", "weight"),
    (third("weights", INF), "/weights/2", "weight"),
    (third("weights", 10**400), "/weights/2", "weight"),
    (third("weights", MAX_WEIGHT * 2), "/weights/2", "weight"),
    (third("weights", MIN_WEIGHT / 2), "/weights/2", "weight"),
    (third("weights", 5e-324), "/weights/2", "weight"),
    (third("weights", True), "/weights/2", "number"),
    (third("weights", None), "/weights/2", "number"),
    (third("ids", "b"), "/ids/2", "repeated_id"),
    *[(third(column, bad), f"/{column}/2", "name") for column in ("ids", "units", "cases") for bad in (
        "", "a\n", "a\nc", "\n", "x" * 257, "é" * 257, 5.0, True, None, ["a"], "a\0", "a\x7f", "\ud800")],
    *[(third("event_times", bad), "/event_times/2", "rfc3339") for bad in (
        "2026-11-20T09:00:00", "2026-11-20", "2026-11-20T09:00Z", "20261120T090000Z", "2026-W47-5T09:00:00Z",
        "2026-11-20T09:00:00+00", "2026-11-20T09:00:00+00:00:30", "2026-02-30T09:00:00Z",
        "2026-11-20T24:00:01Z", "2026-11-20T09:00:00,5Z", "2026-11-20_09:00:00Z", "2026-11-20T09:00:00+25:00",
        "٢٠٢٦-11-20T09:00:00Z", "2026-11-20T09:00:00Z\n",
        "", 5, None, 1.5, ["x"],
        "2026-11-20T09:00:00." + "1" * 100 + "Z")],
    *[(third("event_times", bad), "/event_times/2", "range") for bad in (
        "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", "1970-01-01T00:59:59+01:00")],
    (GOOD | {"slices": {"site": ["A", "B", "a\tb"]}}, "/slices/site/2", "name"),
    (GOOD | {"slices": {"site": ["A", "B", None]}}, "/slices/site/2", "name"),
    (GOOD | {"slices": {"site": ["A", "B", "a\nb"]}}, "/slices/site/2", "name"),
]  # fmt: skip

WHOLE_VIOLATIONS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {}, "", "one_score_column"),
    ({"probabilities": None}, {}, "", "one_score_column"),
    (GOOD | {"logits": GOOD["probabilities"]}, {}, "/logits", "one_score_column"),
    (GOOD | {"prob": []}, {}, "/prob", "unknown_field"),
    ({"probabilities": []}, {}, "/probabilities", "empty"),
    ({"confidences": []}, {}, "/confidences", "empty"),
    ({"probabilities": [[], []]}, {}, "/probabilities", "n_classes"),
    ({"probabilities": [[1.0], [1.0]]}, {"n_classes": 3}, "/probabilities", "n_classes"),
    ({"probabilities": [[1.0], [1.0]]}, {"task": "multiclass"}, "/probabilities", "task"),
    ({"probabilities": "abc"}, {}, "/probabilities", "matrix"),
    ({"probabilities": 0.5}, {}, "/probabilities", "matrix"),
    ({"probabilities": {"a": [0.5]}}, {}, "/probabilities", "matrix"),
    ({"probabilities": np.array([0.5, 0.5])}, {"task": "multiclass"}, "/probabilities", "task"),
    ({"probabilities": np.array(0.5)}, {}, "/probabilities", "matrix"),
    ({"probabilities": np.zeros((2, 2, 2))}, {}, "/probabilities", "matrix"),
    ({"probabilities": np.array([["1", "0"]])}, {}, "/probabilities", "matrix"),
    ({"probabilities": np.array([[True, False]])}, {}, "/probabilities", "matrix"),
    ({"probabilities": np.array([[1j, 0]])}, {}, "/probabilities", "matrix"),
    ({"confidences": np.array([[0.5, 0.5]])}, {}, "/confidences", "vector"),
    ({"confidences": np.array([True])}, {}, "/confidences", "vector"),
    ({"confidences": 0.5}, {}, "/confidences", "vector"),
    (
        {"probabilities": np.ma.masked_array([[0.5, 0.5]], [[True, False]])},
        {},
        "/probabilities",
        "list",
    ),
    (GOOD, {"n_classes": 4}, "/probabilities", "n_classes"),
    (GOOD, {"task": "binary"}, "/probabilities", "n_classes"),
    (BINARY, {"task": "multiclass"}, "/confidences", "task"),
    (BINARY, {"n_classes": 3}, "/confidences", "n_classes"),
    (GOOD | {"labels": [0, 1]}, {}, "/labels", "length"),
    (GOOD | {"labels": 1}, {}, "/labels", "list"),
    (GOOD | {"labels": "012"}, {}, "/labels", "list"),
    (GOOD | {"labels": np.array(1)}, {}, "/labels", "list"),
    (
        GOOD | {"labels": [0, 1, 2], "label_counts": [[1, 0, 0]] * 3},
        {},
        "/label_counts",
        "one_label_column",
    ),
    (GOOD | {"weights": [1.0]}, {}, "/weights", "length"),
    (GOOD | {"ids": ["a"] * 4}, {}, "/ids", "length"),
    (GOOD | {"event_times": []}, {}, "/event_times", "length"),
    (GOOD | {"slices": ["A"]}, {}, "/slices", "slices"),
    (GOOD | {"slices": {"site": ["A"]}}, {}, "/slices/site", "length"),
    (GOOD | {"slices": {"site": "AAA"}}, {}, "/slices/site", "length"),
    (GOOD | {"slices": {"a\nb": ["A"] * 3}}, {}, "/slices", "name"),
    (GOOD | {"slices": {5: ["A"] * 3}}, {}, "/slices", "name"),
    ({"probabilities": [[0.0] * 100_000, *["x"] * 100_000]}, {}, "/probabilities", "n_classes"),
]


@pytest.mark.parametrize(("columns", "pointer", "rule"), ROW_VIOLATIONS)
def test_violations_of_a_row(columns: dict[str, Any], pointer: str, rule: str) -> None:
    assert violations(columns) == [(pointer, rule)]
    checked = Batch.from_columns(columns, partial=True)
    assert [(o.pointer, o.rule) for o in checked.violations] == [(pointer, rule)]
    assert checked.accepted_rows.tolist() == [0, 1]
    good = {name: column[:2] for name, column in columns.items() if name != "slices"}
    if "slices" in columns:
        good["slices"] = {key: values[:2] for key, values in columns["slices"].items()}
    assert checked.batch.digest() == read(good).digest()


@pytest.mark.parametrize(("columns", "options", "pointer", "rule"), WHOLE_VIOLATIONS)
@pytest.mark.parametrize("partial", [False, True])
def test_violations_of_the_whole(
    columns: dict[str, Any], options: dict[str, Any], pointer: str, rule: str, partial: bool
) -> None:
    assert violations(columns, partial=partial, **options) == [(pointer, rule)]


def test_violations_come_in_the_order_of_rows_one_a_row() -> None:
    columns = {
        "probabilities": [[0.5, 0.5], [0.5, 0.5], [0.9, 0.9], [0.5, 0.5]],
        "labels": [0, 5, 5, 1],
        "ids": ["a\nb", "b", "c", "d"],
    }
    assert violations(columns) == [
        ("/ids/0", "name"),
        ("/labels/1", "class_range"),
        ("/probabilities/2", "row_sum"),
    ]
    assert Batch.from_columns(columns, partial=True).accepted_rows.tolist() == [3]


def test_a_hundred_violations_are_enough() -> None:
    found = violations({"confidences": [2.0] * 1000})
    assert found == [(f"/confidences/{i}", "range") for i in range(100)]


def test_no_good_row_leaves_an_empty_batch() -> None:
    checked = Batch.from_columns({"confidences": [2.0], "labels": [1], "ids": ["a"]}, partial=True)
    assert checked.batch.n == 0
    assert Batch.unpack(checked.batch.pack()).digest() == checked.batch.digest()


# What is accepted.


def test_rows_are_used_as_sent_or_divided_by_their_sum() -> None:
    rows = [[0.5 + 5e-10, 0.5], [0.5 + 5e-4, 0.5], [0.3, 0.7 - 9e-4], [1 / 3, 2 / 3]]
    batch = read({"probabilities": rows})
    assert batch.scores[0].tolist() == rows[0]
    assert batch.scores[1].tolist() == [rows[1][0] / sum(rows[1]), rows[1][1] / sum(rows[1])]
    assert np.abs(batch.scores[1:].sum(axis=1) - 1).max() < 1e-15
    assert batch.scores[3].tolist() == rows[3]


def test_logits_are_kept_and_their_softmax_never_underflows() -> None:
    batch = read(
        {"logits": [[1000.0, 0.0, -1000.0], [-1e9, 3.0, 3.0], [-MAX_LOGIT, MAX_LOGIT, 0.0]]}
    )
    assert batch.is_logits
    assert batch.scores[0].tolist() == [1000.0, 0.0, -1000.0]
    assert batch.probabilities.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0]]


def test_confidences_are_those_of_class_1() -> None:
    batch = read(BINARY)
    assert (batch.task, batch.n_classes) == ("binary", 2)
    assert batch.scores.tolist() == [[0.9, 0.1], [0.5, 0.5], [0.0, 1.0]]


SAME_SCORES = [
    np.array(GOOD["probabilities"]),
    np.array(GOOD["probabilities"], ">f8"),
    np.asfortranarray(GOOD["probabilities"]),
    np.array(GOOD["probabilities"], np.longdouble),
    [np.array(row) for row in GOOD["probabilities"]],
    [list(np.array(row)) for row in GOOD["probabilities"]],
]


@pytest.mark.parametrize("values", SAME_SCORES)
def test_arrays_in_place_of_lists(values: Any) -> None:
    assert read({"probabilities": values}).digest() == read(GOOD).digest()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_floats_are_widened(dtype: Any) -> None:
    values = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]], dtype)
    assert (
        read({"probabilities": values}).digest()
        == read({"probabilities": values.tolist()}).digest()
    )
    assert read({"logits": values}).scores.dtype == np.float64


def test_whole_numbers_are_numbers() -> None:
    expected = read({"probabilities": [[1.0, 0.0], [0.0, 1.0]]}).digest()
    assert read({"probabilities": [[1, 0], [0, 1]]}).digest() == expected
    assert read({"probabilities": np.array([[1, 0], [0, 1]], np.uint8)}).digest() == expected
    assert (
        read({"probabilities": [list(np.array([1, 0])), [np.float32(0), np.float64(1)]]}).digest()
        == expected
    )


def test_the_callers_arrays_are_left_alone() -> None:
    values = np.array([[0.5, 0.5004], [0.3, 0.7]])
    weights, times = np.ones(2), np.array([5, 6]).view("M8[us]")
    before = values.copy()
    batch = read({"probabilities": values, "weights": weights, "event_times": times})
    values[:], weights[:], times[:] = 0.0, 0.0, np.datetime64(0, "us")
    assert batch.weights is not None
    assert batch.event_times is not None
    assert batch.weights.tolist() == [1.0, 1.0]
    assert batch.event_times.tolist() == [5, 6]
    assert (
        batch.digest()
        == read(
            {
                "probabilities": before,
                "weights": [1, 1],
                "event_times": np.array([5, 6]).view("M8[us]"),
            }
        ).digest()
    )


LABELS = [[0], [1, 1, 2], None]
COUNTS = [[1, 0, 0], [0, 2, 1], [0, 0, 0]]
SAME_LABELS: list[dict[str, Any]] = [
    {"labels": [0, [1, 1, 2], None]},
    {"labels": [[0], [2, 1, 1], None]},
    {"labels": ["ant", ["bee", 1, "cow"], None], "class_names": ["ant", "bee", "cow"]},
    {"labels": [np.int8(0), np.array([1, 2, 1]), None]},
    {"labels": np.array([0, [1, 1, 2], None], dtype=object)},
    {"label_counts": COUNTS},
    {"label_counts": [*COUNTS[:2], None]},
    {"label_counts": np.array(COUNTS)},
    {"label_counts": np.array(COUNTS, np.uint64)},
    {"label_counts": [np.array(row) for row in COUNTS]},
]


@pytest.mark.parametrize("columns", SAME_LABELS)
def test_labels_in_every_form(columns: dict[str, Any]) -> None:
    columns = dict(columns)
    names = columns.pop("class_names", None)
    batch = read(GOOD | columns, class_names=names)
    assert batch.label_counts.tolist() == COUNTS
    assert batch.digest() == read(GOOD | {"labels": LABELS}).digest()


@pytest.mark.parametrize("labels", [np.array([0, 1, 2]), np.array([0, 1, 2], np.uint8), [0, 1, 2], [[0], [1], [2]],
    np.array([[0], [1], [2]]), np.array([0, 1, 2], object)])  # fmt: skip
def test_one_label_a_row(labels: Any) -> None:
    assert read(GOOD | {"labels": labels}).label_counts.tolist() == np.eye(3).astype(int).tolist()


@pytest.mark.parametrize(
    "labels", [np.array([0.5, 1.5, 2.5]), np.array([True, False, True]), np.array(["0", "1", "2"])]
)
def test_label_arrays_of_other_types_are_rejected(labels: Any) -> None:
    assert violations(GOOD | {"labels": labels}) == [
        (f"/labels/{i}", "class_index") for i in range(3)
    ]


@pytest.mark.parametrize("counts", [np.full((3, 3), 0.5), np.full((3, 3), "1")])
def test_count_arrays_of_other_types_are_rejected(counts: Any) -> None:
    assert violations(GOOD | {"label_counts": counts}) == [
        (f"/label_counts/{i}", "integer") for i in range(3)
    ]
    assert violations(GOOD | {"label_counts": np.ones((3, 4), int)})[0] == (
        "/label_counts/0",
        "n_classes",
    )
    assert violations(GOOD | {"label_counts": np.ones(3, int)})[0] == (
        "/label_counts",
        "n_classes",
    )


def test_counts_beyond_64_bits_signed_are_too_many_and_not_negative() -> None:
    counts = np.full((3, 3), 2**64 - 1, np.uint64)
    assert violations(GOOD | {"label_counts": counts})[0] == ("/label_counts/0", "count_limit")


def test_unknown_names_are_named() -> None:
    with pytest.raises(CalibrationInputError, match="Received class 'wasp'"):
        read(GOOD | {"labels": ["ant", "wasp", "ant"]}, class_names=["ant", "bee", "cow"])


def test_names_as_arrays_and_at_their_limits() -> None:
    ids = ["a", "Ä" * 256, "Müller, A / 3 (links)"]
    for values in (ids, np.array(ids), np.array(ids, object)):
        batch = read(GOOD | {"ids": values, "units": values, "slices": {"site": values}})
        assert batch.ids is not None
        assert batch.ids.tolist() == ids
        assert Batch.unpack(batch.pack()).digest() == batch.digest() == read(
            GOOD | {"ids": ids, "units": ids, "slices": {"site": ids}}).digest()  # fmt: skip


# Event times.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1_000_000),
        ("1970-01-01 00:00:00.5+00:00", 500_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:59:59.999999Z", None),
        ("1970-01-01T00:00:00.1234567Z", 123_456),
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("2026-11-20T09:00:00-05:30", 1_795_185_000_000_000),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
    ],
)
def test_timestamps(text: str, expected: int | None) -> None:
    assert timestamp_us(text) == expected


@given(st.datetimes(), st.sampled_from(["Z", "+00:00", "z", "-00:00"]))
def test_timestamps_of_any_time(at: datetime, offset: str) -> None:
    expected = (at.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
    assert timestamp_us(at.isoformat(timespec="microseconds") + offset) == (
        expected if expected >= 0 else None
    )


def test_times_as_arrays() -> None:
    texts = ["2026-11-20T09:00:00Z", "2026-11-20T09:00:01Z", "1970-01-01T00:00:01Z"]
    expected = read(GOOD | {"event_times": texts})
    assert expected.event_times is not None
    naive = [text[:-1] for text in texts]
    for unit in ("s", "ms", "us", "ns"):
        same = read(GOOD | {"event_times": np.array(naive, f"datetime64[{unit}]")})
        assert same.digest() == expected.digest()
    assert Batch.unpack(expected.pack()).digest() == expected.digest()
    offset = [text[:-1].replace("T09", "T10") + "+0100" for text in texts[:2]] + [texts[2]]
    assert read(GOOD | {"event_times": offset}).digest() == expected.digest()


@pytest.mark.parametrize(
    ("numbers", "unit"),
    [
        ([1_795_165_200, 1_795_165_200.5, 1], "s"),
        ([1_795_165_200_000, 1_795_165_200_500, 1000], "ms"),
        (np.array([1_795_165_200_000, 1_795_165_200_500, 1000]), "ms"),
        (np.array([1_795_165_200, 1_795_165_200.5, 1]), "s"),
    ],
)
def test_numbers_are_times_only_with_their_unit(numbers: Any, unit: str) -> None:
    texts = ["2026-11-20T09:00:00Z", "2026-11-20T09:00:00.5Z", "1970-01-01T00:00:01Z"]
    counted = counted_from_1970(numbers, unit)
    same = read(GOOD | {"event_times": counted})
    assert same.digest() == read(GOOD | {"event_times": texts}).digest()
    with pytest.raises(CalibrationInputError, match="time_unit: s or ms"):
        read(GOOD | {"event_times": numbers})


def test_numbers_that_are_no_times() -> None:
    far = counted_from_1970(np.array([2**62, -(2**62), 0]), "s")
    assert violations(GOOD | {"event_times": far}) == [
        ("/event_times/0", "range"), ("/event_times/1", "range"),
    ]  # fmt: skip
    none = counted_from_1970([float("nan"), float("inf"), 1], "s")
    assert [rule for _, rule in violations(GOOD | {"event_times": none})] == ["rfc3339", "rfc3339"]
    mixed = [1, "2026-11-20T09:00:00Z", True]
    assert counted_from_1970(mixed, "s") is mixed


@pytest.mark.parametrize(("times", "rules"), [
    (np.array(["2026-11-20", "NaT", "10000-01-01"], "datetime64[s]"), ("rfc3339", "range")),
    (np.array(["1970-01-01", "1969-12-31", "NaT"], "datetime64[D]"), ("range", "rfc3339")),
])  # fmt: skip
def test_times_that_are_none(times: Any, rules: tuple[str, str]) -> None:
    assert violations(GOOD | {"event_times": times}) == [
        ("/event_times/1", rules[0]),
        ("/event_times/2", rules[1]),
    ]


def test_a_rejected_time_says_what_is_wrong_with_it() -> None:
    times = ["2026-11-20T09:00:00Z", "yesterday", "1969-12-31T23:59:59Z"]
    with pytest.raises(CalibrationInputError) as rejected:
        read(GOOD | {"event_times": times})
    none, early = (each.detail for each in rejected.value.violations)
    assert "RFC 3339" in none and "1970 to 9999" in early and "RFC 3339" not in early


@pytest.mark.parametrize(("rows", "n_classes", "said"), [
    ([[0.2, 0.3, 0.5], [1.0]], None, "Received 1 values; expected 3, as in other rows."),
    ([[0.2, 0.3, 0.5], [0.5, 0.5], [0.1, 0.1, 0.8]], None, "Received 2 values; expected 3, as in other rows."),
    ([[0.2, 0.3, 0.5], [0.5, 0.5]], 3, "Received 2 values; expected 3, one per class of the model."),
    ([[0.5, None]], 3, "Received 2 values; expected 3, one per class of the model."),
    ([[0.5, 0.5]], 3, "Received rows of 2 classes; expected 3, as the model has."),
])  # fmt: skip
def test_a_row_of_another_length_names_what_it_is_compared_with(
    rows: Any, n_classes: int | None, said: str
) -> None:
    with pytest.raises(CalibrationInputError) as rejected:
        read({"probabilities": rows}, n_classes=n_classes)
    assert said in [each.detail for each in rejected.value.violations]


def test_time_arrays_of_other_types_are_rejected() -> None:
    for times in (np.ones(3), np.ones(3, int), np.ones((3, 2), int), np.ones(3, bool)):
        assert violations(GOOD | {"event_times": times})[0] == ("/event_times/0", "rfc3339")
