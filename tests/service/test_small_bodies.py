# ruff: noqa: UP031 - braces of JSON would have to be doubled
"""Small JSON bodies after a short check: the same entry of the stream, to the bit, and the same errors as in full."""

from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import patch

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.http.bodies import JSON, NDJSON, Body
from calibrant_server.service.http.problems import Problem
from calibrant_server.service.ingest.model_rules import Limits
from calibrant_server.service.ingest.service import IngestContext
from calibrant_server.service.ingest.small_bodies import MAX_BYTES, small_predictions
from calibrant_server.service.routes import ingest
from calibrant_server.service.settings import Settings
from calibrant_server.workers.store.model_config import ModelConfig


def context_of(n_classes, task="multiclass", **more):
    config = ModelConfig("default", "m", task, n_classes, generation="g", revision=3, **more)
    return IngestContext(
        tenant="default",
        model="m",
        config=config,
        partial=False,
        received_at=datetime(2026, 1, 2, tzinfo=UTC),
        idempotency_key="agreed",
        settings=Settings(max_rows=100),
        limits=Limits(1000, 300),
    )


def outcome(body, context):
    """All fields of the entry, or the errors."""
    try:
        found = vars(ingest.load_predictions(body, context))
        return found | {"violations": list(found["violations"])}
    except CalibrationInputError as error:
        return error.violations
    except Problem as error:
        return type(error), error.detail, error.errors


def in_full(body, context):
    with patch.object(ingest, "small_predictions", lambda body, context: None):
        return outcome(body, context)


def assert_same(data, context):
    body = Body(JSON, data)
    assert outcome(body, context) == in_full(body, context)


def is_read(data, context):
    return small_predictions(Body(JSON, data), context) is not None


