"""Probabilities sent as float32 are retained in four bytes each, and give back the very bits that were filled."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch
from calibrant.core.float32 import sent_as_float32
from calibrant_server.workers.ingest.retained_record import RecordError, RetainedRecord
from calibrant_server.workers.ingest.retained_rows import rows_of


def softmax(n, k, dtype=np.float32):
    z = np.random.default_rng(k).normal(scale=3, size=(n, k)).astype(dtype)
    power = np.exp(z - z.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def batch_of(probabilities):
    names = [f"i{i}" for i in range(len(probabilities))]
    return Batch.from_columns(
        {"probabilities": probabilities, "ids": names}, task="multiclass"
    ).batch


def records(batch):
    return [RetainedRecord(0, prediction) for _, prediction, _ in rows_of(batch, 0)]


@pytest.mark.parametrize("k", [2, 3, 7, 8, 10, 33, 300])
def test_what_was_sent_is_found_and_divides_into_what_was_filled(k):
    sent = softmax(300, k)
    batch = batch_of(sent)
    divides = np.abs(sent.astype(np.float64).sum(axis=1) - 1) > 1e-9
    assert divides.sum() > 200
    found = sent_as_float32(batch.scores)
    assert [each is not None for each in found] == divides.tolist()
    for i in np.flatnonzero(divides):
        assert np.array_equal(found[i].sent, sent[i])
        assert found[i].scores.tobytes() == batch.scores[i].tobytes()
    for i, facts in enumerate(records(batch)):
        packed = facts.pack()
        assert len(packed) < 44 + 4 * k
        again = RetainedRecord.unpack(packed)
        assert again.prediction.scores.tobytes() == batch.scores[i].tobytes()
        assert again.pack() == packed


@pytest.mark.parametrize("k", [2, 10])
def test_other_numbers_are_kept_as_they_are(k):
    several = [
        softmax(200, k, np.float64),
        np.eye(k),
        np.full((1, k), 1 / k),
        np.round(softmax(50, k, np.float64), 4),
    ]
    for probabilities in several:
        batch = batch_of(probabilities)
        for i, facts in enumerate(records(batch)):
            again = RetainedRecord.unpack(facts.pack()).prediction
            assert again.scores.tobytes() == batch.scores[i].tobytes()
    assert not any(each is not None for each in sent_as_float32(batch_of(several[0]).scores))
    assert not any(each is not None for each in sent_as_float32(np.eye(k)))


def test_a_sum_that_is_none_is_no_record():
    facts = records(batch_of(softmax(1, 3)))[0]
    packed = facts.pack()
    total = np.float64(facts.prediction.narrow.total).tobytes()
    assert packed.count(total) == 1
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(RecordError):
            RetainedRecord.unpack(packed.replace(total, np.float64(wrong).tobytes()))


def test_a_record_of_logits_is_narrow_as_it_was():
    batch = Batch.from_columns({"logits": softmax(5, 10), "ids": list("abcde")}).batch
    for facts in records(batch):
        assert facts.prediction.narrow is None and len(facts.pack()) < 80
