"""The alarm by rater: who changed, and whose labels count."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant.drift.evaluation import effects_of, evaluate
from calibrant.drift.unit_tables import UnitTable
from calibrant.input.labels import LabelRow
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohorts import (
    MAX_COHORTS,
    MAX_COHORTS_OF_SLICE,
    CohortResult,
    detector_name,
    kept_cohorts,
    parts_of,
)
from calibrant_server.workers.alarm.detectors import Before, Detector, OpenChange, Reference
from calibrant_server.workers.alarm.drift_report import rater_or_model, title_of, who_alarms
from calibrant_server.workers.alarm.episodes import read_episodes
from tests.workers.alarm_days import BINARY, DAY_S, START_S, Played

pytestmark = pytest.mark.one_server


def rated(simulated, rng, day, n=150, slope=None, raters=("ann", "bob", "cas")):
    """A day of rows, rated by three; each rater's labels follow the scores by a slope of theirs."""
    p = rng.beta(0.7, 2.2, n)
    ids = [f"d{day}.{i}" for i in range(n)]
    simulated.predict(START_S + day * DAY_S, confidences=p, ids=ids)
    counts = np.zeros((n, 2), int)
    rows = []
    for i, name in enumerate(ids):
        luck = rng.random()
        ratings = []
        for rater in raters:
            chance = expit((slope or {}).get(rater, 1.0) * logit(np.clip(p[i], 1e-9, 1 - 1e-9)))
            own = luck if rng.random() < 0.5 else rng.random()
            ratings.append((rater, int(own < chance), None))
            counts[i, ratings[-1][1]] += 1
        rows.append(LabelRow(name, {}, ratings))
    simulated.label(START_S + day * DAY_S + 7200, rows)
    return counts


def test_one_rater_who_changes_is_distinguished_from_the_model(bench):
    config = replace(BINARY, pane_s=DAY_S)
    simulated, rng = Played(bench, config), np.random.default_rng(5)
    rated(simulated, rng, 0)
    simulated.seal(0)
    assert sorted(simulated.held.detectors) == ["rater:ann|", "rater:bob|", "rater:cas|", "score|"]
    for day in range(1, 60):
        rated(simulated, rng, day, slope={"bob": 0.2} if day >= 15 else None)
        simulated.seal(day)
        if simulated.detector("rater:bob|").in_alarm:
            break
    result = simulated.result()
    assert result["rater_or_model"]["title"] == "rater shift" and result["rater_or_model"][
        "raters"
    ] == ["bob"]
    shown = {row["rater"]: row["in_alarm"] for row in result["raters"]}
    assert shown == {"ann": False, "bob": True, "cas": False}
    assert result["detector"]["n_detectors"] == 4 and result["level"] == pytest.approx(
        1 / (4 * 3650)
    )
    mine = simulated.result(scope="rater:bob")
    assert (mine["status"], mine["title"]) == ("alarm", "rater shift: bob (labels of bob)")
    episodes = {
        each.scope: each
        for each in read_episodes(simulated.loop._node.hgetall(simulated.loop.keys.episodes))
    }
    assert episodes["rater:bob"].title == "rater shift: bob (labels of bob)"
    for advice in (mine["recommendation"], episodes["rater:bob"].recommendation):
        assert advice["action"] is None
        assert advice["reason"].startswith(
            "Ask bob first: other raters' labels did not change so. Do not change the model until the labels of bob are checked."
        )
    model = result["recommendation"]
    assert "/maps" not in str(model.get("next"))


def test_a_single_rater_has_no_detector_so_that_one_change_raises_one_alarm(bench):
    simulated, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(5)
    for day in range(24):
        slope = {"ann": 0.2} if day >= 14 else None
        rated(simulated, rng, day, slope=slope, raters=("ann",))
        simulated.seal(day)
    assert sorted(simulated.held.detectors) == ["score|"] and simulated.detector().in_alarm
    stored = simulated.loop._node.hgetall(simulated.loop.keys.episodes)
    [alarm] = read_episodes(stored)
    assert (alarm.scope, alarm.title) == ("score", "calibration drift")
    rated(simulated, rng, 24, raters=("ann", "bob"))
    simulated.seal(24)
    assert sorted(simulated.held.detectors) == ["rater:ann|", "rater:bob|", "score|"]


def test_names_of_raters_may_have_the_separator_of_detectors(bench):
    config = replace(BINARY, pane_s=DAY_S)
    simulated, rng = Played(bench, config), np.random.default_rng(8)
    names = ("a|b", "a%7Cb", "%|25" + "é" * 252)
    rated(simulated, rng, 0, 30, raters=names)
    simulated.seal(0)
    assert {row["rater"] for row in simulated.result()["raters"]} == set(names)
    for name in names:
        mine = simulated.result(scope=f"rater:{name}")
        assert mine["detector"]["scope"] == f"rater:{name}" and mine["calibration"]["n"] == 30
        assert "slice" not in mine["detector"] or not mine["detector"]["slice"]


