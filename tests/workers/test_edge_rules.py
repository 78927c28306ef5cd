"""Rows stay with the rule of edges by which they were filled: a later label subtracts them from the cells that they are in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.core.edge_rules import BFLOAT16, EXACT, FLOAT16, FLOAT32
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.join.facts import EntryFacts
from calibrant_server.workers.join.record_format import EDGE_RULE_BIT
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.segments.rows import Rows, batches_of
from tests.workers.joins import MemoryRecords, rows_of
from tests.workers.oracle.retained_record import RetainedRecord
from tests.workers.test_join import CONFIG

# The float32 of 0.4 is above it: on the edge today, and in the bin above it when only 0.4 itself was on the edge.
SCORE = float(np.float32(0.4))
SPEC = PaneSpec("multiclass", 4)
SCORES = [[SCORE, 0.25, 0.25, 0.5 - SCORE]] * 3


def sent(rule):
    columns = {"probabilities": SCORES, "ids": ["a", "b", "c"], "labels": [0, None, None]}
    return replace(Batch.from_columns(columns).batch, edge_rules=np.full(3, rule, np.uint8))


def stored_by_the_first_rule():
    """Records and rows of a store as it was written before rows had a rule."""
    records, join = MemoryRecords(), MemoryRecords().join()
    join.add(CONFIG, EntryFacts.of_predictions("0", sent(EXACT), 1_000))
    records.commit(join)
    assert all(data[0] < 1 << EDGE_RULE_BIT for data in records.stored.values())
    [change] = join.changes().values()
    return records, Rows.unpack(rows_of(change).pack())


def filled(rows):
    pane = Pane(SPEC)
    rows.fill_into(pane, "", lambda: Pane(SPEC))
    return pane


def bins_of(pane):
    return {i: n for i, n in enumerate(pane.reliability(bins=10).bin_count.tolist()) if n}


def label(records):
    join = records.join()
    labels = [["b", [[1, 1]], []], ["c", [[0, 1]], []]]
    join.add(CONFIG, EntryFacts.of_labels("1", labels, 2_000, 1))
    records.commit(join)
    [change] = join.changes().values()
    return rows_of(change)


def test_a_later_label_is_subtracted_where_the_row_was_added():
    records, rows = stored_by_the_first_rule()
    pane = filled(rows)
    assert bins_of(pane) == {4: 1}
    changed = label(records)
    assert changed.fixed["edge_rule"].tolist() == [EXACT] * len(changed)
    pane.merge(filled(changed.where(changed.fixed["count"] > 0)))
    delta = Pane(SPEC)
    for batch in batches_of(changed.where(changed.fixed["count"] < 0)):
        delta.fill_batch(batch)
    pane.subtract(delta)
    assert bins_of(pane) == {4: 3}
    assert pane.evaluate("accuracy")["accuracy"].value == pytest.approx(2 / 3)


def test_a_row_of_today_is_on_the_edge_and_stays_there():
    records, join = MemoryRecords(), MemoryRecords().join()
    join.add(CONFIG, EntryFacts.of_predictions("0", sent(FLOAT32), 1_000))
    records.commit(join)
    [change] = join.changes().values()
    rows = Rows.together([rows_of(change), label(records).of_part(9)])
    assert bins_of(filled(rows)) == {3: 3}


@pytest.mark.parametrize("rule", [EXACT, FLOAT32, FLOAT16, BFLOAT16])
def test_a_record_states_its_rule_and_keeps_it(rule):
    records, join = MemoryRecords(), MemoryRecords().join()
    join.add(CONFIG, EntryFacts.of_predictions("0", sent(rule), 1_000))
    records.commit(join)
    label(records)
    packed = list(records.stored.values())
    read = Records.read(packed)
    assert read.predictions.edge_rules.tolist() == [rule] * 3
    assert read.write() == packed == [RetainedRecord.unpack(data).pack() for data in packed]


def test_rows_of_two_rules_do_not_cancel():
    rows = Rows.of_batch(sent(EXACT), 0)
    gone = Rows.of_batch(sent(FLOAT32), 1).with_columns(count=-1)
    assert len(Rows.together([rows, gone]).net) == 6
    assert len(Rows.together([rows, gone.with_columns(edge_rule=EXACT)]).net) == 0
