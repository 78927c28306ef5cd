"""JSON documents read by the kernel: the same columns, to the bit, and the same errors as from the complete document."""

import struct
from unittest.mock import patch

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.kernel import json_columns
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.problems import Problem
from calibrant_server.service.ingest import columns
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.settings import Settings

SETTINGS = Settings(max_rows=1000)


def outcome(data):
    """The batch's digest and the rejected rows of a document, or its errors."""
    try:
        posted = read_columns(Body(JSON, data), SETTINGS)
        checked = Batch.from_columns(posted.columns, partial=True)
        left = posted.rows_but(checked.accepted_rows.tolist())
        option = orjson.OPT_SERIALIZE_NUMPY
        return checked.batch.digest(), checked.batch.pack(), orjson.dumps(left, option=option)
    except CalibrationInputError as error:
        return error.violations
    except Problem as error:
        return type(error), error.detail


def both(data):
    """The outcome with the kernel, and without."""
    with patch.object(columns, "MIN_KERNEL_BYTES", 0):
        kernel = outcome(data)
    with patch.object(columns, "MIN_KERNEL_BYTES", 1 << 40):
        return kernel, outcome(data)


def is_read(data):
    found = json_columns.read(data)
    return found is not None and any(member.column is not None for member in found.members)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=12).map(str),
    st.tuples(st.integers(0, 10**19), st.integers(-330, 310)).map(lambda at: f"{at[0]}e{at[1]}"),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_every_number_is_the_nearest_double(written):
    data = f'{{"weights": [{", ".join(written)}]}}'.encode()
    found = json_columns.read(data)
    if found is not None:
        [column] = [member.column for member in found.members]
        expected = [float(value) for value in orjson.loads(data)["weights"]]
        assert column.tobytes() == struct.pack(f"{len(expected)}d", *expected)


def test_numbers_halfway_between_two_doubles_and_of_all_sizes_are_read():
    rng = np.random.default_rng(0)
    wide = rng.integers(1 << 52, 1 << 53, 500)
    sizes = rng.random(500) * 10.0 ** rng.integers(-290, 290, 500)
    written = [str(2 * int(each) + 1) for each in wide] + [repr(float(each)) for each in sizes]
    found = json_columns.read(f'{{"weights":[{",".join(written)}]}}'.encode())
    assert found.members[0].column.tolist() == [float(each) for each in written]


ROWS = {"probabilities": [[0.25, 0.75], [1, 0], [1e-3, 0.999]], "labels": [[0], [1, 1, 0], [1]]}
MORE = [
    {},
    {"ids": ["a", 'b"],[{', "ü\\"], "batch_id": "x"},
    {"weights": [1, 2.5, 0], "event_times": ["2026-01-01T00:00:00Z"] * 3},
    {"slices": {"site": ["A", "B", "A"]}, "units": ["p", "p", "q"]},
]


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize(
    "labels", [ROWS["labels"], [0, 1, 1], [[0, 1], [1, 1], [0, 0]], [[0], [7], [1]]]
)
def test_a_plain_document_gives_the_same_batch(more, labels):
    data = orjson.dumps(more | ROWS | {"labels": labels}, option=orjson.OPT_INDENT_2)
    assert is_read(data)
    kernel, complete = both(data)
    assert kernel == complete
    counts = {"probabilities": ROWS["probabilities"], "label_counts": [[1, 0], [0, 2], [3, 3]]}
    kernel, complete = both(orjson.dumps(counts | more))
    assert kernel == complete


UNUSUAL = [
    b'{"probabilities": [0.25, 0.75], "labels": [0, 1]}',
    b'{"probabilities": [[0.25, 0.75], [1]], "labels": [0, 1]}',
    b'{"probabilities": [[0.25, 0.75], []], "labels": [0, 1]}',
    b'{"probabilities": [[0.25, "x"]], "labels": [0]}',
    b'{"probabilities": [[0.25, null]], "labels": [0]}',
    b'{"probabilities": [[true, false]], "labels": [0]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [null]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [[]]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0.0]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": ["a"]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0], "labels": [1]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0], "la\\u0062els": [1]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0], "unknown": [1]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0], "ids": ["a",]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0], "ids": ["a"}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0], "ids": "\xff"}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0],}',
    b'{"probabilities": [[0.25, 0.75],], "labels": [0]}',
    b'{"probabilities": [[00.25, 0.75]], "labels": [0]}',
    b'{"probabilities": [[.25, 0.75]], "labels": [0]}',
    b'{"probabilities": [[+0.25, 0.75]], "labels": [0]}',
    b'{"probabilities": [[0.25, 1e]], "labels": [0]}',
    b'{"probabilities": [[1e400, 0.75]], "labels": [0]}',
    b'{"probabilities": [[-0, 1]], "labels": [-0]}',
    b'{"probabilities": [[-0.0, 1]], "labels": [0]}',
    b'{"probabilities": [[4e-324, 1]], "labels": [0]}',
    b'{"probabilities": [[0.12345678901234567890123, 0.8765]], "labels": [0]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [99999999999999999999]}',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0]} x',
    b'{"probabilities": [[0.25, 0.75]], "labels": [0]',
    b'{"predictions": [{"probability": [0.25, 0.75], "label": 0}]}',
    b"[]",
    b"{}",
    b"",
]


@pytest.mark.parametrize("data", UNUSUAL)
def test_what_is_unusual_has_the_same_outcome(data):
    kernel, complete = both(data)
    assert kernel == complete


def test_limits_of_rows_and_lists_are_the_same():
    rows = {"probabilities": [[0.5, 0.5]] * 1001, "labels": [0] * 1001}
    kernel, complete = both(orjson.dumps(rows))
    assert kernel == complete and kernel[0].__name__ == "BodyTooLarge"
    lists = {"probabilities": [[0.5, 0.5]] * 900, "labels": [[0]] * 900, "ids": [[]] * 1500}
    kernel, complete = both(orjson.dumps(lists))
    assert kernel == complete


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_cut_and_changed_bytes_never_give_another_outcome(seed, n_changes):
    rng = np.random.default_rng(seed)
    data = bytearray(orjson.dumps(ROWS | MORE[seed % len(MORE)]))
    for _ in range(n_changes):
        data[rng.integers(len(data))] = rng.choice(list(b'0123456789.,[]{}"\\-eE :atn\xc3'))
    kernel, complete = both(bytes(data[: rng.integers(len(data) // 2, len(data) + 1)]))
    assert kernel == complete
