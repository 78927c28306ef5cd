"""Units are demanded of histograms, which have no rows to count them by, where a model declares what they are."""

from __future__ import annotations

import pytest

from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/risk"
ROWS = {"confidences": [0.2, 0.4], "labels": [0, 1]}
HISTOGRAM = {
    "kind": "positive",
    "bins": 2,
    "count": [1, 1],
    "sum_confidence": [0.2, 0.8],
    "sum_correct": [0, 1],
}


async def test_a_declared_unit_is_counted_in_every_histogram(client):
    await client.put(URL, json={"task": "binary", "unit": "patient", "grid": 2})
    answer = await client.post(f"{URL}/histograms", json=HISTOGRAM)
    [violation] = problem(answer, 422, "invalid-input")["errors"]
    assert (violation["pointer"], violation["rule"]) == (
        "/n_units",
        "units_required",
    ) and "patient" in violation["detail"]
    for named in ({"n_units": 2}, {"unit": "a"}, {"case": "a"}):
        assert (await client.post(f"{URL}/histograms", json=HISTOGRAM | named)).status_code < 300


async def test_rows_of_a_declared_unit_may_be_units_of_their_own(client):
    await client.put(URL, json={"task": "binary", "unit": "patient", "grid": 2})
    assert (
        await client.post(f"{URL}/predictions", json=ROWS | {"ids": ["1", "2"]})
    ).status_code < 300


async def test_no_units_are_demanded_where_none_are_declared(client):
    await client.put(URL, json={"task": "binary", "grid": 2})
    assert (await client.post(f"{URL}/histograms", json=HISTOGRAM)).status_code < 300
