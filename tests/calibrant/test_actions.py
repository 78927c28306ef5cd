"""Recommendations: one vocabulary, and the request that carries each out."""

import pytest

from calibrant.calibrators import MAPS
from calibrant.calibrators.candidate_comparison import LEAVE
from calibrant.calibrators.candidates import CANDIDATES
from calibrant.core.action_texts import ACTIONS as REASONS
from calibrant.core.action_texts import helps, temperature_text
from calibrant.core.actions import ACTIONS, map_method, next_request, recommendation


def test_drift_and_maps_use_the_same_words():
    assert {*REASONS, "collect_more"} == set(ACTIONS)
    assert {LEAVE, *CANDIDATES} < set(ACTIONS)


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_names_a_request_that_exists(action, is_binary):
    method = map_method(action, is_binary)
    found = next_request(action, "m", is_binary, {"from": "2026-11-20T00:00:00Z"}, slice=None)
    if action == "none":
        assert method is None and found is None
    elif action == "collect_more":
        assert found == {"method": "POST", "path": "/v1/models/m/labels", "body": None}
    else:
        assert method in MAPS
        body = {"method": method, "from": "2026-11-20T00:00:00Z"}
        assert found == {"method": "POST", "path": "/v1/models/m/maps", "body": body}


def test_without_an_action_there_is_no_request():
    assert next_request(None, "m", True) is None
    assert recommendation(None, "The panes keep no rows.", {})["action"] is None


def test_other_words_are_rejected():
    with pytest.raises(ValueError, match="leave it"):
        recommendation("leave it", "", {})


def test_a_temperature_that_does_not_help_is_not_recommended():
    """ECE from .014 to .015 and a larger Brier score: "a correction, such as a temperature, may reduce it"."""
    losses = {"ece": 0.014, "brier": 0.2}
    worse = {"before": losses, "after": {"ece": 0.015, "brier": 0.21}}
    assert helps(worse) is False and "does not correct it" in temperature_text(worse)
    assert helps({"before": losses, "after": {"ece": 0.012, "brier": 0.21}}) is False
    better = {"before": losses, "after": {"ece": 0.012, "brier": 0.2}}
    assert helps(better) is True and "reduces it" in temperature_text(better)
    for unknown in (None, {}, {"before": losses, "after": None}):
        assert helps(unknown) is None and temperature_text(unknown) == ""
