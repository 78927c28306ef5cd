"""A verdict: a part that was not requested is None; what does not exist is an error."""

import pytest

from calibrant.results.drift import Drift


def test_parts_that_were_not_requested_are_none():
    drift = Drift.from_dict({"status": "insufficient_data", "change": {"word": "not_armed"}})
    assert (drift.status, drift.bins, drift.recent) == ("insufficient_data", None, None)
    assert drift.change.word == "not_armed"


def test_a_misspelled_name_is_an_error():
    with pytest.raises(AttributeError, match="'sumary'; it has"):
        _ = Drift.from_dict({"status": "ok"}).sumary
