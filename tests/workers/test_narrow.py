"""Probabilities sent as float32 are retained in four bytes each, and give back the very bits that were filled."""

from __future__ import annotations

import struct
from hashlib import blake2b

import numpy as np
import pytest

from calibrant import Batch
from calibrant.core.float32 import narrow_scores
from calibrant_server.workers.join.record_format import RecordError
from tests.workers.one_prediction import prediction_of, scores_of_one
from tests.workers.oracle.prediction_rows import row_digests, rows_of
from tests.workers.oracle.retained_prediction import scores_of
from tests.workers.oracle.retained_record import Rating, RetainedRecord


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
    return [RetainedRecord(0, prediction) for prediction in rows_of(batch, 0)[0]]


def is_divided(scores):
    """Which rows are stored as float32 and the sum that they are divided by."""
    fits, _, totals = narrow_scores(scores, np.zeros(len(scores), np.bool_))
    return (fits & (totals != 1.0)).tolist()


@pytest.mark.parametrize("k", [2, 3, 7, 8, 10, 33, 300])
def test_what_was_sent_is_found_and_divides_into_what_was_filled(k):
    sent = softmax(300, k)
    batch = batch_of(sent)
    divides = np.abs(sent.astype(np.float64).sum(axis=1) - 1) > 1e-9
    assert divides.sum() > 200
    assert is_divided(batch.scores) == divides.tolist()
    assert [record.prediction.is_divided for record in records(batch)] == divides.tolist()
    for i, record in enumerate(records(batch)):
        packed = record.pack()
        assert len(packed) == record.n_bytes < 44 + 4 * k
        again = RetainedRecord.unpack(packed)
        assert scores_of_one(again.prediction).tobytes() == batch.scores[i].tobytes()
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
        for i, record in enumerate(records(batch)):
            again = RetainedRecord.unpack(record.pack()).prediction
            assert scores_of_one(again).tobytes() == batch.scores[i].tobytes()
    assert not any(is_divided(batch_of(several[0]).scores))
    assert not any(is_divided(np.eye(k)))


def test_a_sum_that_is_none_is_no_record():
    record = records(batch_of(softmax(1, 3)))[0]
    packed = record.pack()
    assert record.prediction.is_divided
    total = record.prediction.packed[-8:]
    assert packed.count(total) == 1
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(RecordError):
            RetainedRecord.unpack(packed.replace(total, np.float64(wrong).tobytes()))


def test_a_record_of_logits_is_narrow_as_it_was():
    batch = Batch.from_columns({"logits": softmax(5, 10), "ids": list("abcde")}).batch
    for record in records(batch):
        assert not record.prediction.is_divided and len(record.pack()) < 80


def some_predictions():
    """One of each form: divided, float32, float64, logits; with and without the other columns."""
    rows = [softmax(1, 3)[0].astype(np.float64), np.array([0.5, 0.25, 0.25])]
    rows[0] /= rows[0].sum()
    rows += [softmax(1, 3, np.float64)[0], np.array([1.5, -2.0, 0.0])]
    others = [
        {},
        {"weight": 0.1},
        {"unit": "u", "case": "c", "slices": (("site", "A"), ("scanner", "B"))},
        {"case": "c"},
    ]
    return [
        prediction_of(scores, scores.sum() < 0, 7, b"12345678", **other)
        for scores in rows
        for other in others
    ]


def test_rows_of_every_form_are_decoded_together_as_one_by_one():
    predictions = some_predictions()
    together = scores_of(predictions)
    assert len({(each.flags, each.is_divided) for each in predictions}) >= 12
    for i, each in enumerate(predictions):
        assert scores_of_one(each).tobytes() == together[i].tobytes()
        record = RetainedRecord(9, each, {2: 3, 1: 0}, {"ann": Rating(1, 0, 5)}, delay=4)
        again = RetainedRecord.unpack(record.pack())
        assert record.n_bytes == len(record.pack()) == again.n_bytes
        assert again.pack() == record.pack()
        for name in ("packed", "flags", "event_us", "sent", "weight", "unit", "case", "slices"):
            assert getattr(again.prediction, name) == getattr(each, name)


def test_rows_of_other_numbers_of_classes_are_not_decoded_together():
    two = prediction_of(np.array([0.5, 0.5]), False, 0, b"12345678")
    with pytest.raises(ValueError, match="2 and 3 scores"):
        scores_of([some_predictions()[0], two])


@pytest.mark.parametrize("cut", [1, 8, 9, 20])
def test_a_record_that_was_cut_off_is_rejected(cut):
    for each in some_predictions():
        packed = RetainedRecord(0, each).pack()
        with pytest.raises(RecordError):
            RetainedRecord.unpack(packed[:-cut])


def test_the_digest_of_a_row_is_that_of_its_columns_in_order():
    """Repeats of stored predictions are recognised by it, so that it never changes."""
    columns = {
        "probabilities": [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]],
        "label_counts": [[1, 0, 2], [0, 0, 0]],
        "ids": ["a", "b"],
        "weights": [0.1, 1e-7],
        "event_times": ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000001Z"],
        "units": ["u", "v"],
        "slices": {"site": ["A", "B"]},
    }
    batch = Batch.from_columns(columns, task="multiclass").batch
    for i, digest in enumerate(row_digests(batch)):
        state = blake2b(batch.scores[i].tobytes(), digest_size=8)
        state.update(b"p" + [struct.pack("<HIHI", 0, 1, 2, 2), b""][i])
        state.update(f"\1{columns['weights'][i]}\1{1_700_000_000_000_000 + i}".encode())
        state.update(f"\1{columns['units'][i]}\0\2site\3{columns['slices']['site'][i]}".encode())
        assert digest == state.digest()
