"""Probabilities sent as float32 are retained in four bytes each, and give back the very bits that were filled."""

from __future__ import annotations

import struct
from hashlib import blake2b

import numpy as np
import pytest

from calibrant import Batch
from calibrant_server.workers.join.facts import EntryFacts
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.join.records import Records
from tests.workers.driving import MODEL
from tests.workers.joins import MemoryRecords


def softmax(n, k, dtype=np.float32):
    z = np.random.default_rng(k).normal(scale=3, size=(n, k)).astype(dtype)
    power = np.exp(z - z.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def batch_of(scores, name="probabilities", **others):
    names = [f"i{i}" for i in range(len(scores))]
    return Batch.from_columns({name: scores, "ids": names, **others}, task="multiclass").batch


def stored(batch):
    """The stored records of the rows of a batch."""
    join = MemoryRecords().join()
    join.add(MODEL, EntryFacts.of_predictions("p", batch, 1000))
    [model] = join.joined()
    return model.written


def read(records):
    """The predictions of stored records, and their scores as they were filled."""
    predictions = Records.read(records).predictions
    return predictions, predictions.scores.values


@pytest.mark.parametrize("k", [2, 3, 7, 8, 10, 33, 300])
def test_what_was_sent_is_found_and_divides_into_what_was_filled(k):
    sent = softmax(300, k)
    batch = batch_of(sent)
    divides = np.abs(sent.astype(np.float64).sum(axis=1) - 1) > 1e-9
    assert divides.sum() > 200
    records = stored(batch)
    predictions, scores = read(records)
    assert predictions.is_divided.tolist() == divides.tolist()
    assert scores.tobytes() == batch.scores.tobytes()
    assert max(map(len, records)) < 44 + 4 * k
    assert Records.read(records).write() == records


@pytest.mark.parametrize("k", [2, 10])
def test_other_numbers_are_kept_as_they_are(k):
    wide, certain = softmax(200, k, np.float64), np.eye(k)
    for probabilities in (wide, certain, np.full((1, k), 1 / k), np.round(wide[:50], 4)):
        batch = batch_of(probabilities)
        assert read(stored(batch))[1].tobytes() == batch.scores.tobytes()
    assert not any(read(stored(batch_of(each)))[0].is_divided.any() for each in (wide, certain))


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_a_sum_that_is_none_is_no_record(wrong):
    [record] = stored(batch_of(softmax(1, 3)))
    assert read([record])[0].is_divided.all()
    with pytest.raises(ValueError, match="no sum of probabilities"):
        read([record[:-8] + np.float64(wrong).tobytes()])


FORMS = [
    ("probabilities", softmax(2, 3)),
    ("probabilities", np.array([[0.5, 0.25, 0.25]] * 2)),
    ("probabilities", softmax(2, 3, np.float64)),
    ("logits", np.array([[1.5, -2.0, 0.0]] * 2)),
]
OTHERS = [
    {},
    {"weights": [0.1, 0.2]},
    {"units": ["u", "v"], "cases": ["c", "d"], "slices": {"site": ["A", "B"], "by": ["x", "y"]}},
    {"cases": ["c", "d"]},
]


def test_records_of_every_form_are_read_together():
    batches = [batch_of(scores, name, **others) for name, scores in FORMS for others in OTHERS]
    records = [record for batch in batches for record in stored(batch)]
    predictions, scores = read(records)
    forms = zip(predictions.flags.tolist(), predictions.is_divided.tolist(), strict=True)
    assert len(set(forms)) >= 12
    assert scores.tobytes() == b"".join(batch.scores.tobytes() for batch in batches)
    assert Records.read(records).write() == records
    assert not predictions.is_divided[predictions.is_logits].any()
    for cut in (1, 8, 9, 20):
        for record in records:
            with pytest.raises(RecordError):
                _ = Records.read([record[:-cut]]).predictions.names


def test_records_of_other_numbers_of_classes_are_not_read_together():
    with pytest.raises(ValueError, match="2 and 3 scores"):
        read(stored(batch_of(softmax(1, 3))) + stored(batch_of(softmax(1, 2))))


def test_the_digest_of_a_row_is_that_of_its_columns_in_order():
    """Repeats of stored predictions are recognised by it, so that it never changes."""
    columns = {
        "label_counts": [[1, 0, 2], [0, 0, 0]],
        "weights": [0.1, 1e-7],
        "event_times": ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000001Z"],
        "units": ["u", "v"],
        "slices": {"site": ["A", "B"]},
    }
    batch = batch_of([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]], **columns)
    for i, digest in enumerate(read(stored(batch))[0].sent):
        state = blake2b(batch.scores[i].tobytes(), digest_size=8)
        state.update(b"p" + [struct.pack("<HIHI", 0, 1, 2, 2), b""][i])
        state.update(f"\1{columns['weights'][i]}\1{1_700_000_000_000_000 + i}".encode())
        state.update(f"\1{columns['units'][i]}\0\2site\3{columns['slices']['site'][i]}".encode())
        assert digest.tobytes() == state.digest()
