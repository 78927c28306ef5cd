"""Lines of JSON read by the kernel: the same columns, to the bit, and the same errors as from the complete lines."""

from unittest.mock import patch

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.kernel import json_columns
from calibrant_server.service.http.bodies import NDJSON, Body
from calibrant_server.service.http.problems import BodyTooLarge, Problem
from calibrant_server.service.ingest import columns
from calibrant_server.service.ingest.columns import read_columns, read_lines
from calibrant_server.service.settings import Settings

SETTINGS = Settings(max_rows=1000)
HEAD = ("batch_id", "source", "offsets")


def outcome(data):
    """What is accepted and rejected of a body and where its rows are, or its errors."""
    try:
        posted = read_columns(Body(NDJSON, data), SETTINGS, head=HEAD)
        checked = Batch.from_columns(posted.columns, partial=True)
        accepted = checked.accepted_rows.tolist()
        left = orjson.dumps(posted.rows_but(accepted), option=orjson.OPT_SERIALIZE_NUMPY)
        placed = [posted.place(each) for each in checked.violations]
        about = posted.batch_id, posted.origin, posted.places(accepted)
        return checked.batch.digest(), checked.batch.pack(), left, placed, about
    except CalibrationInputError as error:
        return error.violations
    except Problem as error:
        return type(error), error.detail, error.errors


def both(data):
    """The outcome with the kernel, and without."""
    with patch.object(columns, "MIN_KERNEL_BYTES", 0):
        kernel = outcome(data)
    with patch.object(columns, "MIN_KERNEL_BYTES", 1 << 40):
        return kernel, outcome(data)


def lines(*records, option=0, end=b""):
    return b"\n".join(orjson.dumps(each, option=option) for each in records) + end


RATINGS = [[0, 1, 1], [[0], [1, 1, 0], [1]], [[0, 1], [1, 1], [0, 0]], [[0], [7], [1]]]
MORE = [
    {},
    {"id": ["a", 'b"],[{', "ü\\"]},
    {"weight": [1, 2.5, 0], "event_time": ["2026-01-01T00:00:00Z"] * 3},
    {"slice": [{"site": "A"}, {"site": "B"}, {"site": "A"}], "unit": ["p", "p", "q"]},
]
SCORES = [
    {"probability": [[0.25, 0.75], [1, 0], [1e-3, 0.999]]},
    {"logits": [[0.25, -75.5e-3], [1, 0], [-3, 12345678.12345678901]]},
    {"confidence": [0.25, 1, 0.999]},
]