def columns_of(seed, n, n_classes, kind, labels):
    """Generated scores of one kind, and labels of one form."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(n_classes, 0.3), n)
    if kind == "float32":
        scores = scores.astype("f4").astype("f8")
    elif kind == "rounded":
        scores = np.round(scores, 4)
    elif kind == "certain":
        scores = np.eye(n_classes)[rng.integers(0, n_classes, n)]
    columns = {"probabilities": scores.tolist()}
    if kind == "logits":
        columns = {"logits": (50 * rng.normal(size=(n, n_classes))).tolist()}
    rated = [rng.integers(0, n_classes, int(rng.integers(1, 9))).tolist() for _ in range(n)]
    forms = {
        "one": [each[0] for each in rated],
        "equal": rng.integers(0, n_classes, (n, 5)).tolist(),
        "ragged": rated,
        "wrong": [[*each, n_classes] for each in rated],
    }
    return columns | {"labels": forms[labels]}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(2, 40),
    st.sampled_from(["float64", "float32", "rounded", "certain", "logits"]),
    st.sampled_from(["one", "equal", "ragged", "wrong"]),
)
def test_the_same_entry(seed, n, n_classes, kind, labels):
    data = orjson.dumps(columns_of(seed, n, n_classes, kind, labels))
    context = context_of(n_classes)
    assert_same(data, context)
    if labels != "wrong":
        assert is_read(data, context) or len(data) >= MAX_BYTES


P = '"probabilities": [[0.25, 0.75]]'
L = '"labels": [0]'
BODIES = [
    "{%s, %s}" % (L, P),
    "{%s, %s} " % (P, L),
    "{%s, %s}x" % (P, L),
    "{%s, %s, %s}" % (P, L, L),
    "{%s, %s, %s}" % (P, P, L),
    '{%s, %s, "batch_id": "b-1"}' % (P, L),
    '{%s, %s, "batch_id": "agreed"}' % (P, L),
    '{%s, %s, "batch_id": "agreed" , "batch_id": "agreed"}' % (P, L),
    '{%s, %s, "batch_id": "."}' % (P, L),
    '{%s, %s, "batch_id": ".."}' % (P, L),
    '{%s, %s, "batch_id": ""}' % (P, L),
    '{%s, %s, "batch_id": "a b"}' % (P, L),
    '{%s, %s, "batch_id": "%s"}' % (P, L, "a" * 128),
    '{%s, %s, "batch_id": "%s"}' % (P, L, "a" * 129),
    '{%s, %s, "batch_id": "agr\\u0065ed"}' % (P, L),
    '{%s, %s, "batch_id": "agreed" 1}' % (P, L),
    '{%s, %s, "batch_id": agreed}' % (P, L),
    '{%s, %s, "batch_id": null}' % (P, L),
    '{%s, %s, "batch_id": 1}' % (P, L),
    '{%s, %s, "ids": ["a"]}' % (P, L),
    '{%s, %s, "weights": [2]}' % (P, L),
    '{%s, %s, "source": "a", "offsets": [1, 2]}' % (P, L),
    '{%s, %s, "unknown": 1}' % (P, L),
    '{%s, "logits": [[0.5, 1.5]], %s}' % (P, L),
    "{%s}" % P,
    "{%s}" % L,
    "{}",
    "[]",
    "",
    '{%s, "labels": []}' % P,
    '{%s, "labels": [[]]}' % P,
    '{%s, "labels": [null]}' % P,
    '{%s, "labels": [true]}' % P,
    '{%s, "labels": [1.0]}' % P,
    '{%s, "labels": [-1]}' % P,
    '{%s, "labels": [-0]}' % P,
    '{%s, "labels": [2]}' % P,
    '{%s, "labels": [0, 1]}' % P,
    '{%s, "labels": [["a"]]}' % P,
    '{%s, "labels": [[123456789012345678]]}' % P,
    '{%s, "labels": [[1234567890123456789012]]}' % P,
    '{%s, "label_counts": [[1, 0]]}' % P,
    '{%s, "labels": [%s]}' % (P, [1] * 127),
    '{%s, "labels": [%s]}' % (P, [1] * 128),
    '{%s, "labels": [%s]}' % (P, [0] * 130),
    '{"confidences": [0.25], %s}' % L,
    '{"probabilities": [0.25], %s}' % L,
    '{"probabilities": [[0.25]], %s}' % L,
    '{"probabilities": [[0.25, 0.5, 0.25]], %s}' % L,
    '{"probabilities": [], "labels": []}',
    '{"probabilities": [[]], %s}' % L,
    '{"probabilities": [[0.25, 0.75], [1]], "labels": [0, 0]}',
    '{"probabilities": [[0.25, 0.75], [0.5, 0.5]], "labels": [0, 0]}',
    '{"probabilities": [[0.25, 0.75], [0.5, 0.5]], "labels": [1, 0]}',
    '{"probabilities": [[0.25, 0.75], [0.5, 0.5]], "labels": [1, 1]}',
    '{"probabilities": [[1, 0], [0.5, 0.5]], "labels": [1, 1]}',
    '{"probabilities": [[1, 0]], %s}' % L,
    '{"probabilities": [[0.0, 1.0]], %s}' % L,
    '{"probabilities": [[-0.0, 1.0]], %s}' % L,
    '{"probabilities": [[-1e-9, 1.0]], %s}' % L,
    '{"probabilities": [[1e-320, 1.0]], %s}' % L,
    '{"probabilities": [[1e999, 1.0]], %s}' % L,
    '{"probabilities": [[true, 0.5]], %s}' % L,
    '{"probabilities": [["0.5", 0.5]], %s}' % L,
    '{"probabilities": [[null, 0.5]], %s}' % L,
    '{"probabilities": [[NaN, 0.5]], %s}' % L,
    '{"probabilities": [[0.5, 0.5000000011]], %s}' % L,
    '{"probabilities": [[0.5, 0.5000000009]], %s}' % L,
    '{"probabilities": [[0.5, 0.5009999]], %s}' % L,
    '{"probabilities": [[0.5, 0.5010001]], %s}' % L,
    '{"probabilities": [[0.5, 0.5]], "labels": [0], "labels": [1]}',
    '{"logits": [[3.4028234663852886e38, -3.4028234663852886e38]], %s}' % L,
    '{"logits": [[3.5e38, 0.5]], %s}' % L,
    '{"logits": [[-3.5e38, 0.5]], %s}' % L,
    '{"logits": [[-2, 5]], %s}' % L,
    '{"logits": [[-2, 0.5]], %s}' % L,
]  # fmt: skip


@pytest.mark.parametrize("text", BODIES)
def test_unusual_and_invalid_bodies(text):
    for context in (context_of(2), context_of(2, "binary")):
        for partial in (False, True):
            assert_same(text.encode(), replace(context, partial=partial))


def test_what_is_unusual_is_read_in_full():
    plain = b"{%s, %s}" % (P.encode(), L.encode())
    context = context_of(2)
    assert is_read(plain, context)
    assert not is_read(plain, replace(context, config=None))
    assert not is_read(plain, context_of(2, "segmentation"))
    assert small_predictions(Body(NDJSON, plain), context) is None
    assert not is_read(plain + b" " * 4096, context)
    assert not is_read(plain, replace(context, settings=Settings(max_rows=0)))
    for data in (plain, plain + b" " * 4096):
        for other in (replace(context, config=None), context_of(2, "segmentation"), context_of(3)):
            assert_same(data, other)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damaged_text(data):
    """A cut, or another byte, gives what it gives in full."""
    whole = orjson.dumps(columns_of(1, 2, 3, "float64", "ragged") | {"batch_id": "b"})
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.sampled_from(b'\x00"{}[],:.-+eE0 9\\\xff'))
    assert_same(whole[:at], context_of(3))
    assert_same(whole[:at] + bytes([byte]) + whole[at + 1 :], context_of(3))
