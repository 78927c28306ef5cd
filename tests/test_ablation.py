"""Every row of `benchmarks.ablation` is about a fast path that exists, in a scenario that exists."""

from __future__ import annotations

import pytest

from benchmarks.ablation.scenarios import SCENARIOS
from benchmarks.ablation.switches import SWITCHES, places


@pytest.mark.parametrize("name", SWITCHES)
def test_what_a_row_switches_off_exists(name):
    switch = SWITCHES[name]
    assert len(places(name)) == len(switch.replaced)
    assert switch.replaced or switch.environment
    assert switch.scenario in SCENARIOS


def test_every_scenario_has_a_row():
    assert {each.scenario for each in SWITCHES.values()} == SCENARIOS.keys()
