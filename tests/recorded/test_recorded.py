"""Every response is as it was recorded. `python -m tests.recorded` records again; see `CHANGES.md`."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import islice, zip_longest
from urllib.parse import quote

import pytest

from tests.recorded.comparison import AMPLIFIED, COPIED, FITTED, SUMMED, differences, tolerance
from tests.recorded.exchanges import FOLDER, stored
from tests.recorded.results import RESULTS, library_results
from tests.recorded.scenarios import scenarios
from tests.recorded.service import record

SHOWN = 8
FIGURE = re.compile(r'<img class="figure" src="([^"]+)"')
SCENARIOS = scenarios()


def _compare(name, exchanges):
    exchanges = json.loads(json.dumps(exchanges))
    lines = [line for pair in zip_longest(stored(name), exchanges) for line in _lines(*pair)]
    shown = "\n".join(islice(lines, SHOWN))
    more = f"\n... and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    again = f"If this was intended: python -m tests.recorded {name}, and a line in tests/recorded/CHANGES.md."
    assert not lines, f"{len(lines)} differences\n{shown}{more}\n{again}"


def _lines(expected, got):
    if expected is None or got is None or expected["request"] != got["request"]:
        pair = [each and each["request"] for each in (expected, got)]
        return [f"another request: recorded {pair[0]!r}, got {pair[1]!r}"]
    return [
        f"{expected['request']} {pointer}: recorded {_short(old)}, got {_short(new)}"
        for pointer, old, new in differences(expected, got)
    ]


def _short(value):
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_responses_are_as_recorded_and_every_page_opens(name):
    _compare(name, record(SCENARIOS[name], then=_open_every_page))


async def _open_every_page(client):
    """The pages of every model in the state in which the scenario leaves it, with every figure that they name."""
    models = (await client.http.get("/v1/models", params={"limit": 1000})).json()["models"]
    pages = ["/", *(f"/models/{quote(each['model'], safe='')}" for each in models)]
    pages += [f"{path}/{name}" for path in pages[1:] for name in ("raters", "report")]
    answers = [await client.http.get(path) for path in pages]
    figures = {path for each in answers for path in FIGURE.findall(each.text)}
    answers += [await client.http.get(unescape(path)) for path in figures]
    failed = [f"{each.status_code} {each.url}" for each in answers if each.status_code >= 500]
    assert not failed, failed


def test_results_of_the_library_are_as_recorded():
    _compare(RESULTS, library_results())


def test_every_recording_has_its_scenario():
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == {*SCENARIOS, RESULTS}


def test_differences_are_found():
    old = {
        "request": "GET /v1/models/a/metrics",
        "body": {"n": 3, "value": 0.5, "column": [1e6, 0.25]},
    }
    assert not [*differences(old, old)]
    for field, new in (
        ("n", 4),
        ("n", 3.0),
        ("value", 0.5 + 1e-11),
        ("value", None),
        ("column", [1e6]),
    ):
        changed = {**old, "body": {**old["body"], field: new}}
        assert [f"/body/{field}"] == [each[0] for each in differences(old, changed)]
    close = {**old, "body": {"n": 3, "value": 0.5 + 1e-13, "column": [1e6, 0.25 + 1e-7]}}
    assert not [*differences(old, close)]
    assert [
        each[0] for each in differences({**old, "body": {"n": 1}}, {**old, "body": {"more": 1}})
    ] == ["/body/n", "/body/more"]


def test_rules_apply_by_request():
    assert tolerance("GET /v1/models/a /body/grid") == COPIED
    assert tolerance("GET /v1/models/a/batches/b /body/n") == COPIED
    assert tolerance("PUT /v1/models/a/maps/current /body/parameters/t") == FITTED
    assert tolerance("GET /v1/models/a/metrics?bins=15 /body/metrics/ece/value") == SUMMED
    assert tolerance("GET /v1/models/a/metrics?metrics=skce /body/metrics/skce/value") == AMPLIFIED
    assert tolerance("GET /v1/models/a/temperature /body/temperature") == FITTED
