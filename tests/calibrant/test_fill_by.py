"""A table by time and slice: the panes are the engine's, and a unit in several of them is reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.core.panes_by_key import Key, PanesByKey, SplitUnitsWarning, fill_by
from calibrant.core.routing import ROWS_TOGETHER, split_batch
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestEntry
from calibrant_server.workers.ingest.reduce import Numerics, Reduction, StoreReads, reduce_entry
from tests.calibrant.panes import assert_same, pane_of
from tests.workers.driving import MODEL

SPEC = PaneSpec("multiclass", 3)
START = datetime(2026, 1, 1, tzinfo=UTC)


def table(n: int = 300, seed: int = 0) -> dict[str, Any]:
    """Rows of three hours and two sites; patients stay in one hour."""
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, n // 3, n)
    hours = [
        START + timedelta(hours=int(p) % 3, minutes=int(m))
        for p, m in zip(patient, rng.integers(0, 60, n), strict=True)
    ]
    labels = rng.integers(0, 3, (n, 2))
    return {
        "ts": [at.isoformat() for at in hours],
        "site": ["AB"[int(s)] for s in rng.integers(0, 2, n)],
        "patient": [f"p{p}" for p in patient],
        "probabilities": rng.dirichlet(np.ones(3), n),
        "labels": [None if rng.random() < 0.2 else row for row in labels.tolist()],
        "weights": rng.choice([0.5, 1.0, 2.0], n),
        "remark": ["ignored"] * n,
    }


OPTIONS: dict[str, Any] = {"time": "ts", "every": "1h", "slices": ["site"], "unit": "patient"}


def by_engine(columns: dict[str, Any]) -> dict[tuple[datetime, str], Pane]:
    """What the engine fills from the same rows."""
    given = {name: columns[name] for name in ("probabilities", "labels", "weights")}
    given |= {
        "units": columns["patient"],
        "event_times": columns["ts"],
        "slices": {"site": columns["site"]},
    }
    payload = Batch.from_columns(given).batch.pack()
    entry = IngestEntry(
        model=MODEL.key,
        generation=MODEL.generation,
        batch_id="b",
        kind=PREDICTIONS,
        digest=b"",
        received_ms=0,
        payload=payload,
        id="1-0",
    )
    into, numerics = Reduction(StoreReads(None, lambda config: (), 100)), Numerics()
    reduce_entry(entry, MODEL, numerics, into)
    into.close(numerics)
    found = {}
    for key, new in into.rows.items():
        rows = new.rows
        for slice_ in rows.n_by_slice:
            pane = found[datetime.fromtimestamp(key.start_s, UTC), slice_] = Pane(MODEL.spec())
            rows.fill_into(pane, slice_, lambda: Pane(MODEL.spec()))
    return found


def same_parts(one: Pane, other: Pane) -> None:
    """Equal to the bit, but for delays, which only a service can know."""
    mine, theirs = (pane.parts() for pane in (one, other))
    for parts in (mine, theirs):
        parts.pop("delays", None)
    assert mine == theirs


def test_panes_are_the_engine_s_to_the_bit() -> None:
    columns = table()
    found, expected = fill_by(columns, SPEC, **OPTIONS), by_engine(columns)
    assert set(found) == set(expected)
    assert len(found) == 9
    for key, pane in found.items():
        assert key == Key(key.start, key.slice)
        same_parts(pane, expected[key])
        assert pane.digest() == expected[key].digest() is not None
    assert found.n_units_split == 0


def frames(columns: dict[str, Any]) -> dict[str, Any]:
    at = [datetime.fromisoformat(text) for text in columns["ts"]]
    arrow = pa.table(
        {
            **{name: columns[name] for name in ("patient", "labels", "weights")},
            "site": pa.array(columns["site"]).dictionary_encode(),
            "ts": pa.array(at, pa.timestamp("ns", "America/New_York")),
            "probabilities": pa.FixedSizeListArray.from_arrays(
                columns["probabilities"].reshape(-1), 3
            ),
        }
    )
    return {
        "pyarrow": arrow,
        "polars": pl.from_arrow(arrow),
        "pandas": arrow.to_pandas(types_mapper=pd_types),
    }


def pd_types(kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.ArrowDtype(kind)


@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas"])
def test_tables_of_every_library_give_the_same_panes(library: str) -> None:
    columns = table()
    found, expected = (
        fill_by(frames(columns)[library], SPEC, **OPTIONS),
        fill_by(columns, SPEC, **OPTIONS),
    )
    assert found.keys() == expected.keys()
    for key, pane in expected.items():
        same_parts(found[key], pane)


def test_panes_add_up_to_the_whole() -> None:
    columns = table()
    panes = fill_by(columns, SPEC, **OPTIONS)
    alone = fill_by(columns, SPEC, unit="patient")
    assert list(alone) == [Key(None, "")]
    every = [pane for key, pane in panes.items() if not key.slice]
    assert_same(Pane(SPEC).merge_all(every), alone[Key(None, "")])
    by_site = fill_by(columns, SPEC, slices=["site"], unit="patient")
    assert set(by_site) == {Key(None, name) for name in ("", "site:A", "site:B")}


def test_pieces_add_up_where_units_are_complete() -> None:
    columns = table()
    hours = np.array([text[11:13] for text in columns["ts"]])
    complete = fill_by(columns, SPEC, **OPTIONS)
    total: dict[Key, Pane] = {}
    for hour in np.unique(hours):
        rows = np.flatnonzero(hours == hour)
        piece = {name: [column[i] for i in rows] for name, column in columns.items()}
        for key, pane in fill_by(piece, SPEC, **OPTIONS).items():
            total[key] = total[key].merge(pane) if key in total else pane
    assert {key: pane.digest() for key, pane in total.items()} == {
        key: pane.digest() for key, pane in complete.items()
    }


def test_a_unit_in_several_panes_is_reported() -> None:
    columns = table()
    columns["patient"] = ["p1", "p2", *columns["patient"][2:]]
    columns["ts"] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", *columns["ts"][2:]]
    columns["labels"] = [[0] if label is None else label for label in columns["labels"]]
    with pytest.warns(SplitUnitsWarning, match="2 units have rows in panes of different times"):
        panes = fill_by(columns, SPEC, **OPTIONS)
    assert panes.n_units_split == 2
    total = Pane(SPEC).merge_all([pane for key, pane in panes.items() if not key.slice])
    assert total.units_split == {"n": 2, "estimated": False}
    assert total.counts["n_units"] == len(set(columns["patient"])) + 2
    # The same units in longer panes, or in panes of slices alone, are complete.
    assert fill_by(columns, SPEC, **{**OPTIONS, "every": "1d"}).n_units_split == 0
    assert fill_by(columns, SPEC, slices=["site"], unit="patient").n_units_split == 0


def test_raters_columns_are_ratings() -> None:
    columns = table(30)
    first = [0, 1, None] * 10
    second = [None, 2, None] * 10
    expected = columns | {"labels": [[0], [1, 2], None] * 10}
    digests = {key: pane.digest() for key, pane in fill_by(expected, SPEC, **OPTIONS).items()}
    del columns["labels"]
    kinds: dict[str, Any] = {
        "lists": lambda values: values,
        "pyarrow": pa.array,
        "polars": pl.Series,
        "dictionary": lambda values: pa.array(values).dictionary_encode(),
    }
    for make in kinds.values():
        given = columns | {"reader a": make(first), "reader b": make(second)}
        found = fill_by(given, SPEC, labels=["reader a", "reader b"], **OPTIONS)
        assert {key: pane.digest() for key, pane in found.items()} == digests
    names = np.array(["cat", "cow", "dog"])
    texts = [[None if k is None else str(names[k]) for k in column] for column in (first, second)]
    for each in (list, pa.array):
        given = columns | {"reader a": each(texts[0]), "reader b": each(texts[1])}
        found = fill_by(
            given, SPEC, labels=["reader a", "reader b"], class_names=names.tolist(), **OPTIONS
        )
        assert {key: pane.digest() for key, pane in found.items()} == digests


def test_scores_and_counts_in_a_column_per_class() -> None:
    columns = table(30)
    counts = np.random.default_rng(1).integers(0, 3, (30, 3))
    expected = fill_by(
        columns | {"labels": None, "label_counts": counts},
        SPEC,
        label_counts="label_counts",
        **OPTIONS,
    )
    wide = {f"p{k}": columns["probabilities"][:, k] for k in range(3)} | {
        f"n{k}": counts[:, k] for k in range(3)
    }
    rest = {name: columns[name] for name in ("ts", "site", "patient", "weights")}
    for given in (rest | wide, pa.table(rest | wide), pl.DataFrame(rest | wide)):
        found = fill_by(
            given,
            SPEC,
            probabilities=["p0", "p1", "p2"],
            label_counts=["n0", "n1", "n2"],
            weight="weights",
            **OPTIONS,
        )
        for key, pane in expected.items():
            assert found[key].digest() == pane.digest()


def test_numbers_of_a_binary_model_are_those_of_class_one() -> None:
    p, labels = [0.25, 0.5, 0.75], [0, 1, 1]
    expected = fill_by({"confidences": p, "labels": labels}, PaneSpec("binary", 2))
    for column in (p, np.array(p), pa.array(p)):
        found = fill_by({"probabilities": column, "labels": labels}, PaneSpec("binary", 2))
        assert found[Key(None, "")].digest() == expected[Key(None, "")].digest()
    two = fill_by(
        {"p": [[1 - x, x] for x in p], "labels": labels}, PaneSpec("binary", 2), probabilities="p"
    )
    assert two[Key(None, "")].digest() == expected[Key(None, "")].digest()


# Violations.


def rejected(given: Any, **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(CalibrationInputError) as caught:
        fill_by(given, SPEC, **{**OPTIONS, **options})
    return [(each.pointer, each.rule) for each in caught.value.violations]


def test_violations_name_the_table_s_own_columns_and_rows() -> None:
    columns = table(6)
    complete = table(6)
    complete["probabilities"] = complete["probabilities"].tolist()
    changes: list[tuple[str, Any, str]] = [
        ("ts", "yesterday", "rfc3339"), ("site", "a\tb", "name"), ("patient", "", "name"),
        ("probabilities", [0.5, 0.6, 0.7], "row_sum"), ("labels", [3], "class_range"), ("weights", -1.0, "weight"),
    ]  # fmt: skip
    for name, value, rule in changes:
        column = list(complete[name])
        column[4] = value
        assert rejected(complete | {name: column}) == [(f"/{name}/4", rule)]
    assert rejected(columns | {"p": complete["probabilities"][:5]}, probabilities="p") == [
        ("/patient", "length")
    ]
    assert rejected(columns, unit="nobody") == [("/nobody", "missing")]
    assert rejected(columns, slices=["town"]) == [("/town", "missing")]
    assert (
        rejected({name: columns[name] for name in ("ts", "site", "patient")})[0][1]
        == "one_score_column"
    )
    assert rejected(pa.table({"ts": [None]}))[0][0] in ("/patient", "/site")
    assert rejected([1, 2]) == [("", "table")]
    times = pa.array([START.replace(tzinfo=None)] * 6)
    assert rejected(columns | {"ts": times}) == [("/ts", "time_zone")]
    nulls = pa.array([*columns["patient"][:5], None])
    assert rejected(columns | {"patient": nulls}) == [("/patient/5", "null")]
    wide = {f"p{k}": columns["probabilities"][:, k] for k in range(3)}
    wide["p1"] = pa.array([*wide["p1"][:5], None])
    assert rejected(columns | wide, probabilities=["p0", "p1", "p2"]) == [("/p0,p1,p2/5", "null")]


@pytest.mark.parametrize(
    "every", ["0h", "1y", "P", "PT", "h", "400d", "", timedelta(milliseconds=1500), timedelta(0)]
)
def test_lengths_that_are_none(every: Any) -> None:
    assert rejected(table(6), every=every) == [("/every", "duration")]


@pytest.mark.parametrize("every", ["90m", "PT1H30M", "PT90M", "5400s", timedelta(minutes=90)])
def test_lengths_of_panes(every: Any) -> None:
    starts = {
        key.start for key in fill_by(table(), SPEC, **{**OPTIONS, "every": every, "unit": None})
    }
    assert starts == {START, START + timedelta(minutes=90)}


def test_a_table_without_rows_gives_no_panes() -> None:
    empty = pa.table(
        {"ts": pa.array([], pa.timestamp("us", "UTC")), "confidences": pa.array([], pa.float64())}
    )
    assert fill_by(empty, PaneSpec("binary", 2), time="ts") == {}
    assert isinstance(fill_by({"confidences": []}, PaneSpec("binary", 2)), PanesByKey)


# Large tables are filled in pieces.


@pytest.mark.parametrize("units", [None, "few", "many"])
def test_pieces_keep_units_together(units: str | None) -> None:
    rng = np.random.default_rng(5)
    n = 3 * ROWS_TOGETHER + 17
    columns: dict[str, Any] = {"confidences": rng.random(n), "labels": rng.integers(0, 2, n)}
    if units is not None:
        columns["units"] = [f"u{k}" for k in rng.integers(0, 2 if units == "few" else n // 4, n)]
    batch = Batch.from_columns(columns).batch
    parts = list(split_batch(batch))
    assert sum(part.n for part in parts) == n
    assert len(parts) == (2 if units == "few" else 4)
    if units is not None:
        held = [set(part.unit_hash.tolist()) for part in parts]
        assert sum(map(len, held)) == len(set.union(*held))
    spec = PaneSpec("binary", 2)
    assert_same(pane_of(spec, *parts), pane_of(spec, batch))
