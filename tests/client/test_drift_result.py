"""A verdict of the alarm before its first cohort: what is not there yet is None; what does not exist is an error."""

import pytest

from calibrant.client.results import Drift


def test_what_needs_a_cohort_or_an_alarm_is_none_before():
    drift = Drift({"status": "insufficient_data", "reason": "no cohort has been sealed yet"})
    assert (drift.status, drift.summary, drift.start_of_change, drift.recent) == (
        *("insufficient_data", None, None, None),
    )
    assert Drift({"status": "ok", "summary": "Nothing changed."}).summary == "Nothing changed."


def test_a_misspelled_name_is_an_error():
    with pytest.raises(AttributeError, match="'sumary'; it has"):
        _ = Drift({"status": "ok"}).sumary