def test_a_slice_that_ends_with_the_separator_has_the_results_of_a_slice():
    assert kept_cohorts(detector_name("score", "")) == MAX_COHORTS
    for scope, slice_ in (("score", "site:a|"), ("rater:a|", ""), ("class:0", "site:|")):
        assert kept_cohorts(detector_name(scope, slice_)) == MAX_COHORTS_OF_SLICE
        assert parts_of(detector_name(scope, slice_)) == (scope, slice_)


def test_raters_beyond_the_bound_have_no_detector(bench):
    config = replace(BINARY, pane_s=DAY_S, alarm={"rater_detectors": 2})
    simulated, rng = Played(bench, config), np.random.default_rng(6)
    rated(simulated, rng, 0, 20)
    simulated.seal(0)
    assert sorted(simulated.held.detectors) == ["rater:ann|", "rater:bob|", "score|"]


def test_the_labels_of_one_rater_can_be_what_counts(bench):
    config = replace(BINARY, pane_s=DAY_S, alarm={"raters": "rater:bob", "rater_detectors": 0})
    simulated, rng = Played(bench, config), np.random.default_rng(7)
    rated(simulated, rng, 0, 30)
    simulated.label(START_S + 9000, [LabelRow("d0.0", {}, [("bob", -1, None)])])
    simulated.seal(0)
    assert list(simulated.held.detectors) == ["score|"] and simulated.detector().total.n_units == 29
    simulated.predict(START_S + DAY_S, confidences=[0.2], labels=[0])
    simulated.seal(1)
    assert simulated.detector().why_passed == "one_rater"


@pytest.mark.parametrize(
    ("alarmed", "leaning", "quiet", "few", "title"),
    [
        (0, 0, 1, 0, "none"),
        (1, 0, 2, 0, "rater shift"),
        (1, 0, 1, 1, "rater shift"),
        (1, 1, 1, 0, "model drift"),
        (1, 1, 2, 0, "undecided"),
        (1, 0, 0, 2, "undecided"),
        (1, 0, 0, 0, "undecided"),
        (2, 0, 0, 0, "model drift"),
    ],
)
def test_only_labels_that_exclude_a_change_leave_it_to_the_rater(
    alarmed: int, leaning: int, quiet: int, few: int, title: str
) -> None:
    parts = [(0.1, 0.9)] * leaning + [(-0.2, 0.2)] * quiet + [(-0.2, 0.6)] * few
    others = {f"r{i}": [each] * alarmed for i, each in enumerate(parts)}
    assert rater_or_model([f"a{i}" for i in range(alarmed)], others).title == title


class Stored:
    """The stored cohorts of two raters' detectors."""

    settings, reference = AlarmSettings(), Reference()

    def __init__(self, cohorts: dict[str, list[CohortResult]], changes: dict[str, OpenChange]):
        self.cohorts = {f"rater:{rater}|": each for rater, each in cohorts.items()}
        self.detectors = {
            f"rater:{rater}|": Detector("x", begun=0, change=changes.get(rater))
            for rater in cohorts
        }

    def cohort_results(self, name: str) -> list[CohortResult]:
        return self.cohorts[name]


def attributed(seed: int, of_model: bool, share: float) -> str:
    """Title at the first alarm if, from day 30 on, the scores are 2.2 times as extreme or ann rates by .2 of them.

    Bob gives ann's label, except for one in ten, for a share of the 200 cases of a day.
    """
    rng, level = np.random.default_rng(seed), 1 / (3 * 3650)
    cohorts: dict[str, list[CohortResult]] = {"ann": [], "bob": []}
    for day in range(60):
        truth = rng.beta(0.8, 1.6, 200)
        odds, is_late = logit(np.clip(truth, 1e-6, 1 - 1e-6)), day >= 30
        score = expit(2.2 * odds) if is_late and of_model else truth
        label = rng.random(200) < truth
        changed = rng.random(200) < expit(0.2 * odds)
        other = np.where(rng.random(200) < 0.1, ~label, label)
        rated = {"ann": changed if is_late and not of_model else label, "bob": other}
        for rater, labels in rated.items():
            n = 200 if rater == "ann" else round(200 * share)
            table = UnitTable.at_scores(score[:n], np.ones(n), labels[:n].astype(float), 15)
            cohorts[rater].append(CohortResult(day * DAY_S, 1.0, level, table))
        if not is_late:
            continue
        changes = {}
        for rater, results in cohorts.items():
            found = evaluate(effects_of([each.table for each in results], True), level).change
            if found is not None and found.is_worse:
                changes[rater] = OpenChange.of(found, results, Before())
        if changes:
            stored = cast(AlarmState, Stored(cohorts, changes))
            who = who_alarms(stored, stored.detectors)
            assert who is not None
            return title_of("rater:ann|", who)
    return "none"


@pytest.mark.parametrize("share", [1.0, 1 / 3])
def test_a_model_that_changed_accuses_no_rater(share: float) -> None:
    titles = [attributed(seed, True, share) for seed in range(40)]
    assert sum(each.startswith("rater shift") for each in titles) <= 2
    assert titles.count("none") == 0 and titles.count("model drift (labels of ann)") >= 15


def test_a_rater_who_changed_is_named() -> None:
    titles = [attributed(seed, False, 1.0) for seed in range(20)]
    assert titles.count("rater shift: ann (labels of ann)") >= 15
