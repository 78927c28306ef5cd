"""Rows of a tail: packed exactly and small, filled like the batches that they came of, and cancelled by their removal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from calibrant import Batch, Pane
from calibrant.core.edge_rules import EXACT
from calibrant.core.packing import PackingError, pack, unpack
from calibrant_server.workers.ingest.tail_rows import COLUMNS, TailRows
from tests.calibrant.data import random_batch, shapes
from tests.calibrant.panes import FEW, SPECS, assert_same, every_spec, pane_of

GOLDEN = Path(__file__).parent / "golden"
SLICES = ["A", "B", "B", "C"]


def batches(spec, options, how_many):
    """Batches whose rows share units, each with slices."""
    given_ = {key: value for key, value in options.items() if key not in ("seed", "n")}
    given_["binary"] = spec.task == "binary" and not given_["logits"]
    rng = np.random.default_rng(options["seed"])
    found = [
        random_batch(rng, spec, options["n"], prefix="same.", **given_) for _ in range(how_many)
    ]
    sites = np.array([SLICES[i % 4] for i in range(options["n"])], dtype=object)
    return [Batch(**{**columns_of(batch), "slices": {"site": sites}}) for batch in found]


def columns_of(batch):
    names = (
        "task", "scores", "is_logits", "ratings", "weights", "ids", "units", "cases", "delays",
    )  # fmt: skip
    return {name: getattr(batch, name) for name in names}


def rows_of(batches_):
    return TailRows.together([TailRows.of_batch(each, i) for i, each in enumerate(batches_)])


def filled(spec, rows, slice_=""):
    pane = Pane(spec)
    rows.fill_into(pane, slice_, lambda: Pane(spec))
    return pane


def removed(rows, part):
    return TailRows(**{**vars_of(rows), "sign": -rows.sign, "part": rows.part + part})


def vars_of(rows):
    names = (*COLUMNS, "task", "scores", "ratings", "cases", "slices")
    return {name: getattr(rows, name) for name in names}


def assert_equal_rows(one, other):
    for name in (*COLUMNS, "scores", "cases"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype and mine.tolist() == theirs.tolist(), name
    assert one.scores.tobytes() == other.scores.tobytes()
    for name in ("row", "class_index", "count"):
        assert getattr(one.ratings, name).tolist() == getattr(other.ratings, name).tolist()
    assert {k: v.tolist() for k, v in one.slices.items()} == {
        k: v.tolist() for k, v in other.slices.items()
    }


@every_spec
@FEW
@given(options=shapes())
def test_packed_rows_are_exact(spec, options):
    rows = rows_of(batches(spec, options, 2))
    assert_equal_rows(rows, TailRows.unpack(rows.pack()))
    some = rows.take(np.arange(len(rows)) % 3 == 0)
    assert_equal_rows(some, TailRows.unpack(some.pack()))


@every_spec
@FEW
@given(options=shapes())
def test_rows_of_several_batches_fill_like_one_batch_after_the_other(spec, options):
    """Units are in every batch: a unit weighs one in each, as it was committed."""
    some = batches(spec, options, 3)
    rows = TailRows.unpack(rows_of(some).pack())
    assert_same(filled(spec, rows), pane_of(spec, *some), tolerance=1e-12)
    of_b = [each.take(np.flatnonzero(each.slices["site"] == "B")) for each in some]
    of_b = [each for each in of_b if each.n]
    assert_same(filled(spec, rows, "site:B"), pane_of(spec, *of_b), tolerance=1e-12)
    assert filled(spec, rows, "site:none").is_empty and filled(spec, rows, "dose:1").is_empty


@every_spec
@FEW
@given(options=shapes())
def test_rows_and_their_removal_cancel(spec, options):
    first, second = batches(spec, options, 2)
    rows = rows_of([first, second])
    gone = removed(TailRows.of_batch(first, 0), 7)
    left = TailRows.together([rows, gone]).net
    assert len(left) == second.n and (left.sign == 1).all()
    assert_same(filled(spec, left), pane_of(spec, second), tolerance=1e-12)


def test_rows_whose_unit_differs_do_not_cancel():
    """The share of a row depends on the other rows of its unit."""
    columns = {"probabilities": [[0.2, 0.8], [0.6, 0.4]], "labels": [1, 0], "units": ["u", "u"]}
    complete = Batch.from_columns(columns).batch
    added = TailRows.of_batch(complete, 0)
    part = removed(TailRows.of_batch(complete.take(np.array([0])), 0), 1)
    assert len(TailRows.together([added, part]).net) == 3
    assert len(TailRows.together([added, removed(added, 1)]).net) == 0


def test_rows_that_sums_hold_are_taken_away_from_the_sums():
    spec = SPECS["three"]
    options = {"seed": 3, "n": 20, "logits": False, "weights": True, "units": "units"}
    first, second = batches(spec, options | {"most_raters": 3, "unlabelled": 0.2}, 2)
    pane = pane_of(spec, first)
    change = TailRows.together(
        [removed(TailRows.of_batch(first, 0), 0), TailRows.of_batch(second, 1)]
    )
    change.fill_into(pane, "", lambda: Pane(spec))
    assert_same(pane, pane_of(spec, second), tolerance=1e-12)


def network_rows(n, dtype):
    """Predictions of ten classes as a network gives them, with a site each."""
    rng = np.random.default_rng(1)
    z = rng.normal(scale=3, size=(n, 10)).astype(dtype)
    power = np.exp(z - z.max(axis=1, keepdims=True))
    columns = {
        "probabilities": (power / power.sum(axis=1, keepdims=True)).astype(np.float64),
        "labels": rng.integers(0, 10, n).tolist(),
        "slices": {"site": [f"s{i}" for i in rng.integers(0, 20, n)]},
    }
    return TailRows.of_batch(Batch.from_columns(columns).batch, 0)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 6000), (np.float64, 11_000)])
def test_a_hundred_rows_are_small(dtype, most):
    assert len(network_rows(100, dtype).pack()) <= most


GOLDEN_COLUMNS = [
    {
        "probabilities": [[0.25, 0.5, 0.25], [0.1, 0.2, 0.7]],
        "label_counts": [[0, 2, 1], [0, 0, 0]],
        "weights": [0.5, 3.0],
        "units": ["u", "u"],
        "slices": {"site": ["A", "B"]},
    },
    {
        "logits": [[0.5, -1.25, 1e30]],
        "labels": [2],
        "cases": ["scan"],
        "slices": {"dose": ["1mg"]},
    },
    {"probabilities": [[0.0, 0.3, 0.7]], "labels": [1], "ids": ["i7"]},
    {"probabilities": [[0.125, 0.375, 0.5]], "labels": [None]},
]


def golden_rows():
    """Rows of every kind: forms of scores, sources of units, signs, weights, delays, cases, slices."""
    found = []
    for part, columns in enumerate(GOLDEN_COLUMNS):
        batch = Batch.from_columns(columns).batch
        delays = np.arange(batch.n) + part if part < 2 else None
        found.append(TailRows.of_batch(replace(batch, delays=delays), part))
    return TailRows.together([*found, removed(found[0], 4)])


def test_rows_of_format_1_are_read_forever():
    """They were filled when a score was on an edge only if it was equal to it."""
    expected = replace(golden_rows(), edge_rules=np.full(7, EXACT, np.uint8))
    data = (GOLDEN / "rows-1.bin").read_bytes()
    assert_equal_rows(TailRows.unpack(data), expected)


def test_rows_of_format_2_are_read_forever():
    expected = replace(golden_rows(), edge_rules=np.array([0, 1, 2, 3, 0, 1, 2], np.uint8))
    assert_equal_rows(TailRows.unpack((GOLDEN / "rows-2.bin").read_bytes()), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"vote_class": np.array([9])},
        {"vote_count": np.array([0])},
        {"n_votes": np.array([2])},
        {"hashes": np.zeros(3, np.uint64)},
        {"slice0": np.array([5])},
        {"slice0": np.array([-2])},
        {"wide": np.zeros((1, 4))},
        {"narrow": np.zeros((0, 10), np.float64)},
    ],
    ids=str,
)
def test_damaged_columns_are_rejected(change):
    batch = Batch.from_columns(
        {"probabilities": [[0.125, 0.875]], "labels": [1], "ids": ["a"], "slices": {"k": ["v"]}}
    ).batch
    arrays, about = unpack(TailRows.of_batch(batch, 0).pack())
    with pytest.raises(PackingError):
        TailRows.unpack(pack(arrays | change, about))


def test_other_bytes_and_newer_formats_are_rejected():
    data = golden_rows().pack()
    arrays, about = unpack(data)
    for other in (b"", b"no rows", data[:-1], pack(arrays, about | {"rows": 3}), pack(arrays, {})):
        with pytest.raises(PackingError):
            TailRows.unpack(other)
