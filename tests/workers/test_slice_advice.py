"""What is recommended if a change or an error is in some slices of a model only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from tests.workers.alarm_days import BINARY, DAY_S, START_S, Played

pytestmark = pytest.mark.one_server
SCANNERS = {"GE": 1.0, "SIE": 1.0}


def play(simulated, rng, days, slopes, n=150):
    """Play days whose labels follow the scores by a slope for each scanner."""
    for day in days:
        scanner = np.repeat([*slopes], n)
        p = rng.beta(0.7, 1.5, len(scanner))
        truth = expit(np.repeat([*slopes.values()], n) * logit(p))
        labels = (rng.random(len(p)) < truth).astype(int)
        ids = [f"{day}.{i}" for i in range(len(p))]
        simulated.predict(
            START_S + day * DAY_S,
            confidences=p,
            labels=labels,
            ids=ids,
            slices={"scanner": scanner.tolist()},
        )
        simulated.seal(day)


@pytest.fixture
def simulated(bench):
    config = replace(BINARY, pane_s=DAY_S, slices={"scanner": ["GE", "SIE"]}, alarm={})
    return Played(bench, config)


def test_a_change_of_one_scanner_recommends_no_map_for_all(simulated):
    rng = np.random.default_rng(3)
    play(simulated, rng, range(20), SCANNERS)
    play(simulated, rng, range(20, 30), SCANNERS | {"SIE": 0.3})
    found = simulated.result()
    assert found["change"]["word"] == "changed"
    advice = found["recommendation"]
    assert advice["action"] is None
    assert advice["reason"].startswith("The change is in scanner:SIE; scanner:GE")
    assert advice["reason"].endswith(
        "Check scanner:SIE first. A map for all predictions would change scanner:GE, too."
    )
    assert advice["next"]["path"] == "/v1/models/m/drift?slice=scanner:SIE"


def test_a_change_of_all_scanners_recommends_a_map(simulated):
    rng = np.random.default_rng(4)
    play(simulated, rng, range(20), SCANNERS)
    play(simulated, rng, range(20, 30), dict.fromkeys(SCANNERS, 0.3))
    advice = simulated.result()["recommendation"]
    assert advice["next"]["path"] == "/v1/models/m/maps", advice


def test_a_scanner_that_is_off_from_the_start_recommends_no_map_for_all(simulated):
    rng = np.random.default_rng(5)
    play(simulated, rng, range(14), SCANNERS | {"SIE": 0.3}, n=400)
    found = simulated.result()
    assert found["calibration"]["word"] == "off", found["calibration"]
    reason = found["recommendation"]["reason"]
    assert "scanner:SIE" in reason and found["recommendation"]["action"] is None, reason
