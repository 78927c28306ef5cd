"""First labels of hundreds of predictions at random: by columns as record by record, and as the library fills the final facts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.label_join import LabelJoin
from calibrant_server.workers.ingest.payloads import SentLabels, pack_labels
from calibrant_server.workers.ingest.tail_rows import TailRows
from calibrant_server.workers.store.watermarks import Watermarks
from tests.workers.driving import MODEL
from tests.workers.test_first_labels import AT_US, HOUR_US, NOW_MS, Dictionary, written
from tests.workers.test_late_labels import assert_same_state

N = 150
KINDS = ("wide", "narrow", "exact", "logits")


class Kept(Dictionary):
    """Records, none of them expired."""

    def marks(self, config):
        return Watermarks()


def scores_of(kind, rng, k):
    if kind == "exact":
        return rng.permuted(np.tile([0.25, *[0.0] * (k - 2), 0.75], (N, 1)), axis=1)
    if kind == "logits":
        return rng.normal(size=(N, k)) * 3
    scores = rng.dirichlet(np.ones(k), N)
    return scores.astype(np.float32) if kind == "narrow" else scores


def batches(rng, config):
    """Predictions of each kind in two hours, every second batch with weights."""
    for number, kind in enumerate(KINDS):
        columns = {
            "ids": [f"{kind}{i}" for i in range(N)],
            "logits" if kind == "logits" else "probabilities": scores_of(
                kind, rng, config.n_classes
            ),
        }
        if number % 2:
            columns["weights"] = rng.choice([1.0, 2.5, 0.1], N)
        batch = Batch.from_columns(columns, task=config.task, n_classes=config.n_classes).batch
        yield replace(batch, event_times=AT_US + rng.integers(0, 2 * HOUR_US, N))


def applied(config, stored, entries, by_columns):
    join = LabelJoin(Kept(stored), by_columns)
    outcomes = [
        join.sent_labels(config, SentLabels.unpack(pack_labels(rows)), NOW_MS, order)
        for order, rows in enumerate(entries, 1)
    ]
    return join, outcomes


def change_panes(config, join):
    """What each hour gains."""
    panes = {}
    for key, change in join.changes().items():
        pane = panes[key.start_s] = Pane(config.spec())
        for rows in change.rows(TailRows, 5):
            if rows.sign[0] > 0:
                rows.fill_into(pane, "", lambda: Pane(config.spec()))
    return panes


@pytest.mark.parametrize(("task", "k"), [("binary", 2), ("multiclass", 10)])
def test_random_labels(task, k):
    rng = np.random.default_rng(k)
    config = replace(MODEL, task=task, n_classes=k)
    sent, store = list(batches(rng, config)), Kept({})
    for batch in sent:
        join = LabelJoin(store)
        join.predictions(config, batch, NOW_MS - 1000)
        store.stored |= {
            n: each.pack() for n, each in next(iter(join.models.values())).after.items()
        }
    names = rng.permutation([name for batch in sent for name in batch.ids]).tolist()
    classes, counts = rng.integers(0, k, len(names)), rng.choice([1, 1, 2, 1000], len(names))
    rows = [
        LabelRow(name, {int(c): int(n)}, [])
        for name, c, n in zip(names, classes, counts, strict=True)
    ]
    again = [LabelRow(name, {0: 1}, []) for name in names[:20]]
    # The second entry of ids that the first has labelled takes them out of the columns again.
    entries = [rows[:400], [*again, *rows[400:450]], rows[450:]]
    columns, own = applied(config, store.stored, entries, True)
    records, expected = applied(config, store.stored, entries, False)
    assert next(iter(columns.models.values())).columns.n == len(names) - 20
    assert own == expected
    assert written(columns) == written(records)
    left, right = change_panes(config, columns), change_panes(config, records)
    assert left.keys() == right.keys()
    final = {name: np.zeros(k, int) for name in names}
    for row in (*rows, *again):
        for class_index, n in row.unnamed.items():
            final[row.id][class_index] += n
    for start, pane in left.items():
        assert_same_state(pane, right[start])
        assert_same_state(pane, filled(config, sent, start, final))


def filled(config, sent, start_s, final):
    """The pane of an hour that the library fills from the final facts."""
    pane = Pane(config.spec())
    for batch in sent:
        some = batch.take(np.flatnonzero(batch.event_times // HOUR_US == start_s // 3600))
        columns = {
            "ids": list(some.ids),
            "logits" if some.is_logits else "probabilities": some.scores,
            "label_counts": [final[name] for name in some.ids],
            "weights": np.ones(some.n) if some.weights is None else some.weights,
        }
        pane.fill_batch(
            Batch.from_columns(columns, task=config.task, n_classes=config.n_classes).batch
        )
    return pane
