"""Rows: packed exactly and small, filled like the batches that they came of, and cancelled by their removal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from calibrant import Batch, Pane
from calibrant.core.packing import PackingError
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.scores import Scores
from tests.calibrant.data import random_batch, shapes
from tests.calibrant.panes import FEW, SPECS, assert_same, every_spec, pane_of
from tests.workers.plain_rows import plain

GOLDEN = Path(__file__).parent / "golden" / "rows-3.bin"
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
    return Rows.together([Rows.of_batch(each, i) for i, each in enumerate(batches_)])


def filled(spec, rows, slice_=""):
    pane = Pane(spec)
    rows.fill_into(pane, slice_, lambda: Pane(spec))
    return pane


def removed(rows, part):
    return rows.with_columns(count=-rows.fixed["count"], part=rows.part + part)


def assert_equal_rows(one, other):
    assert plain(one) == plain(other)


@every_spec
@FEW
@given(options=shapes())
def test_packed_rows_are_exact(spec, options):
    rows = rows_of(batches(spec, options, 2))
    assert_equal_rows(rows, Rows.unpack(rows.pack()))
    some = rows.where(np.arange(len(rows)) % 3 == 0)
    assert_equal_rows(some, Rows.unpack(some.pack()))


@every_spec
@FEW
@given(options=shapes())
def test_rows_of_several_batches_fill_like_one_batch_after_the_other(spec, options):
    """Units are in every batch: a unit weighs one in each, as it was committed."""
    some = batches(spec, options, 3)
    rows = Rows.unpack(rows_of(some).pack())
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
    gone = removed(Rows.of_batch(first, 0), 7)
    left = Rows.together([rows, gone]).net
    assert len(left) == second.n and (left.fixed["count"] == 1).all()
    assert_same(filled(spec, left), pane_of(spec, second), tolerance=1e-12)


def test_rows_whose_unit_differs_do_not_cancel():
    """The share of a row depends on the other rows of its unit."""
    columns = {"probabilities": [[0.2, 0.8], [0.6, 0.4]], "labels": [1, 0], "units": ["u", "u"]}
    complete = Batch.from_columns(columns).batch
    added = Rows.of_batch(complete, 0)
    part = removed(Rows.of_batch(complete.take(np.array([0])), 0), 1)
    assert len(Rows.together([added, part]).net) == 3
    assert len(Rows.together([added, removed(added, 1)]).net) == 0


def test_rows_that_sums_hold_are_taken_away_from_the_sums():
    spec = SPECS["three"]
    options = {"seed": 3, "n": 20, "logits": False, "weights": True, "units": "units"}
    first, second = batches(spec, options | {"most_raters": 3, "unlabelled": 0.2}, 2)
    pane = pane_of(spec, first)
    change = Rows.together([removed(Rows.of_batch(first, 0), 0), Rows.of_batch(second, 1)])
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
    return Rows.of_batch(Batch.from_columns(columns).batch, 0)


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
        found.append(Rows.of_batch(replace(batch, delays=delays), part))
    rows = Rows.together([*found, removed(found[0], 4)])
    return rows.with_columns(edge_rule=[0, 1, 2, 3, 0, 1, 2])


def test_rows_of_format_3_are_read_forever():
    assert_equal_rows(Rows.unpack(GOLDEN.read_bytes()), golden_rows())


def test_joined_pieces_are_the_rows_of_each():
    """Of other keys, names and forms of scores."""
    batches_ = [Batch.from_columns(each).batch for each in GOLDEN_COLUMNS if "logits" not in each]
    pieces = [Rows.of_batch(each, i) for i, each in enumerate(batches_)]
    for joined in (
        Rows.together(pieces),
        Rows.unpack_pieces([each.pack() for each in pieces]),
        Rows.together([pieces[0], Rows.unpack(pieces[1].pack()), pieces[2]]),
    ):
        assert plain(joined) == [row for each in pieces for row in plain(each)]
    apart = Rows.together_apart([pieces[2], pieces[0], pieces[1]])
    assert apart.part.tolist() == [2, 3, 3, 5]


@pytest.mark.parametrize("n", [1, 7])
def test_a_name_that_no_row_has_is_not_stored(n):
    columns = GOLDEN_COLUMNS[0] | {"slices": {"site": ["here", "elsewhere"]}}
    rows = Rows.of_batch(Batch.from_columns(columns).batch, 0).take(np.zeros(n, np.int64))
    assert Rows.unpack(rows.pack()).names == ("here",)


def with_ratings(rows, **columns):
    ratings = rows.ratings.copy()
    for name, values in columns.items():
        ratings[name] = values
    return replace(rows, ratings=ratings)


def with_scores(rows, **columns):
    stored = rows.scores.stored._replace(**columns)
    return replace(rows, scores=Scores(rows.scores.logits, None, stored))


CHANGES = {
    "class": lambda rows: with_ratings(rows, class_index=9),
    "order of classes": lambda rows: with_ratings(rows, class_index=[1, 0]),
    "no ratings of a class": lambda rows: with_ratings(rows, n=0),
    "ratings beyond int64": lambda rows: with_ratings(rows, n=2**63),
    "number of ratings": lambda rows: rows.with_columns(n_ratings=2),
    "negative number of ratings": lambda rows: rows.with_columns(n_ratings=[3, -1]),
    "occurrences": lambda rows: rows.with_columns(count=0),
    "source": lambda rows: rows.with_columns(source=4),
    "edge rule": lambda rows: rows.with_columns(edge_rule=4),
    "weight": lambda rows: rows.with_columns(weight=np.nan),
    "case": lambda rows: replace(rows.with_columns(case=5), names=()),
    "key": lambda rows: replace(rows, keys=("a", "b")),
    "name twice": lambda rows: replace(rows, names=("v", "v")),
    "score": lambda rows: with_scores(rows, narrow=np.full((2, 2), np.nan, np.float32)),
    "total": lambda rows: with_scores(rows, totals=np.full(2, 3.0)),
    "narrow scores": lambda rows: with_scores(rows, is_narrow=np.array([True, False])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_columns_are_rejected(change):
    columns = {
        "probabilities": [[0.125, 0.875], [0.5, 0.5]],
        "label_counts": [[1, 1], [0, 0]],
        "ids": ["a", "b"],
        "slices": {"k": ["v", "w"]},
    }
    rows = Rows.of_batch(Batch.from_columns(columns).batch, 0)
    assert plain(Rows.unpack(rows.pack())) == plain(rows)
    damaged, sound = CHANGES[change](rows).pack(), rows.pack()
    for pieces in ([damaged], [damaged, sound], [sound, damaged]):
        with pytest.raises(PackingError):
            Rows.unpack_pieces(pieces)


def test_pieces_whose_numbers_of_values_agree_in_sum_alone_are_rejected():
    columns = {"probabilities": [[0.25, 0.75]] * 2, "label_counts": [[1, 0], [1, 1]]}
    rows = Rows.of_batch(Batch.from_columns(columns).batch, 0)
    first, second = rows.take(np.array([0])), rows.take(np.array([1]))
    swapped = [
        replace(first, ratings=second.ratings).pack(),
        replace(second, ratings=first.ratings).pack(),
    ]
    with pytest.raises(PackingError):
        Rows.unpack_pieces(swapped)


def test_other_bytes_are_rejected():
    data = golden_rows().pack()
    others = [data[:n] for n in range(len(data))] + [data + b"0", b"CALB" + data[4:]]
    for place in range(0, len(data), 3):
        others.append(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
    for other in others:
        with pytest.raises(PackingError):
            Rows.unpack(other)
