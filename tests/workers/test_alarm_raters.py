"""The alarm by rater: who changed, and whose labels count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant.drift.agreement import krippendorff_alpha
from calibrant.input.labels import LabelRow
from calibrant_server.workers.alarm.episodes import read_episodes
from tests.workers.alarm_days import BINARY, DAY_S, START_S, Played

pytestmark = pytest.mark.one_server


def rated(played, rng, day, n=150, slope=None):
    """A day of rows, rated by three; each rater's labels follow the scores by a slope of theirs."""
    p = rng.beta(0.7, 2.2, n)
    ids = [f"d{day}.{i}" for i in range(n)]
    played.predict(START_S + day * DAY_S, confidences=p, ids=ids)
    counts = np.zeros((n, 2), int)
    rows = []
    for i, name in enumerate(ids):
        luck = rng.random()
        ratings = []
        for rater in ("ann", "bob", "cas"):
            chance = expit((slope or {}).get(rater, 1.0) * logit(np.clip(p[i], 1e-9, 1 - 1e-9)))
            own = luck if rng.random() < 0.5 else rng.random()
            ratings.append((rater, int(own < chance), None))
            counts[i, ratings[-1][1]] += 1
        rows.append(LabelRow(name, {}, ratings))
    played.label(START_S + day * DAY_S + 7200, rows)
    return counts


def test_one_rater_who_changes_is_distinguished_from_the_model(bench):
    config = replace(BINARY, pane_s=DAY_S)
    played, rng = Played(bench, config), np.random.default_rng(5)
    counts = rated(played, rng, 0)
    played.seal(0)
    assert sorted(played.held.detectors) == ["rater:ann|", "rater:bob|", "rater:cas|", "score|"]
    cohort_result = played.raters()[START_S]
    assert cohort_result.raters == {"ann": 150, "bob": 150, "cas": 150} and (
        cohort_result.n_raters,
        cohort_result.over,
    ) == (
        3,
        0,
    )
    assert (
        cohort_result.alpha == pytest.approx(krippendorff_alpha(counts)) and cohort_result.n == 150
    )
    for day in range(1, 30):
        rated(played, rng, day, slope={"bob": 0.2})
        played.seal(day)
        if played.detector("rater:bob|").in_alarm:
            break
    told = played.told()
    assert told["rater_or_model"]["title"] == "rater shift" and told["rater_or_model"][
        "raters"
    ] == ["bob"]
    shown = {row["rater"]: row["in_alarm"] for row in told["labels"]["raters"]}
    assert shown == {"ann": False, "bob": True, "cas": False}
    assert told["labels"]["agreement"]["alpha"] is not None
    assert told["detector"]["n_detectors"] == 4 and told["threshold"] == 4 * 3650
    mine = played.told(scope="rater:bob")
    assert (mine["status"], mine["title"]) == ("alarm", "rater shift: bob")
    episodes = {
        each.scope: each
        for each in read_episodes(played.loop._node.hgetall(played.loop.keys.episodes))
    }
    assert episodes["rater:bob"].title == "rater shift: bob"
    for advice in (mine["recommendation"], episodes["rater:bob"].recommendation):
        assert advice["reason"].startswith("Ask bob first")


def test_raters_beyond_the_bound_are_counted(bench):
    config = replace(BINARY, pane_s=DAY_S, alarm={"rater_detectors": 2})
    played, rng = Played(bench, config), np.random.default_rng(6)
    rated(played, rng, 0, 20)
    played.seal(0)
    assert sorted(played.held.detectors) == ["rater:ann|", "rater:bob|", "score|"]
    labels = played.told()["labels"]
    assert (labels["n_raters"], labels["n_raters_over"]) == (3, 1)


def test_the_labels_of_one_rater_can_be_what_counts(bench):
    config = replace(BINARY, pane_s=DAY_S, alarm={"raters": "rater:bob", "rater_detectors": 0})
    played, rng = Played(bench, config), np.random.default_rng(7)
    rated(played, rng, 0, 30)
    played.label(START_S + 9000, [LabelRow("d0.0", {}, [("bob", -1, None)])])
    played.seal(0)
    assert list(played.held.detectors) == ["score|"] and played.detector().baseline.n_units == 29
    played.predict(START_S + DAY_S, confidences=[0.2], labels=[0])
    played.seal(1)
    assert played.detector().why_passed == "one_rater"
