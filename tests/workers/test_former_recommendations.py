"""Alarms and maps stored in the former vocabulary are read in the current one."""

import json

from calibrant_server.workers.alarm.episodes import Episode, shown
from calibrant_server.workers.store.former_recommendations import of_map
from calibrant_server.workers.store.frozen_maps import PromotedMap

STORED = {
    "id": "al_000_00000000000000000001", "tenant": "t", "model": "m", "generation": "g", "scope": "score", "slice": "",
    "status": "acknowledged", "number": 3, "cohort": 86400, "bucket_s": 86400, "start_of_change": 0,
    "evidence_log10": 4.0, "threshold_log10": 3.5, "effect": {}, "map_version": None, "raised_s": 1e9,
    "changed_s": 1e9 + 60, "acknowledged_by": "ann", "note": None, "closed_because": None, "title": None,
    "recommended_action": {"action": "slope", "text": "Fit.", "parameters": {"slope": 0.5}, "holds_later": None, "tried": []},
}  # fmt: skip


def test_a_stored_alarm():
    found = shown(Episode.from_json(json.dumps(STORED)))
    assert (found["state"], found["acknowledged_at"]) == ("open", "2001-09-09T01:47:40Z")
    assert found["recommendation"] == {
        "action": "slope_intercept",
        "reason": "Fit.",
        "evidence": {"parameters": {"slope": 0.5}, "holds_later": None, "tried": []},
    }
    again = Episode.from_json(Episode.from_json(json.dumps(STORED)).to_json())
    assert shown(again) == found


def test_a_stored_alarm_that_was_closed_later_has_no_time_of_its_acknowledgement():
    found = shown(Episode.from_json(json.dumps({**STORED, "status": "closed"})))
    assert (found["state"], found["acknowledged_at"], found["acknowledged_by"]) == (
        "closed",
        None,
        "ann",
    )


def test_a_stored_map():
    kept = {
        "method": "platt",
        "recommendation": "more",
        "recommendation_reason": None,
        "recommendation_evidence": {"rule": "the first", "n": 3},
    }
    found = of_map(kept)
    assert found == {
        "method": "platt",
        "recommendation": {
            "action": "slope_intercept",
            "reason": "the first",
            "evidence": {"rule": "the first", "n": 3},
        },
    }
    assert of_map(found) == found
    assert of_map({"method": "platt", "recommendation": None}) == {
        "method": "platt",
        "recommendation": None,
    }
    raw = PromotedMap("g", 1, json.dumps(kept).encode()).to_bytes()
    assert json.loads(PromotedMap.from_bytes(raw).body) == found
