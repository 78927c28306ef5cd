"""A batch is packed, taken from and put together without a bit's difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from calibrant import Batch
from calibrant.core.errors import CalibrationInputError
from tests.calibrant import reference
from tests.calibrant.data import random_columns, shapes

COLUMNS: dict[str, Any] = {
    "probabilities": [[0.7, 0.3], [0.1, 0.9], [0.5, 0.5]],
    "labels": [0, [1, 1, 0], None],
    "ids": ["a", "b", "c"],
    "units": ["u", "u", "v"],
    "cases": ["x", "y", "y"],
    "event_times": ["2026-11-20T09:00:00Z"] * 3,
    "slices": {"site": ["A", "B", "A"], "dose": ["1", "1", "2"]},
    "weights": [1.0, 0.5, 2.0],
}


def read(columns: dict[str, Any], **options: Any) -> Batch:
    return Batch.from_columns(columns, **options).batch


def random_batch(options: dict[str, Any]) -> Batch:
    given = {key: value for key, value in options.items() if key not in ("seed", "n")}
    return read(random_columns(np.random.default_rng(options["seed"]), options["n"], 4, **given))


@settings(max_examples=40, deadline=None)
@given(options=shapes())
def test_packing_is_exact(options: dict[str, Any]) -> None:
    batch = random_batch(options)
    again = Batch.unpack(batch.pack())
    assert again.digest() == batch.digest()
    assert again.shape_key == batch.shape_key
    assert again.scores.tobytes() == batch.scores.tobytes()
    assert again.chosen_rating.tolist() == batch.chosen_rating.tolist()
    assert again.unit_hash.tolist() == batch.unit_hash.tolist()
    assert again.pack() == batch.pack()


CHANGES: list[dict[str, Any]] = [
    {"probabilities": [[0.7, 0.3], [0.1, 0.9], [np.nextafter(0.5, 1), np.nextafter(0.5, 0)]]},
    {"labels": [0, [1, 1, 0], 0]},
    {"labels": [0, [1, 0], None]},
    {"labels": [0, [1, 0, 0], None]},
    {"labels": None},
    {"ids": ["a", "b", "d"]},
    {"ids": ["ab", "c", "d"]},
    {"ids": None},
    {"units": ["u", "v", "v"]},
    {"units": None},
    {"units": ["x", "y", "y"], "cases": ["u", "u", "v"]},
    {"cases": None},
    {"event_times": ["2026-11-20T09:00:00.000001Z"] * 3},
    {"event_times": None},
    {"weights": [1.0, 0.5, 2.5]},
    {"weights": None},
    {"slices": {"site": ["A", "B", "B"], "dose": ["1", "1", "2"]}},
    {"slices": {"site": ["A", "B", "A"]}},
    {"slices": {"dose": ["A", "B", "A"], "site": ["1", "1", "2"]}},
    {"slices": None},
    {"logits": COLUMNS["probabilities"], "probabilities": None},
]


def test_the_digest_feels_every_change() -> None:
    digests = [read(COLUMNS).digest(), *(read(COLUMNS | change).digest() for change in CHANGES)]
    digests += [read(COLUMNS, task=task).digest() for task in ("binary", "segmentation")]
    digests.append(read(COLUMNS).take(np.array([1, 0, 2])).digest())
    assert len(set(digests)) == len(digests)
    swapped = {"dose": COLUMNS["slices"]["dose"], "site": COLUMNS["slices"]["site"]}
    assert read(COLUMNS | {"slices": swapped}).digest() == digests[0]
    assert len(digests[0]) == 16


@settings(max_examples=30, deadline=None)
@given(options=shapes())
def test_take_is_the_rows_as_often_as_asked(options: dict[str, Any]) -> None:
    batch = random_batch(options)
    index = np.random.default_rng(options["seed"]).integers(-batch.n, batch.n, 2 * batch.n)
    taken = batch.take(index)
    assert taken.label_counts.tolist() == batch.label_counts[index].tolist()
    assert taken.scores.tolist() == batch.scores[index].tolist()
    assert taken.chosen_rating.tolist() == batch.chosen_rating[index].tolist()
    for name in ("ids", "units", "cases", "weights"):
        column = getattr(batch, name)
        assert (getattr(taken, name) is None) == (column is None)
        if column is not None:
            assert getattr(taken, name).tolist() == column[index].tolist()
    mask = batch.row_total > 0
    assert batch.take(mask).digest() == batch.take(np.flatnonzero(mask)).digest()
    assert batch.take(np.arange(batch.n)).digest() == batch.digest()


@settings(max_examples=30, deadline=None)
@given(options=shapes())
def test_parts_put_together_are_the_whole(options: dict[str, Any]) -> None:
    batch = random_batch(options)
    parts = np.array_split(np.arange(batch.n), min(3, batch.n))
    assert Batch.concatenate([batch.take(part) for part in parts]).digest() == batch.digest()


def test_every_column_is_put_together() -> None:
    batch = read(COLUMNS)
    both = Batch.concatenate([batch.take(np.array([2, 0])), batch.take(np.array([1]))])
    assert both.digest() == batch.take(np.array([2, 0, 1])).digest()
    assert both.slices is not None
    assert both.slices["site"].tolist() == ["A", "A", "B"]


@pytest.mark.parametrize("change", [
    {"weights": None}, {"units": None}, {"event_times": None}, {"slices": {"site": ["A", "B", "A"]}},
    {"probabilities": None, "logits": COLUMNS["probabilities"]}, {"probabilities": [[0.2, 0.3, 0.5]] * 3},
])  # fmt: skip
def test_batches_of_other_shapes_are_not_put_together(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="different shapes"):
        Batch.concatenate([read(COLUMNS), read(COLUMNS | change)])
    with pytest.raises(ValueError, match="no batches"):
        Batch.concatenate([])


def test_the_majority_and_its_ties() -> None:
    labels: list[Any] = [[2, 1], [2, 2, 1], None, [0], [1, 0, 2], [2, 1, 1, 2]]
    batch = read({"probabilities": np.full((6, 3), 1 / 3), "labels": labels})
    winner, tied = batch.majority
    assert winner.tolist() == [1, 2, -1, 0, 0, 1]
    assert tied.tolist() == [True, False, False, False, True, True]
    for row, expected in zip(reference.rows_of(batch), winner[winner >= 0], strict=True):
        assert row.majority == expected


def test_units_come_from_the_first_name_that_there_is() -> None:
    left = dict(COLUMNS)
    for missing, source in ((None, "unit"), ("units", "case"), ("cases", "id"), ("ids", "row")):
        if missing:
            left[missing] = None
        batch = read(left)
        assert batch.unit_source == source
        assert len(batch.unit_hash) == 3


def test_rows_without_ids_hash_by_content() -> None:
    columns = {"probabilities": [[0.7, 0.3], [0.7, 0.3], [0.7, 0.3]], "labels": [0, 0, 1]}
    hashes = read(columns).prediction_hash.tolist()
    assert hashes[0] == hashes[1] != hashes[2]
    reordered = read(
        {"probabilities": [[0.7, 0.3]] * 2, "labels": [[0, 1, 1], [1, 0, 1]]}
    ).prediction_hash.tolist()
    assert reordered[0] == reordered[1]


@pytest.mark.parametrize("name", [".", "..", "a\n", "", "ä\x85"])
def test_a_name_is_no_folder_of_a_path(name: str) -> None:
    with pytest.raises(CalibrationInputError) as rejected:
        read({"confidences": [0.5, 0.5], "ids": ["a", name]})
    assert [(each.pointer, each.rule) for each in rejected.value.violations] == [("/ids/1", "name")]


def test_dots_in_a_name_are_letters() -> None:
    ids = ["...", ".a", "a.", "..a"]
    assert read({"confidences": [0.5] * 4, "ids": ids}).ids.tolist() == ids


@pytest.mark.parametrize(
    ("kind", "invalid"),
    [
        ("probabilities", [0.5, np.nan, 0.5]),
        ("probabilities", [1.5, -0.25, -0.25]),
        ("probabilities", [0.5, 0.3, 0.1]),
        ("logits", [np.inf, 0.0, 0.0]),
        ("logits", [0.0, -1e39, 0.0]),
        ("confidences", -2e-5),
    ],
)
def test_an_invalid_row_does_not_change_what_is_read_of_the_others(kind, invalid):
    """A batch of valid rows only is recognised by its extremes; otherwise rows are looked at one by one."""
    rng = np.random.default_rng(3)
    rows = {
        "probabilities": rng.dirichlet([0.3] * 3, 6) * (1 + 1e-6),
        "logits": 9 * rng.standard_normal((6, 3)),
        "confidences": rng.random(6),
    }[kind]
    n_classes = 2 if kind == "confidences" else 3
    labels = [rng.integers(0, n_classes, 1 + i % 3).tolist() for i in range(6)]
    valid = Batch.from_columns({kind: rows.tolist(), "labels": labels})
    mixed = {kind: [*rows.tolist(), invalid, rows[0].tolist()], "labels": [*labels, 1, n_classes]}
    found = Batch.from_columns(mixed, partial=True, n_classes=n_classes)
    assert found.batch.digest() == valid.batch.digest()
    assert found.accepted_rows.tolist() == valid.accepted_rows.tolist() == list(range(6))
    assert [each.pointer for each in found.violations] == [f"/{kind}/6", "/labels/7"]
    assert valid.violations == []
