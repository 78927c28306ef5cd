"""A storm of every way to run the service in the slow suite; and that the comparison finds what is wrong."""

from __future__ import annotations

import pytest

from tests.storms import rounds
from tests.storms.rounds import SETUPS, Setup, storm
from tests.storms.senders import Expected


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: f"{setup.name}, {setup.durability}")
def test_what_is_acknowledged_counts_once(setup: Setup, tmp_path) -> None:
    found = storm(setup, 0, tmp_path, n_batches=500, kills=3, stops_s=[4.0, 60.0])
    assert found.is_exact, found
    assert sum(found.faults.values()) == 5 * len(setup.processes)
    assert {
        "labels",
        "deletions",
        "running totals",
        "repeated batches",
    } < found.acknowledged.keys()


@pytest.mark.parametrize(
    ("n_predictions", "weight", "differences"),
    [(2, 24, (0, 0)), (1, 12, (2, 0)), (3, 36, (0, 2)), (2, 14, (1, 1))],
)
def test_the_comparison_finds_what_is_wrong(monkeypatch, n_predictions, weight, differences):
    expected = Expected()
    for number in (2, 22):
        expected.add(number, n_ratings=0)
        expected.add(number)
    found = {
        "n_predictions": n_predictions + 2,
        "bins": {2: n_predictions},
        "weights": {2: weight},
    }
    monkeypatch.setattr(rounds, "_counted", lambda *_: found)
    assert rounds._differences(None, "batches", expected) == differences
