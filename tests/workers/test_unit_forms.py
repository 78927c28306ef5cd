"""A unit whose predictions come in several batches and forms weighs one: logits and probabilities, with a case and without."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant_server.workers.join.facts import EntryFacts
from tests.workers.driving import MODEL
from tests.workers.joins import MemoryRecords, rows_of
from tests.workers.test_late_labels import assert_same_state

AT_MS = 1_767_225_600_000
LOGITS = [[0.4, -1.0, 2.25], [0.0, 0.5, -0.75]]
AS_SENT = Batch.from_columns({"logits": LOGITS}).batch.probabilities.tolist()
PARTS = {
    "l": {"logits": LOGITS, "ids": ["l0", "l1"], "units": ["u", "v"], "labels": [2, [0, 1]]},
    "p": {"probabilities": [[0.2, 0.3, 0.5]], "ids": ["p0"], "units": ["u"], "labels": [1]},
    "c": {
        "probabilities": [[0.1, 0.8, 0.1]],
        "ids": ["c0"],
        "units": ["u"],
        "cases": ["scan"],
        "labels": [1],
    },
}
# The unit v came as logits alone and stays so; the rows of u have probabilities in common.
WHOLE = [
    {"logits": LOGITS[1:], "ids": ["l1"], "units": ["v"], "labels": [[0, 1]]},
    {
        "probabilities": [AS_SENT[0], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1]],
        "ids": ["l0", "p0", "c0"],
        "units": ["u"] * 3,
        "labels": [2, 1, 1],
    },
]


def joined(order, removed=()):
    """The pane of all rows after batches in some order, each a run of its own, and removals."""
    store, pane = MemoryRecords(), Pane(MODEL.spec())
    steps = [
        lambda join, name=name: join.add(
            MODEL, EntryFacts.of_predictions("p", Batch.from_columns(PARTS[name]).batch, AT_MS)
        )
        for name in order
    ]
    steps += [
        lambda join, name=name: join.add(MODEL, EntryFacts.of_deletion("d", [name], AT_MS))
        for name in removed
    ]
    for step in steps:
        join = store.join()
        step(join)
        [change] = join.changes().values()
        rows_of(change).fill_into(pane, "", lambda: Pane(MODEL.spec()))
        store.commit(join)
    return pane


def of_columns(columns):
    pane = Pane(MODEL.spec())
    pane.fill_batch(Batch.from_columns(columns).batch)
    return pane


@pytest.mark.parametrize("order", list(permutations("lpc")))
def test_a_unit_weighs_one_in_whatever_forms_it_came(order):
    pane = joined(order)
    assert (pane.counts["n_units"], pane.counts["n_predictions"]) == (2, 4)
    sums = pane["units"].blocks["bins"].sums
    np.testing.assert_allclose(sums[:2].sum(axis=1), [2.0, 2.0], rtol=0, atol=1e-12)
    assert pane.units_split["n"] == 0
    mixed, alone = (Batch.from_columns(columns).batch for columns in reversed(WHOLE))
    expected = Pane(MODEL.spec())
    expected.fill_batch(alone)
    expected.fill_batch(replace(mixed, cases=np.array([None, None, "scan"], dtype=object)))
    assert_same_state(pane, expected)
    case = of_columns(PARTS["c"])
    assert pane["cases"].pack() == case["cases"].pack()


def test_what_is_left_of_it_is_as_if_the_rest_had_never_come():
    rest = joined("lpc", removed=["p0", "c0"])
    expected = of_columns(PARTS["l"])
    assert_same_state(rest, expected)
