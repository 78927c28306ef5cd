"""What a record and a store of records have room for: refused when it is asked for, never merged in part, never in the way."""

from __future__ import annotations

from dataclasses import replace

from calibrant import Batch
from calibrant.input.labels import MOST_NAMED, WITHDRAWN, LabelRow
from tests.engine.driving import MODEL
from workers.entries import LABELS, PREDICTIONS, pack_labels
from workers.facts import FULL, GONE, MOST_VOTES, NEW, Facts
from workers.filling import Ground
from workers.inbox import Delivery


def predictions(*names, batch_id=None):
    """Unlabelled predictions of these ids on their way in."""
    columns = {"probabilities": [[0.2, 0.5, 0.3]] * len(names), "ids": list(names)}
    batch = Batch.from_columns(columns).batch
    return Delivery(
        MODEL, batch_id or f"p-{names[0]}", PREDICTIONS, batch.pack(), batch.digest(), batch.n, retains=True
    )


def labels(*rows, batch_id="l"):
    """Labels on their way in."""
    payload = pack_labels(rows)
    ids = tuple(row.id for row in rows)
    return Delivery(MODEL, batch_id, LABELS, payload, payload[-16:], len(rows), retains=True, ids=ids)


def test_a_record_takes_so_many_raters_and_no_more():
    facts = Facts(0)
    for i in range(MOST_NAMED):
        facts, result = facts.rated(f"r{i}", i % 3, None, 1)
        assert result == NEW
    assert facts.rated("one-more", 0, None, 2) == (facts, FULL)
    revised, result = facts.rated("r0", WITHDRAWN, None, 2)
    assert result == NEW and Facts.unpack(revised.pack()) is not None
    assert facts.removed()[0].rated("one-more", 0, None, 3)[1] == GONE


def test_a_record_takes_so_many_votes_and_no_more():
    facts, result = Facts(0).voted({1: MOST_VOTES})
    assert result == NEW
    assert facts.voted({1: 1}) == (facts, FULL)
    more, result = facts.voted({0: 1})
    assert result == NEW and Facts.unpack(more.pack()).votes == {0: 1, 1: MOST_VOTES}


def test_a_rater_too_many_is_an_error_of_his_row(bench):
    bench.put_model()
    bench.engine(ground=Ground())
    crowd = LabelRow("i1", {}, [(f"r{i}", 1, None) for i in range(MOST_NAMED)])
    bench.deliver(predictions("i1", "i2"), labels(crowd))
    assert bench.merged("l").status == "merged"
    bench.deliver(labels(LabelRow("i1", {}, [("late", 1, None)]), LabelRow("i2", {}, [("late", 1, None)]), batch_id="l2"))
    receipt = bench.merged("l2")
    assert (receipt.accepted, receipt.rejected) == (1, 1)
    assert [(each["pointer"], each["rule"]) for each in receipt.errors] == [("/ids/0", "too_many_ratings")]


def test_what_cannot_be_written_is_set_aside_and_the_rest_goes_on(bench, monkeypatch):
    """Whatever the reason: an entry of which the commit cannot be made must not stop its partition."""
    bench.put_model()
    pack = Facts.pack

    def failing(facts):
        if "poison" in facts.ratings:
            raise ArithmeticError("it does not fit")
        return pack(facts)

    monkeypatch.setattr(Facts, "pack", failing)
    bench.settings = replace(bench.settings, child_timeout_s=20.0)
    bench.engine(ground=Ground())
    poison = labels(LabelRow("i1", {}, [("poison", 1, None)]), batch_id="bad")
    bench.deliver(predictions("i1"), poison)
    bench.deliver(labels(LabelRow("i1", {2: 1}, []), batch_id="good"))
    assert bench.merged("good", seconds=30).status == "merged"
    assert bench.merged("bad").status == "dead_lettered"
    [letter] = bench.dead_letters()
    assert b"it does not fit" in letter[b"why"]
