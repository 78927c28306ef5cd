"""Detectors in the store: each cohort once, in order, with everything that follows from it in one commit."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant import Batch, Pane
from calibrant_server.workers.alarm.alarm_commit import (
    AlarmCommit,
    acknowledgement,
    promotion,
    trial,
)
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_evidence import evidence_of
from calibrant_server.workers.alarm.cohorts import (
    CohortContents,
    CohortResult,
    PartialCohort,
    tables_of,
)
from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.alarm.detector_advance import (
    advance_cohort,
    advanced,
    close_partial_cohort,
    take_sealed,
)
from calibrant_server.workers.alarm.detectors import Detector, OpenChange
from calibrant_server.workers.alarm.episodes import ACKNOWLEDGED, CLOSED, OPEN, read_episodes
from calibrant_server.workers.ingest.entries import ALARM
from calibrant_server.workers.ingest.orders import alarm_order, delete_model
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.store.commit import Commit, FencingToken, StaleTokenError
from calibrant_server.workers.store.model_config import ModelConfig
from tests.workers.driving import FreeLeases

DAY_S = 86_400
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOK = {"url": "https://pager.example.org/calibrant", "secret": SECRET}
CONFIG = ModelConfig(
    "default", "risk", "binary", 2, generation="g1", revision=1, label_horizon_s=DAY_S,
    alarm={"tolerance": 0.0, "webhooks": [HOOK]},
)  # fmt: skip


def pane_of(rng, n=200, slope=1.0, labelled=True):
    """A day of a binary model whose outcomes follow its scores by a slope."""
    score = rng.beta(0.7, 2.2, n)
    columns = {"confidences": score}
    if labelled:
        truth = expit(slope * logit(np.clip(score, 1e-9, 1 - 1e-9)))
        columns["labels"] = (rng.random(n) < truth).astype(int)
    pane = Pane(CONFIG.spec())
    pane.fill_batch(Batch.from_columns(columns, task="binary").batch)
    return pane


def advance(commit, config, start_s, panes, held, token):
    """Advance all detectors by a day in the commit that seals it; returns the alarms that were raised."""
    writing = AlarmCommit(commit, held, token, 1e9)
    tables = tables_of(writing.settings, panes, held.active_map)
    contents = CohortContents.of(panes.get(""), [start_s])
    complete = PartialCohort(start_s, start_s + DAY_S, tables, held.made_of, contents)
    return advance_cohort(writing, start_s, evidence_of(held, complete))


class Sealing:
    """A partition whose cohorts are sealed by hand."""

    def __init__(self, bench, config=CONFIG):
        self.bench, self.config = bench, config
        bench.put_model(config)
        self.store = bench.store
        self.keys = self.store.keys.of(config)
        self.node = self.store.node(self.keys.partition)
        self.fencing = FencingToken(self.store, self.keys)
        self.fencing.reload()

    def held(self):
        return AlarmState(self.node, self.keys, self.config)

    def seal(self, day, panes, held=None):
        """Seal a day in one commit; returns the alarms that went off."""
        self.fencing.reload()
        token, commit = self.fencing.new_token(), Commit(self.keys)
        raised = advance(commit, self.config, day * DAY_S, panes, held or self.held(), token)
        self.fencing.send(commit, token)
        return raised

    def take(self, start_s, end_s, panes):
        """Seal a pane of every slice in one commit."""
        self.fencing.reload()
        commit = Commit(self.keys)
        take_sealed(commit, self.keys, self.node, self.config, start_s, end_s, panes)
        self.fencing.send(commit, self.fencing.new_token())

    def close(self, until_s):
        """Close the day that is being gathered if its time is over; tells whether it was."""
        self.fencing.reload()
        commit = close_partial_cohort(self.node, self.keys, self.config, until_s)
        if commit is not None:
            self.fencing.send(commit, self.fencing.new_token())
        return commit is not None

    def order(self, order):
        """Have an order followed, as the partition's worker does."""
        entry = alarm_order(self.config.key, self.config.generation, order)
        self.node.xadd(self.keys.stream, entry.to_fields())
        loop = PartitionLoop(
            self.store, self.keys.partition, Numerics(), FreeLeases(), threading.Event()
        )
        loop._fencing.reload()
        loop._counted = True
        loop.step()

    def detector(self, name="score|"):
        return self.held().detectors[name]

    def raw(self):
        return self.node.hgetall(self.keys.detectors(self.config.key, self.config.generation))

    def episodes(self):
        return read_episodes(self.node.hgetall(self.keys.episodes))

    def deliveries(self):
        return [WebhookDelivery.from_json(text) for text in self.node.hvals(self.keys.deliveries)]

    def until_alarm(self, rng, start=0, most=60, slope=0.4):
        for day in range(start, start + most):
            if raised := self.seal(day, {"": pane_of(rng, slope=slope)}):
                return day, raised[0]
        raise AssertionError("no alarm")