def records_of(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("end", [b"", b"\n", b" \r\n"])
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("ratings", RATINGS)
def test_lines_of_one_form_give_the_same_batch(scores, more, ratings, end):
    data = lines(*records_of({**scores, **more, "label": ratings}), end=end)
    assert read_lines(data, 1000, 1000, HEAD) is not None
    kernel, complete = both(data)
    assert kernel == complete
    assert kernel[0] or kernel[0].rule


def test_counts_in_any_order_of_members_are_read():
    data = lines(*records_of({"label_counts": [[1, 0], [0, 2], [3, 3]], **MORE[1], **SCORES[0]}))
    assert read_lines(data, 1000, 1000, HEAD) is not None
    kernel, complete = both(data)
    assert kernel == complete and kernel[0]


def test_a_line_of_the_batch_itself_may_come_first():
    rows = records_of({**SCORES[0], "label": RATINGS[1], "id": ["a", "b", "c"]})
    head = {"batch_id": "b1", "source": "topic", "offsets": [3, 6]}
    data = lines(head, *rows)
    posted = read_lines(data, 1000, 1000, HEAD)
    assert posted.batch_id == "b1" and posted.origin is not None and posted.lines == [2, 3, 4]
    kernel, complete = both(data)
    assert kernel == complete and kernel[4][0] == "b1"
    kernel, complete = both(lines({"batch_id": 1}, *rows))
    assert kernel == complete


PLAIN = b'{"probability": [0.25, 0.75], "label": 0}'
UNUSUAL = [
    PLAIN + b'\n\n{"probability": [0.25, 0.75], "label": 1}',
    PLAIN + b'\n{"label": 1, "probability": [0.25, 0.75]}',
    PLAIN + b'\n{"probability": [0.25, 0.75]}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": 1, "weight": 2}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": 1} {}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label":\n1}',
    PLAIN + b'\n{"probability": [0.25,\n0.75], "label": 1}',
    PLAIN + b'\n{"probability": [0.25, 0.25, 0.5], "label": 1}',
    PLAIN + b'\n{"probability": [0.25], "label": 1}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": [1]}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": 1.0}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": null}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": true}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": "a"}',
    PLAIN + b'\n{"probability": [true, false], "label": 1}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": 123456789012345678901}',
    PLAIN + b'\n{"probability": [0.25, 0.75], "label": 1',
    PLAIN + b'\n"probability": [0.25, 0.75], "label": 1}',
    PLAIN + b"\n[]",
    PLAIN + b"\n5",
    PLAIN + b"\n" + PLAIN + b"\x00",
    b'{"probability": 0.75, "label": 1}\n{"probability": 0.5, "label": 0}',
    b'{"probability": [0.25, 0.75], "probability": [0.5, 0.5], "label": 0}',
    b'{"probability": [0.25, 0.75], "probabilities": [0.5, 0.5], "label": 0}',
    b'{"probability": [0.25, 0.75], "label": 0, "labels": [0]}',
    b'{"probability": [0.25, 0.75], "label": 0, "label": 1}',
    b'{"probability": [0.25, 0.75], "label": 0, "la\\u0062el": 1}',
    b'{"probability": [0.25, 0.75], "label": [0], "batch_id": "x"}',
    b'{"probability": [0.25, 0.75], "label": 0, "unknown": [1]}',
    b'{"probability": [0.25, 0.75], "label": 0, "id": "a", "id": "b"}',
    b'{"probability": [0.25, 0.75], "label": 0, "id": {"id": 1, "id": 2}}',
    b'{"probability": [0.25, 0.75], "label": 0, "id": "\xff"}',
    b'{"probability": [0.25, 0.75], "label": 0, "id": "a}',
    b'{"probability": [0.25, 0.75], "label": 0, "id": ' + b"[" * 40 + b"]" * 40 + b"}",
    b'{"probability": [], "label": 0}',
    b'{"probability": [0.25, 0.75], "label": []}',
    b'{"probabilities": [0.25, 0.75], "weights": 1, "label": 0}',
    b'{"batch_id": "x"}\n{"label": 1, "probability": [0.25, 0.75]}\n{"label": 1}',
    b'{"batch_id": "x"}',
    b'{"batch_id": "x", "batch_id": "y"}\n' + PLAIN,
    b'{"batch_id": "x"}\n{"batch_id": "y"}\n' + PLAIN,
    b'{"id": "a"}\n{"id": "b"}',
    b"{}",
    b"{}\n" + PLAIN,
    b"\n" + PLAIN,
    b"\n",
    b"",
]


@pytest.mark.parametrize("data", UNUSUAL)
def test_what_is_unusual_has_the_same_outcome(data):
    kernel, complete = both(data)
    assert kernel == complete


def test_limits_of_rows_and_lists_are_the_same():
    for record in ({"label": 0}, {"label": [0]}, {"label": 0, "id": [[]] * 3}):
        for n in (998, 1001, 1600):
            kernel, complete = both(lines(*[{"probability": [0.5, 0.5]} | record] * n))
            assert kernel == complete


def test_brackets_of_the_line_of_the_batch_itself_count():
    """1,000 records have 2,000 objects and lists; 3,100 are the most, in texts too."""
    rows = [{"probability": [0.5, 0.5], "label": 0}] * 1000
    for n in (1098, 1099, 1100):
        kernel, complete = both(lines({"batch_id": "[" * n}, *rows))
        assert kernel == complete and (kernel[0] is BodyTooLarge) == (n == 1100)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_cut_and_changed_bytes_never_give_another_outcome(seed, n_changes):
    rng = np.random.default_rng(seed)
    more, ratings = MORE[seed % len(MORE)], RATINGS[seed // 7 % 3]
    data = bytearray(lines(*records_of({**SCORES[seed // 5 % 3], **more, "label": ratings})))
    for _ in range(n_changes):
        data[rng.integers(len(data))] = rng.choice(list(b'0123456789.,[]{}"\\-eE :\natn\xc3'))
    kernel, complete = both(bytes(data[: rng.integers(len(data) // 2, len(data) + 1)]))
    assert kernel == complete


def test_a_text_that_ends_within_eight_digits_is_read_within_its_bytes():
    for n in range(1, 24):
        found = json_columns.read(b'{"weights":[1.' + b"1" * n + b"]}")
        if found is not None:
            assert found.members[0].column[0] == float("1." + "1" * n)
        assert json_columns.read(b'{"weights":[1.' + b"1" * n) is None
