"""First predictions of ids joined by columns: the same records, counts, outcomes and rows as record by record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.label_join import LabelJoin
from calibrant_server.workers.ingest.payloads import SentLabels, pack_labels
from tests.workers.test_first_labels import (
    AT_US,
    CONFIG,
    HOUR_US,
    NOW_MS,
    STORED,
    Dictionary,
    assert_same_changes,
    first,
)

SEALED = replace(CONFIG, label_horizon_s=86_400)


def batch_of(ids, kind="narrow", hours=(2, 3), timed=True, seed=1, **more):
    """Predictions of some ids, over some hours."""
    rng, n = np.random.default_rng(seed), len(ids)
    wide = rng.dirichlet(np.ones(3), n)
    scores = {
        "wide": wide,
        "narrow": wide.astype(np.float32),
        "exact": rng.permuted(np.tile([0.5, 0.25, 0.25], (n, 1)), axis=1),
        "logits": np.log(wide).astype(np.float32),
        # Rows of every form in one batch.
        "mixed": np.where(np.arange(n)[:, None] % 3 == 0, wide, [[0.5, 0.25, 0.25]]),
    }[kind]
    column = "logits" if kind == "logits" else "probabilities"
    batch = Batch.from_columns({"ids": ids, column: scores, **more}, task="multiclass").batch
    hour = np.resize(hours, n)
    times = AT_US + hour * HOUR_US + np.arange(n) if timed else None
    return replace(batch, event_times=times)


def join_of(entries, by_columns, stored=STORED):
    """A join after entries, with their outcomes: batches, rows of labels, and names of deleted ids."""
    join, outcomes = LabelJoin(Dictionary(stored), by_columns), []
    for order, entry in enumerate(entries, 1):
        if isinstance(entry, Batch):
            outcomes.append(join.predictions(SEALED, entry, NOW_MS))
        elif isinstance(entry, str):
            outcomes.append(join.deletion(SEALED, entry, NOW_MS))
        else:
            sent = SentLabels.unpack(pack_labels(entry))
            outcomes.append(join.sent_labels(SEALED, sent, NOW_MS, order))
    return join, outcomes


def assert_same(*entries, stored=STORED):
    columns, own = join_of(entries, True, stored)
    records, expected = join_of(entries, False, stored)
    assert own == expected
    (model,), (other,) = columns.models.values(), records.models.values()
    assert {s: set(names) for s, names in model.joined().items()} == {
        s: set(names) for s, names in other.joined().items()
    }
    assert_same_changes(columns, records)
    return model.columns.n


NEW = [f"n{i}" for i in range(40)]
LABELS = [[0], [1, 1, 2], [2, 0], [0, 1, 2], [1]]


@pytest.mark.parametrize("kind", ["wide", "narrow", "exact", "logits", "mixed"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"weights": [0.5, 2.0] * 20},
        {"labels": LABELS * 8},
        {"labels": [0, None] * 20},
        {"timed": False},
    ],
)
def test_new_predictions(kind, more):
    if "labels" in more:
        labels = [[] if each is None else each for each in more["labels"]]
        counts = [
            [(each if isinstance(each, list) else [each]).count(k) for k in range(3)]
            for each in labels
        ]
        more = {"label_counts": counts}
    assert assert_same(batch_of(NEW, kind, **more)) == 40


@pytest.mark.parametrize("more", [{"units": ["u", "v"] * 20}, {"cases": ["c"] * 40},
                                  {"slices": {"site": ["A", "B"] * 20}}])  # fmt: skip
def test_rows_with_units_and_slices_are_joined_one_by_one(more):
    assert assert_same(batch_of(NEW, **more)) == 0


def waiting():
    """Labels of several forms that wait for their predictions."""
    rows = [
        LabelRow("one", {1: 1}, []),
        LabelRow("two", {0: 3, 2: 2**31 - 1}, []),
        LabelRow("all", {0: 1, 1: 1, 2: 1}, []),
        LabelRow("named", {1: 1}, [("ann", 2, None)]),
        LabelRow("withdrawn", {}, [("ann", -1, None)]),
    ]
    join = LabelJoin(Dictionary(STORED))
    join.labels(SEALED, rows, NOW_MS - 7_200_000, 1)
    (model,) = join.models.values()
    found = {name: each.pack() for name, each in model.after.items()}
    return STORED | found | {"other": found["one"][:16] + b"\x09" + found["one"][17:]}


def test_predictions_of_labels_that_wait():
    names = ["one", "two", "n0", "all", "named", "n1", "withdrawn", "n2"]
    assert assert_same(batch_of(names, "mixed"), stored=waiting()) == 6
    # Labels of the prediction are added to those that wait, record by record.
    labelled = batch_of(names, label_counts=[[1, 0, 0], [0, 0, 0]] * 4)
    assert assert_same(labelled, stored=waiting()) == 5


def test_known_deleted_and_expired_ids():
    names = [*NEW[:5], "wide1", "gone2", "labelled0", "early3", *NEW[5:9]]
    assert assert_same(batch_of(names)) == 10
    assert assert_same(batch_of(NEW, hours=(0, 1, 2, 3))) == 20


def test_a_record_of_another_model_version_is_left_to_the_join():
    """A label of a class that the model has not: neither way joins it by columns."""
    stored = {"one": waiting()["one"], "other": waiting()["other"]}
    (model,) = join_of([batch_of(["one", "other"])], True, stored)[0].models.values()
    assert model.columns.n == 1
    assert "other" in model.after


@pytest.mark.parametrize(
    "then",
    [
        batch_of(NEW[:3]),
        batch_of(NEW[:3], seed=2),
        batch_of([*NEW[:3], "x1", "x2"], "wide"),
        first([*NEW[:9], "x1"]),
        [LabelRow("n1", {}, [("ann", 2, None)])],
        "n2",
    ],
)
def test_an_id_that_changes_again_in_the_same_commit(then):
    assert_same(batch_of(NEW), then)
    assert_same(then, batch_of(NEW))
    assert_same(first([*NEW[:9], "x1"]), then, batch_of([*NEW, "x1"]))
    assert_same(batch_of(NEW), then, first(NEW[:12], 2), "n5")


def test_labels_that_wait_for_one_another():
    assert assert_same(first([f"y{i}" for i in range(9)])) == 9
    assert assert_same(first(["y1", "y2"]), first(["y2", "y3"], 2)) == 2
    assert assert_same([*first(["y1", "y2"]), *first(["y2"], 2)]) == 0
    assert assert_same([*first(["y1", "y2"]), LabelRow("y3", {0: 2**31}, [])]) == 2
