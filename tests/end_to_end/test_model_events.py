"""Dated events: posted, made by `model_version`, drawn on curves, named with a change, and carried by an export."""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrant_server.workers.alarm.detectors import OpenChange
from calibrant_server.workers.alarm.words_of import _events_about
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_events import (
    MAX_EVENTS,
    event_of,
    with_events,
    with_version,
)

START = (datetime.now(UTC) - timedelta(days=4)).replace(hour=0, minute=0, second=0, microsecond=0)
PATH = "/v1/models/versioned"
SCANNER = {"kind": "scanner", "name": "Vida at B", "at": (START + timedelta(days=2)).isoformat()}


def at(event):
    return datetime.fromisoformat(event["at"])


@pytest.fixture(scope="module")
def versioned(embedded):
    """Four days; the second version begins on the third, and its later batch arrives first."""
    rng = np.random.default_rng(2)
    for day in (0, 1, 3, 2):
        p = rng.random(40)
        body = {
            "confidences": p.tolist(),
            "labels": (rng.random(40) < p).astype(int).tolist(),
            "event_times": [(START + timedelta(days=day, hours=1)).isoformat()] * 40,
            "model_version": "1.0" if day < 2 else "2.1",
        }
        embedded.post(f"{PATH}/predictions", body)
    made = embedded.client.post(f"{PATH}/events", json=SCANNER)
    assert made.status_code == 201, made.text
    return embedded


def test_a_new_version_is_an_event_at_its_first_prediction(versioned):
    found = versioned.get(f"{PATH}/events")["events"]
    assert [(each["kind"], each["name"], at(each)) for each in found] == [
        ("version", "1.0", START + timedelta(hours=1)),
        ("scanner", "Vida at B", START + timedelta(days=2)),
        ("version", "2.1", START + timedelta(days=2, hours=1)),
    ]


def test_events_are_drawn_on_the_curve(versioned):
    query = {"metrics": "ece", "every": "P1D"}
    series = versioned.get(f"{PATH}/metrics", **query)
    assert [each["name"] for each in series["events"]] == ["1.0", "Vida at B", "2.1"]
    headers = {"Accept": "image/svg+xml"}
    drawn = versioned.client.get(f"{PATH}/metrics", params=query, headers=headers).text
    assert "version 2.1" in drawn and "scanner: Vida at B" in drawn
    before = versioned.get(f"{PATH}/metrics", **query, to=(START + timedelta(days=1)).isoformat())
    assert [each["name"] for each in before["events"]] == ["1.0"]


def test_events_are_deleted_and_settings_leave_them(versioned):
    settings = {"tags": {"owner": "ann"}}
    headers = {"If-Match": "*"}
    assert versioned.client.patch(PATH, json=settings, headers=headers).status_code == 200
    again = versioned.client.post(f"{PATH}/events", json=SCANNER)
    found = versioned.get(f"{PATH}/events")["events"]
    assert again.json() in found and len(found) == 3
    extra = versioned.client.post(f"{PATH}/events", json=SCANNER | {"kind": "other"}).json()
    assert versioned.client.delete(f"{PATH}/events/{extra['id']}").status_code == 204
    assert versioned.client.delete(f"{PATH}/events/{extra['id']}").status_code == 404
    assert versioned.get(f"{PATH}/events")["events"] == found
    for wrong in ({"kind": "x"}, {"at": "2026-11-06"}, {"name": ""}):
        assert versioned.client.post(f"{PATH}/events", json=SCANNER | wrong).status_code == 422


def test_an_export_carries_events_and_tags(versioned):
    lines = versioned.client.get(f"{PATH}/export").content
    copy = "/v1/models/versioned-copy"
    headers = {"content-type": "application/x-ndjson"}
    made = versioned.client.post(f"{copy}/import", content=lines, headers=headers)
    assert made.status_code == 201, made.text
    assert versioned.get(f"{copy}/events") == versioned.get(f"{PATH}/events")
    assert versioned.get(copy)["tags"] == {"owner": "ann"}
    assert versioned.client.delete(copy).status_code == 204
    versioned.client.put(copy, json={"task": "binary"})
    assert versioned.get(f"{copy}/events")["events"] == []


def test_a_body_states_one_version(versioned):
    body = {"confidences": [0.5], "labels": [1], "model_version": "v" * 101}
    rejected = versioned.client.post(f"{PATH}/predictions", json=body)
    assert (
        rejected.status_code == 422 and rejected.json()["errors"][0]["pointer"] == "/model_version"
    )


def test_the_number_of_events_is_bounded():
    config = ModelConfig("t", "m", "binary", 2)
    for n in range(MAX_EVENTS + 5):
        config = with_version(config, str(n), START + timedelta(hours=n))
    assert len(config.events) == MAX_EVENTS


@pytest.mark.parametrize(
    ("hours", "is_named"), [(-25, False), (-23, True), (71, True), (73, False)]
)
def test_an_event_is_named_within_a_cohort_of_the_range_of_dates(hours, is_named):
    start, day = int(START.timestamp()), 86_400
    event = event_of("version", "2.1", START + timedelta(hours=hours))
    config = with_events(ModelConfig("t", "m", "binary", 2), [event])
    change = OpenChange(start + 3 * day, start, start, start + day, 0, 1, 1e-9)
    found = _events_about(change, config, day)
    assert [name for name, _ in found] == (["version 2.1"] if is_named else [])


def test_changes_of_tolerance_and_horizon_are_dated_events(embedded):
    """Each with the reason of its patch; neither a first declaration nor another setting is one."""
    url = "/v1/models/judged"
    embedded.client.put(url, json={"task": "binary"}).raise_for_status()

    def patched(body):
        return embedded.client.patch(url, json=body, headers={"If-Match": "*"})

    patched({"label_horizon": "P7D", "tags": {"team": "a"}}).raise_for_status()
    assert embedded.get(f"{url}/events")["events"] == []
    reason = "agreed with site B"
    patched({"alarm": {"tolerance": 0.05}, "reason": reason}).raise_for_status()
    patched({"label_horizon": "P14D"}).raise_for_status()
    events = embedded.get(f"{url}/events")["events"]
    assert [each["kind"] for each in events] == ["setting", "setting"]
    names = sorted(each["name"] for each in events)
    assert names[0].startswith("label_horizon P7D → P14D without a key")
    assert names[1].startswith("tolerance 0.02 → 0.05 without a key") and names[1].endswith(
        f", {reason}"
    )
    listed = embedded.get(f"{url}/drift", include="evidence")["settings"]
    assert sorted(each["name"] for each in listed) == names
    report = embedded.client.get(f"{url}/report").text
    assert (
        all(name in html.unescape(report) for name in names)
        and "beforehand</th><td>0.05<" in report
    )
    assert patched({"reason": "x" * 51}).status_code == 422
