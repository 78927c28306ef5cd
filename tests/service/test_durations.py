"""Durations: ISO 8601, or a number with a unit, wherever one is accepted."""

from fractions import Fraction

import pytest

import calibrant as cal
from calibrant.core.durations import iso_duration, parse_duration
from calibrant.core.panes_by_key import duration_seconds
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
DAY = 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 7 * DAY), ("24h", DAY), ("30m", 1800), ("30min", 1800), ("90s", 90), ("2w", 14 * DAY), ("P7D", 7 * DAY),
     ("P1W", 7 * DAY), ("PT0.5S", Fraction(1, 2))],
)  # fmt: skip
def test_a_text_has_its_length(text, seconds):
    assert parse_duration(text) == seconds
    assert parse_duration(iso_duration(text)) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "7D", "1y", "1mo", "-7d", "7 d", "P", "٧d", "1d2h"])
def test_another_text_is_none(text):
    with pytest.raises(ValueError, match="7d"):
        parse_duration(text)
    with pytest.raises(cal.CalibrationInputError, match="duration"):
        duration_seconds(text)


async def test_settings_are_stored_as_iso_8601(client):
    body = {
        "task": "binary", "pane": "1h", "retention": "400d", "label_horizon": "36h", "alarm": {"bucket": "1d"},
    }  # fmt: skip
    assert (await client.put("/v1/models/m", json=body)).status_code == 201
    found = (await client.get("/v1/models/m")).json()
    named = {name: found[name] for name in ("pane", "retention", "label_horizon")}
    assert named == {"pane": "PT1H", "retention": "P400D", "label_horizon": "P1DT12H"}
    assert found["alarm"]["bucket"] == "P1D"


async def test_queries_of_equal_windows_are_equal(client):
    await client.put("/v1/models/m", json={"task": "binary"})
    for one, other in (
        ({"window": "7d"}, {"window": "P7D"}),
        ({"every": "24h", "window": "2d"}, {"every": "P1D", "window": "P2D"}),
        ({"window": "1d", "against": "window:7d"}, {"window": "P1D", "against": "window:P7D"}),
    ):
        found = [await client.get("/v1/models/m/metrics", params=each) for each in (one, other)]
        assert [each.status_code for each in found] == [200, 200], found[0].text
    error = problem(
        await client.get("/v1/models/m/metrics", params={"window": "7y"}), 422, "invalid-query"
    )
    assert "7d" in error["detail"]
