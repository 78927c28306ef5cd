"""The fuzzer in the suite: its first blocks, and in the slow suite as many as a documented run has."""

from pathlib import Path

import pytest

from tests.fuzzing.__main__ import resumed

QUICK, LONG = 1_000, 100_000


def test_no_request_breaks_a_rule(tmp_path: Path) -> None:
    outcome = resumed(tmp_path / "progress.json", QUICK)
    assert sum(outcome.statuses.values()) == QUICK
    # The requests are neither all valid nor all invalid: each kind of response is reached.
    assert {"200", "202", "400", "404", "413", "415", "422"} <= outcome.statuses.keys()
    assert outcome.statuses["202"] > QUICK / 20


@pytest.mark.slow
def test_many_requests_break_no_rule(pytestconfig: pytest.Config) -> None:
    """Continue an interrupted run of the same code; start again after a complete one."""
    progress = Path(pytestconfig.cache.mkdir("fuzzing")) / "progress.json"
    assert sum(resumed(progress, LONG).statuses.values()) >= LONG
    progress.unlink()