@pytest.fixture
def sealing(bench):
    return Sealing(bench)


def test_a_cohort_counts_once_whatever_happens(sealing):
    rng = np.random.default_rng(1)
    panes = [pane_of(rng) for _ in range(4)]
    for day, pane in enumerate(panes):
        sealing.seal(day, {"": pane})
    before = sealing.raw()
    assert sealing.detector().total.n_units == 800
    for day in (3, 0, 2):
        assert sealing.seal(day, {"": panes[day]}) == []
    assert sealing.raw() == before
    assert len(sealing.held().cohort_results("score|")) == 4


def test_a_commit_that_was_overtaken_changes_nothing(sealing):
    rng = np.random.default_rng(2)
    sealing.seal(0, {"": pane_of(rng)})
    stale = FencingToken(sealing.store, sealing.keys)
    stale.reload()
    held = sealing.held()
    sealing.seal(1, {"": pane_of(rng)})
    before = sealing.raw()
    token, commit = stale.new_token(), Commit(sealing.keys)
    advance(commit, CONFIG, DAY_S, {"": pane_of(rng)}, held, token)
    with pytest.raises(StaleTokenError):
        stale.send(commit, token)
    assert sealing.raw() == before


def test_state_does_not_depend_on_restarts(bench):
    """Held in memory from cohort to cohort, or read anew each time: the same bytes."""
    rng = np.random.default_rng(3)
    panes = [{"": pane_of(rng), "site:A": pane_of(rng, 20)} for _ in range(5)]
    kept, anew = Sealing(bench), Sealing(bench, replace(CONFIG, model="other"))
    held = kept.held()
    for day, each in enumerate(panes):
        kept.seal(day, each, held)
        anew.seal(day, each)
    first, second = kept.raw(), anew.raw()
    assert {n: v for n, v in first.items() if n != b"*"} == {
        n: v for n, v in second.items() if n != b"*"
    }


def test_an_alarm_goes_off_once_and_tells_everybody(sealing):
    rng = np.random.default_rng(4)
    for day in range(20):
        sealing.seal(day, {"": pane_of(rng)})
    day, raised = sealing.until_alarm(rng, 20)
    assert raised.status == OPEN and raised.slice == "" and raised.cohort == day * DAY_S
    assert abs(raised.start_of_change - 20 * DAY_S) <= 3 * DAY_S
    assert raised.evidence_log10 > raised.threshold_log10 == pytest.approx(np.log10(3650))
    assert raised.recommendation["action"] != "none" and set(raised.effect) == {"before", "after"}
    [result] = sealing.deliveries()
    assert result.type == "alarm.raised" and raised.id in result.body
    report = json.loads(result.body)["data"]
    assert report["change"]["word"] == "changed" and report["change"]["sentence"].startswith(
        "Changed"
    )
    assert report["calibration"] == raised.calibration and report["calibration"]["sentence"]
    assert all({"n", "mean_confidence"} < set(side) for side in report["effect"].values())
    for later in range(day + 1, day + 4):
        assert sealing.seal(later, {"": pane_of(rng, slope=0.4)}) == []
    assert len(sealing.episodes()) == 1


def test_a_model_that_is_wrong_from_the_start_has_not_changed(sealing):
    rng = np.random.default_rng(16)
    for day in range(40):
        assert sealing.seal(day, {"": pane_of(rng, slope=0.4)}) == []
    words = sealing.detector().words
    assert words.calibration == "off" and words.since <= 2 * DAY_S and not words.was_good


def test_a_change_for_the_better_is_an_event(sealing):
    rng = np.random.default_rng(17)
    for day in range(20):
        sealing.seal(day, {"": pane_of(rng, slope=0.4)})
    for day in range(20, 30):
        assert sealing.seal(day, {"": pane_of(rng)}) == []
    assert 18 * DAY_S <= sealing.detector().improved_at <= 22 * DAY_S


