"""Units are demanded of whoever declares what they are."""

from __future__ import annotations

import pytest

from tests.door.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/risk"
ROWS = {"confidences": [0.2, 0.4], "labels": [0, 1]}
HISTOGRAM = {"kind": "positive", "bins": 2, "count": [1, 1], "sum_confidence": [0.2, 0.8], "sum_correct": [0, 1]}


@pytest.mark.parametrize("unit", [None, "patient"])
async def test_a_declared_unit_is_named_in_every_batch(client, unit):
    await client.put(URL, json={"task": "binary", "unit": unit, "grid": 2})
    for path, body, pointer, named in (
        ("predictions", ROWS, "/units", {"units": ["a", "a"]}),
        ("predictions", ROWS | {"ids": ["1", "2"]}, "/units", {"cases": ["a", "b"]}),
        ("histograms", HISTOGRAM, "/n_units", {"n_units": 2}),
        ("histograms", HISTOGRAM, "/n_units", {"unit": "a"}),
    ):
        answer = await client.post(f"{URL}/{path}", json=body)
        if unit is None:
            assert answer.status_code < 300, answer.text
            continue
        [offence] = problem(answer, 422, "invalid-input")["errors"]
        assert (offence["pointer"], offence["rule"]) == (pointer, "units_required") and unit in offence["detail"]
        assert (await client.post(f"{URL}/{path}", json=body | named)).status_code < 300