def test_a_slow_change_is_compared_with_the_first_cohorts(bench, monkeypatch):
    """Their results are stored beyond the bound: else Before would change as slowly as the model."""
    monkeypatch.setattr("calibrant_server.workers.alarm.cohorts.MAX_COHORTS", 30)
    monkeypatch.setattr("calibrant_server.workers.alarm.cohorts.N_FIRST", 10)
    sealing, rng = Sealing(bench), np.random.default_rng(18)
    for day in range(60):
        sealing.seal(day, {"": pane_of(rng, 20)})
    stored = [each.cohort // DAY_S for each in sealing.held().cohort_results("score|")]
    assert stored == [*range(10), *range(30, 60)]


def test_acknowledging_starts_before_at_the_change_and_promotion_closes(sealing):
    rng = np.random.default_rng(5)
    for day in range(20):
        sealing.seal(day, {"": pane_of(rng)})
    day, raised = sealing.until_alarm(rng, 20)
    sealing.order(acknowledgement(raised.id, "ann", "known: new scanner", "physicist"))
    [episode] = sealing.episodes()
    assert (episode.status, episode.acknowledged_by, episode.note) == (
        ACKNOWLEDGED,
        "ann",
        "known: new scanner",
    )
    detector = sealing.detector()
    assert detector.change is None and detector.acknowledged_at == episode.acknowledged_s
    assert detector.begun == raised.start_of_change
    before = sealing.raw()
    sealing.order(acknowledgement(raised.id, "bob", None))
    assert sealing.raw() == before and sealing.episodes()[0].acknowledged_by == "ann"
    assert sealing.episodes()[0].acknowledged_role == "physicist"
    for later in range(day + 1, day + 21):
        assert sealing.seal(later, {"": pane_of(rng, slope=0.4)}) == []
    again, second = sealing.until_alarm(rng, day + 21, slope=-0.3)
    by_id = {each.id: each for each in sealing.episodes()}
    assert by_id[raised.id].status == CLOSED and by_id[second.id].status == OPEN
    sealing.order(promotion("v2"))
    assert all(each.status == CLOSED for each in sealing.episodes())
    detector = sealing.detector()
    assert (detector.begun, detector.map_version, detector.last) == (None, "v2", again * DAY_S)
    assert detector.total.n_units > 0
    numbers = [each.number for each in sealing.episodes()]
    assert len(set(numbers)) == len(numbers)
    kinds = sorted(each.type for each in sealing.deliveries())
    assert kinds == [
        "alarm.acknowledged", "alarm.closed", "alarm.closed", "alarm.raised", "alarm.raised",
    ]  # fmt: skip


def test_an_order_for_another_generation_or_without_sense_harms_no_user(sealing, bench):
    rng = np.random.default_rng(6)
    sealing.seal(0, {"": pane_of(rng)})
    before = sealing.raw()
    sealing.config = replace(CONFIG, generation="g0")
    sealing.order(promotion("v2"))
    sealing.config = CONFIG
    assert sealing.raw() == before
    sealing.order({"op": "dance"})
    sealing.order({"op": "acknowledge"})
    letters = bench.dead_letters(CONFIG)
    assert [each[b"k"] for each in letters] == [ALARM.encode()] * 2


def test_a_test_call_reaches_every_receiver(sealing):
    sealing.order(trial("t1"))
    assert [(each.type, each.url) for each in sealing.deliveries()] == [("alarm.test", HOOK["url"])]


def test_slices_share_the_rate_of_false_alarms(sealing):
    """Level 1 / (A·m); a slice without labels in a cohort is not looked at in it."""
    rng = np.random.default_rng(7)
    panes = {"": pane_of(rng), **{f"site:{i}": pane_of(rng, 50) for i in range(4)}}
    sealing.seal(0, panes)
    [cohort_result] = sealing.held().cohort_results("score|site:0")
    assert cohort_result.level == pytest.approx(1 / (5 * 3650))
    sealing.seal(1, {"": pane_of(rng), "site:1": pane_of(rng, 20, labelled=False)})
    held = sealing.held().detectors
    assert held["score|site:0"].last == 0 and held["score|site:1"].last == DAY_S
    results = sealing.held().cohort_results("score|site:1")
    assert [each.table.n_units for each in results] == pytest.approx([50, 0])
    assert sum(each.table.columns[5:] for each in results).sum(axis=1).tolist() == [70, 50]


def until_changed(sealing, seed):
    rng = np.random.default_rng(seed)
    for day in range(10):
        sealing.seal(day, {"": pane_of(rng)})
    return rng, sealing.until_alarm(rng, 10, slope=0.2)[0]


def test_other_settings_restart(sealing):
    rng, day = until_changed(sealing, 8)
    sealing.config = replace(CONFIG, alarm={**CONFIG.alarm, "raters": "majority"})
    sealing.seal(day + 1, {"": pane_of(rng)})
    assert sealing.detector().begun == (day + 1) * DAY_S
    assert sealing.episodes()[0].closed_because == "the settings of the alarm changed"
    sealing.config = replace(
        sealing.config, alarm={**sealing.config.alarm, "false_alarms": "1 per P1Y", "tolerance": 0.05}
    )  # fmt: skip
    sealing.seal(day + 2, {"": pane_of(rng)})
    assert sealing.detector().begun == (day + 1) * DAY_S


def test_listed_classes_without_ids_are_watched_where_every_prediction_is_a_unit(bench):
    config = ModelConfig(
        "default", "cls", "multiclass", 3, generation="g1", revision=1, label_horizon_s=DAY_S,
        alarm={"tolerance": 0.0, "bets": [0, 2]},
    )  # fmt: skip
    sealing, rng = Sealing(bench, config), np.random.default_rng(11)
    rows = rng.dirichlet([1, 1, 1], 300)
    labels = [int(rng.choice(3, p=row)) for row in rows]
    pane = Pane(config.spec())
    pane.fill_batch(Batch.from_columns({"probabilities": rows, "labels": labels}).batch)
    sealing.seal(0, {"": pane})
    held = sealing.held().detectors
    assert sorted(held) == ["class:0|", "class:2|"]
    assert held["class:2|"].total.n_units == 300
    assert held["class:2|"].total.correct.sum() == labels.count(2)
    shared = Pane(config.spec())
    columns = {"probabilities": rows, "labels": labels, "units": ["u"] * 300}
    shared.fill_batch(Batch.from_columns(columns).batch)
    sealing.seal(1, {"": shared})
    passed = sealing.held().detectors["class:2|"]
    assert (passed.last, passed.n_passed, passed.why_passed) == (DAY_S, 1, "shared_units")


def test_a_deleted_model_leaves_no_alarm(sealing, bench):
    until_changed(sealing, 12)
    entry = delete_model(CONFIG.key, "g1")
    sealing.node.hdel(sealing.keys.models, CONFIG.key)
    sealing.node.xadd(sealing.keys.stream, entry.to_fields())
    loop = PartitionLoop(
        sealing.store, sealing.keys.partition, Numerics(), FreeLeases(), threading.Event()
    )
    loop._fencing.reload()
    loop._counted = True
    loop.step()
    assert bench.keys_of(CONFIG) == []
    assert sealing.episodes() == [] and sealing.deliveries() == []
    assert sealing.node.hgetall(sealing.keys.summaries) == {}


def test_packed_detectors_and_looks_read_back():
    rng = np.random.default_rng(13)
    settings = AlarmSettings()
    cohort = tables_of(settings, {"": pane_of(rng)})["score|"]
    result = CohortResult(DAY_S, 0.25, 1 / 3650, cohort)
    detector = advanced(Detector.begin(settings), [result], settings, 1 / 3650)
    detector = replace(detector, change=OpenChange(DAY_S, 0, 0, 0, 0, 1, 1e-9))
    again = Detector.unpack(detector.pack())
    assert again.pack() == detector.pack() and again.change == detector.change
    read = CohortResult.unpack(DAY_S, result.pack())
    assert (read.p, read.level) == (result.p, result.level) and read.stored().pack() == read.pack()
    np.testing.assert_allclose(read.table.columns, result.table.columns, rtol=1e-6)
    assert datetime.fromtimestamp(read.cohort, UTC).day == 2


def hours(rng, day, numbers):
    return [(day * DAY_S + hour * 3600, {"": pane_of(rng, 20)}) for hour in numbers]


def test_hours_are_gathered_into_days(sealing, bench):
    """As one pane a day, whichever hours there are; the last day is seen when its time is over."""
    rng = np.random.default_rng(14)
    complete = Sealing(bench, replace(CONFIG, model="whole"))
    for day, numbers in enumerate(([1, 5, 23], [2, 9], [0, 12])):
        together = Pane(CONFIG.spec())
        for start, panes in hours(rng, day, numbers):
            sealing.take(start, start + 3600, panes)
            together.merge(panes[""])
        complete.seal(day, {"": together})
    assert sealing.detector().last == DAY_S
    assert sealing.close(3 * DAY_S - 1) is False
    assert sealing.close(3 * DAY_S) is True
    assert sealing.close(3 * DAY_S) is False
    first, second = sealing.detector(), complete.detector()
    assert first.last == second.last == 2 * DAY_S
    np.testing.assert_allclose(first.total.columns, second.total.columns, rtol=1e-6)
    assert first.total.n_units == pytest.approx(140)


GOLDEN = Path(__file__).parent / "golden"


def test_what_was_kept_in_format_1_is_read_for_ever():
    gathered = PartialCohort.unpack((GOLDEN / "gathered-1.bin").read_bytes())
    assert gathered.end_s == DAY_S and gathered.cohorts["score|"].columns[[0, 5, 6]].sum(
        axis=1
    ).tolist() == 3 * [200.0]


def test_a_damaged_detector_restarts_and_sealing_continues(sealing):
    rng = np.random.default_rng(15)
    sealing.seal(0, {"": pane_of(rng)})
    key = sealing.keys.detectors(CONFIG.key, CONFIG.generation)
    sealing.node.hset(key, "score|", b"not a detector")
    sealing.seal(1, {"": pane_of(rng)})
    assert sealing.detector().begun == DAY_S
