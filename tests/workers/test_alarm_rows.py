"""The alarm reads retained rows: units once in a cohort, classes that share units, mapped scores, who said what."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant import Batch
from calibrant.core.pane import Pane
from calibrant.drift.agreement import krippendorff_alpha
from calibrant.drift.detector import advance, fresh
from calibrant.drift.row_tables import row_table
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable, unit_table
from calibrant.input.labels import LabelRow
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohort_evidence import RaterResult
from calibrant_server.workers.alarm.commands import promotion
from calibrant_server.workers.alarm.detectors import Detector
from calibrant_server.workers.alarm.episodes import read_episodes
from calibrant_server.workers.alarm.seen_units import FirstContacts, SeenUnits
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, alarm_order
from calibrant_server.workers.ingest.inbox import IngestBatch
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.sealing import Sealing
from calibrant_server.workers.queries.ask import QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.store.connection import Store
from tests.workers.driving import MODEL

pytestmark = pytest.mark.one_server

DAY_S, HOUR_S = 86_400, 3600
START_S = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
BINARY = replace(
    MODEL,
    task="binary",
    n_classes=2,
    pane_s=HOUR_S,
    label_horizon_s=DAY_S,
    alarm={"tolerance": 0.0},
)
PLATT = {
    "method": "platt",
    "scope": "positive",
    "class": None,
    "parameters": {"slope": 0.5, "intercept": 0.3, "clip": 1e-12},
}


class Played:
    """A model whose entries are merged and whose cohorts are sealed as its partition's worker does it."""

    def __init__(self, bench, config):
        bench.numerics = Numerics()
        self.bench, self.config = bench, bench.put_model(config)
        self.loop = bench.loop(model=config)
        self.loop._housekeeping.due_at = float("inf")
        self.sealing = Sealing(self.loop._node, self.loop.keys, self.loop._fencing, bench.numerics)
        self.n = 0

    def send(self, kind, payload, digest, n, at_s):
        self.n += 1
        at = datetime.fromtimestamp(at_s, UTC)
        self.bench.deliver(
            IngestBatch.of(self.config, f"b{self.n}", kind, payload, digest, n, received_at=at)
        )
        self.loop.step()

    def predict(self, at_s, **columns):
        n = len(next(iter(columns.values())))
        at = np.broadcast_to(at_s, n)
        times = [datetime.fromtimestamp(float(each), UTC).isoformat() for each in at]
        columns |= {"event_times": times}
        batch = Batch.from_columns(
            columns, task=self.config.task, n_classes=self.config.n_classes
        ).batch
        self.send(PREDICTIONS, batch.pack(), batch.digest(), n, float(at.max()) + 1)
        return batch

    def label(self, at_s, rows):
        payload = pack_labels(rows)
        self.send(LABELS, payload, payload[-16:], len(rows), at_s)

    def seal(self, day):
        """Everything up to the end of a day has come of age."""
        self.sealing.seal(self.config, START_S + (day + 2) * DAY_S)
        self.loop._housekeeping._close_gathered(self.config, START_S + (day + 2) * DAY_S)

    def order(self, order):
        entry = alarm_order(self.config.key, self.config.generation, order)
        self.loop._node.xadd(self.loop.keys.stream, entry.to_fields())
        self.loop.step()

    def promote(self, version, fitted, to_s):
        """Freeze a map and have the alarm told that it is in force."""
        body = fitted | {
            "window": {"to": datetime.fromtimestamp(to_s, UTC).isoformat().replace("+00:00", "Z")}
        }
        key = self.loop.keys.map_versions(self.config.key, self.config.generation)
        self.loop._node.hset(key, f"v{version}", json.dumps(body))
        self.order(promotion(str(version)))

    @property
    def held(self):
        return AlarmState(self.loop._node, self.loop.keys, self.config)

    def detector(self, name="score|"):
        return self.held.detectors[name]

    def raters(self):
        found = self.loop._node.hgetall(
            self.loop.keys.rater_results(self.config.key, self.config.generation)
        )
        return {int(start): RaterResult.from_json(text) for start, text in found.items()}

    def told(self, **params):
        window = (0, START_S + 1000 * DAY_S)
        pane_query = QueryRequest(
            "d", "drift", params, Side(self.config.key, "", window), "r", 1e12
        )
        reply = Compute(Store(self.bench.settings), self.bench.numerics).reply(pane_query)
        assert reply.status == "ok", reply.body
        return json.loads(reply.body)

    def listed(self):
        return [key for key in self.bench.keys_of(self.config) if b":j:" in key]


def shared(rng, n_units=20, hours=(1, 5, 9, 23)):
    """A unit's row in each of several hours: one luck for all of them."""
    p = rng.beta(0.7, 2.2, (len(hours), n_units))
    y = (rng.random(n_units) < p).astype(int)
    units = [f"u{i}" for i in range(n_units)]
    return [(hour, p[i], y[i], units) for i, hour in enumerate(hours)]


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_unit_in_several_panes_of_a_day_counts_once_where_rows_have_ids(bench, with_ids):
    played, rng = Played(bench, BINARY), np.random.default_rng(1)
    columns = {"confidences": [], "labels": [], "units": []}
    for hour, p, y, units in shared(rng):
        named = {"ids": [f"{hour}.{u}" for u in units]} if with_ids else {}
        batch = {
            "confidences": p,
            "labels": y,
            "units": units,
            "slices": {"site": ["A"] * len(units)},
        }
        played.predict(START_S + hour * HOUR_S, **batch, **named)
        for name in columns:
            columns[name] += list(batch[name])
    assert bool(played.listed()) == with_ids
    played.seal(0)
    detector = played.detector()
    assert detector.last == START_S and played.listed() == []
    assert detector.baseline.n_units == pytest.approx(20 if with_ids else 80)
    assert detector.coverage.sum(axis=1).tolist() == [80, 80]
    assert played.detector("score|site:A").baseline.n_units == pytest.approx(
        detector.baseline.n_units
    )
    if with_ids:
        expected, _ = row_table(Batch.from_columns(columns, task="binary").batch, "score", "mean")
        np.testing.assert_allclose(detector.baseline.columns, expected.columns, atol=1e-12)


def test_rows_without_ids_among_others_leave_the_cohort_to_its_panes(bench):
    played, rng = Played(bench, BINARY), np.random.default_rng(2)
    for hour, p, y, units in shared(rng):
        named = {"ids": [f"{hour}.{u}" for u in units]} if hour != 5 else {}
        played.predict(START_S + hour * HOUR_S, confidences=p, labels=y, units=units, **named)
    played.seal(0)
    assert played.detector().baseline.n_units == pytest.approx(80)


def test_where_nothing_is_shared_rows_and_panes_are_the_same_cohort(bench):
    played, rng = Played(bench, BINARY), np.random.default_rng(3)
    whole = Pane(BINARY.spec())
    for hour in (0, 7):
        ids = [f"{hour}.{i}" for i in range(50)]
        whole.fill_batch(
            played.predict(
                START_S + hour * HOUR_S,
                confidences=rng.random(50),
                ids=ids,
                units=ids,
                labels=[0] * 50,
            )
        )
    played.seal(0)
    np.testing.assert_allclose(
        played.detector().baseline.columns[:3], unit_table(whole, "mean").columns[:3], atol=1e-9
    )


@pytest.mark.parametrize(("with_ids", "n_units"), [(True, 40), (False, 30)])
def test_settings_that_change_while_a_cohort_is_gathered(bench, with_ids, n_units):
    """Sums of other settings are left behind; with ids the whole cohort is read anew."""
    played, rng = Played(bench, BINARY), np.random.default_rng(12)

    def predict(hour, n):
        named = {
            "ids": [f"{hour}.{i}" for i in range(n)],
            "units": [f"{hour}.{i}" for i in range(n)],
        }
        p = rng.random(n)
        played.predict(
            START_S + hour * HOUR_S, confidences=p, labels=[0] * n, **(named if with_ids else {})
        )

    predict(0, 10)
    played.sealing.seal(BINARY, START_S + DAY_S + 2 * HOUR_S)
    assert played.held.gathered.contents.n == 10
    played.config = bench.put_model(replace(BINARY, alarm={"tolerance": 0.0, "raters": "majority"}))
    predict(5, 30)
    played.seal(0)
    assert played.held.gathered is None
    assert played.detector().baseline.n_units == pytest.approx(n_units)


def test_listed_classes_are_watched_where_rows_share_units(bench):
    config = replace(BINARY, task="multiclass", n_classes=3, pane_s=DAY_S, alarm={"bets": [0, 2]})
    played, rng = Played(bench, config), np.random.default_rng(4)
    rows = rng.dirichlet([1, 1, 1], 60)
    columns = {"probabilities": rows, "labels": [int(rng.choice(3, p=row)) for row in rows]}
    columns["units"] = [f"u{i % 12}" for i in range(60)]
    batch = played.predict(START_S, **columns, ids=[f"i{i}" for i in range(60)])
    played.seal(0)
    assert sorted(played.held.detectors) == ["class:0|", "class:2|"]
    for index in (0, 2):
        table, _ = row_table(batch, f"class:{index}", "mean")
        np.testing.assert_allclose(
            played.detector(f"class:{index}|").baseline.columns, table.columns, atol=1e-12
        )
        assert table.n_units == pytest.approx(12)
    played.predict(START_S + DAY_S, **columns)
    played.seal(1)
    told = played.told(scope="class:2")
    assert told["cohorts_passed_over"]["n"] == 1 and "ids" in told["cohorts_passed_over"]["detail"]


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


def mapped_days(played, rng, days, with_ids=True, n=200):
    """Outcomes follow the mapped scores."""
    for day in days:
        p = rng.beta(0.7, 2.2, n)
        truth = expit(0.3 + 0.5 * logit(np.clip(p, 1e-12, 1 - 1e-12)))
        named = {"ids": [f"d{day}.{i}" for i in range(n)]} if with_ids else {}
        y = (rng.random(n) < truth).astype(int)
        yield played.predict(START_S + day * DAY_S, confidences=p, labels=y, **named)
        played.seal(day)


@pytest.mark.parametrize("with_ids", [True, False])
def test_bets_are_on_scores_as_the_map_active_makes_them(bench, with_ids):
    """Raw scores alarm; under the right map nothing does; what the map was fitted to is no evidence."""
    config = replace(BINARY, pane_s=DAY_S)
    played, rng = Played(bench, config), np.random.default_rng(8)
    list(mapped_days(played, rng, range(20), with_ids))
    assert played.detector().in_alarm
    played.promote(1, PLATT, START_S + 22 * DAY_S)
    detector = played.detector()
    assert (detector.map_version, detector.state.n_cohorts, detector.last) == (
        "1",
        0,
        START_S + 21 * DAY_S,
    )
    list(mapped_days(played, rng, range(20, 22), with_ids))
    assert played.detector().state.n_cohorts == 0
    [batch] = mapped_days(played, rng, [22], with_ids)
    table, _ = row_table(batch, "score", "mean", PLATT)
    np.testing.assert_allclose(
        played.detector().baseline.columns[:3].sum(axis=1), table.columns[:3].sum(axis=1), rtol=1e-6
    )
    if with_ids:
        np.testing.assert_allclose(played.detector().baseline.columns, table.columns, atol=1e-12)
    list(mapped_days(played, rng, range(23, 34), with_ids))
    told = played.told()
    assert (told["status"], told["n_cohorts"], told["map_version"], told["scores"]) == (
        "ok",
        12,
        "1",
        "mapped",
    )
    assert told["description"]["ece"]["value"] < 2 * told["description"]["ece"]["null_q95"]


def test_bets_on_raw_scores_do_not_mind_a_promotion(bench):
    config = replace(BINARY, pane_s=DAY_S, alarm={"scores": "raw"})
    played, rng = Played(bench, config), np.random.default_rng(9)
    list(mapped_days(played, rng, range(3)))
    played.promote(1, PLATT, START_S + 8 * DAY_S)
    list(mapped_days(played, rng, range(3, 5)))
    assert played.detector().state.n_cohorts == 5 and played.told()["map_version"] == "1"


def test_a_map_of_whole_rows_needs_rows_with_ids(bench):
    fitted = {
        "method": "temperature",
        "scope": "full",
        "class": None,
        "parameters": {"temperature": 2.0},
    }
    config = replace(BINARY, task="multiclass", n_classes=3, pane_s=DAY_S)
    played, rng = Played(bench, config), np.random.default_rng(10)
    played.promote(1, fitted, START_S)
    rows = rng.dirichlet([1, 1, 1], 40)
    batch = played.predict(
        START_S, probabilities=rows, labels=[0] * 40, ids=[f"i{i}" for i in range(40)]
    )
    played.seal(0)
    table, _ = row_table(batch, "score", "mean", fitted)
    np.testing.assert_allclose(played.detector().baseline.columns, table.columns, atol=1e-12)
    assert played.detector().map_version == "1"
    played.predict(START_S + DAY_S, probabilities=rows, labels=[0] * 40)
    played.seal(1)
    assert (played.detector().why_passed, played.detector().state.n_cohorts) == ("whole_rows", 1)


def test_sums_of_shared_units_are_mapped_between_ends(bench):
    """Without ids and with units of several rows, as pixels come: the alarm goes on under a map, and stays quiet."""
    played, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(13)
    played.promote(1, PLATT, START_S)
    for day in range(6):
        p = rng.beta(0.7, 2.2, (100, 3))
        truth = expit(0.3 + 0.5 * logit(np.clip(p, 1e-12, 1 - 1e-12)))
        y = (rng.random((100, 1)) < truth).astype(int)
        units = [f"d{day}.{i}" for i in range(100) for _ in range(3)]
        played.predict(START_S + day * DAY_S, confidences=p.ravel(), labels=y.ravel(), units=units)
        played.seal(day)
    told = played.told()
    assert (told["status"], told["n_cohorts"], told["cohorts_passed_over"]["n"]) == ("ok", 6, 0)
    assert told["n_units"] == pytest.approx(600) and told["map_version"] == "1"
    for day in range(6, 30):
        p = rng.beta(0.7, 2.2, 100)
        units = [f"d{day}.{i // 2}" for i in range(100)]
        played.predict(
            START_S + day * DAY_S,
            confidences=p,
            labels=(rng.random(100) < 0.9 * p).astype(int),
            units=units,
        )
        played.seal(day)
    assert played.detector().in_alarm


def test_a_map_that_is_gone_passes_cohorts_over(bench):
    played = Played(bench, replace(BINARY, pane_s=DAY_S))
    played.order(promotion("7"))
    played.predict(START_S, confidences=[0.2], labels=[0], ids=["a"])
    played.seal(0)
    assert played.detector().why_passed == "map_lost"
    told = played.told()
    assert (
        told["status"] == "insufficient_data"
        and "cannot be read" in told["reason"]
        and told["reason"] in told["summary"]
    )


def test_the_verdict_tells_of_labels_and_their_delays(bench):
    """And what was sent twice is counted, and no evidence."""
    played, rng, n_known = (
        Played(bench, replace(BINARY, pane_s=DAY_S)),
        np.random.default_rng(11),
        0,
    )
    for day in range(4):
        p = rng.random(100)
        ids = [f"d{day}.{i}" for i in range(100)]
        batch = played.predict(START_S + day * DAY_S, confidences=p, ids=ids)
        known = [i for i in range(100) if rng.random() < p[i]]
        rows = [LabelRow(ids[i], {int(rng.random() < p[i]): 1}, []) for i in known]
        n_known += len(known)
        played.label(START_S + day * DAY_S + 7200, rows)
        played.send(PREDICTIONS, batch.pack(), batch.digest(), 100, START_S + day * DAY_S + 9000)
        played.seal(day)
    told = played.told()
    assert told["coverage"]["gradient"]["slope"] > 0.5
    assert told["coverage"]["by_bin"][0] < told["coverage"]["by_bin"][-1]
    assert told["coverage"]["delay"]["median_s"] == pytest.approx(7200, rel=0.1)
    assert told["labels"]["n_duplicates_dropped"] == 400
    assert told["n_units"] == told["coverage"]["n_labelled"] == n_known
    assert (
        "labelled units" in told["summary"]
        and "calibrated model would show" in told["description"]["text"]
    )


def test_late_labels_of_one_class_are_a_watch_until_the_run_in_is_complete(bench):
    """Positives are labelled after the seal: nothing alarms. Once nearly all labels come in time, the evidence is the plain one."""
    config = replace(BINARY, pane_s=DAY_S, alarm={"tolerance": 0.02})
    played, rng = Played(bench, config), np.random.default_rng(21)

    def play(day, is_late):
        p = rng.beta(0.7, 2.2, 150)
        y = (rng.random(150) < p).astype(int)
        ids = [f"{day}.{i}" for i in range(150)]
        late = is_late(y)
        labels = [None if wait else int(label) for wait, label in zip(late, y, strict=True)]
        played.predict(START_S + day * DAY_S, confidences=p, labels=labels, ids=ids)
        played.seal(day)
        rows = [LabelRow(ids[i], {int(y[i]): 1}, []) for i in np.flatnonzero(late)]
        if rows:
            played.label(START_S + (day + 2) * DAY_S, rows)

    for day in range(25):
        play(day, lambda y: (y == 1) & (rng.random(len(y)) < 0.5))
    told = played.told()
    assert told["status"] == "watch" and "labels_pending" in told["reason"]
    assert not played.detector().in_alarm and played.detector().state.n_pending == 25
    run_in = played.detector().label_run_in
    assert run_in.n_cohorts == 24 and not run_in.is_complete
    assert run_in.coverage[0] == pytest.approx(0.5, abs=0.1) and run_in.coverage[1] == 1.0
    assert Detector.unpack(played.detector().pack()).label_run_in == run_in


def test_labels_that_come_in_time_page_although_some_never_come(bench):
    """A tenth of the predictions is never labelled: no label is pending for long, and the run-in shows it."""
    config = replace(BINARY, pane_s=DAY_S)
    played, rng = Played(bench, config), np.random.default_rng(22)
    for day in range(60):
        p = rng.beta(0.7, 2.2, 150)
        truth = expit((0.3 if day >= 40 else 1.0) * logit(np.clip(p, 1e-12, 1 - 1e-12)))
        y = (rng.random(150) < truth).astype(int)
        labels = [None if i % 10 == 0 else int(y[i]) for i in range(150)]
        ids = [f"{day}.{i}" for i in range(150)]
        played.predict(START_S + day * DAY_S, confidences=p, labels=labels, ids=ids)
        played.seal(day)
    detector = played.detector()
    assert detector.label_run_in.is_complete and detector.state.n_pending < 15
    assert detector.in_alarm and detector.state.start_of_change >= START_S + 37 * DAY_S


def test_a_unit_bets_once_in_its_first_cohort(bench):
    """A patient who returns every day is left out from the second day on, and counted."""
    played, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(23)
    for day in range(3):
        p = rng.beta(0.7, 2.2, 40)
        units = [f"always{i}" for i in range(15)] + [f"{day}.{i}" for i in range(25)]
        ids = [f"{day}.{i}" for i in range(40)]
        labels = (rng.random(40) < p).astype(int)
        slices = {"site": ["A" if i < 20 else "B" for i in range(40)]}
        at_s = START_S + day * DAY_S
        played.predict(at_s, confidences=p, labels=labels, units=units, ids=ids, slices=slices)
        played.seal(day)
    detector, told = played.detector(), played.told()
    assert detector.baseline.n_units == pytest.approx(40 + 25 + 25)
    assert played.detector("score|site:A").baseline.n_units == pytest.approx(20 + 5 + 5)
    assert told["units"] | {"detail": None} == {
        "rule": "first_contacts_only", "n_left_out": 30, "claim": "1 per P10Y", "detail": None,
    }  # fmt: skip
    assert Detector.unpack(detector.pack()).n_left_out == 30
    played.seal(2)
    assert played.detector().n_left_out == 30


@pytest.mark.parametrize("columns", [("units",), ("ids",), ()])
def test_without_units_of_rows_no_rate_is_claimed(bench, columns):
    played, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(24)
    p = rng.beta(0.7, 2.2, 40)
    named = {
        name: [f"{name}{i // 2 if name == 'units' else i}" for i in range(40)] for name in columns
    }
    played.predict(START_S, confidences=p, labels=(rng.random(40) < p).astype(int), **named)
    played.seal(0)
    told = played.told()["units"]
    assert (told["rule"], told["n_left_out"], told["claim"]) == ("units_unknown", None, None)


def test_the_oldest_units_are_forgotten_beyond_the_bound(monkeypatch):
    monkeypatch.setattr("calibrant_server.workers.alarm.seen_units.MAX_UNITS", 10)
    seen = SeenUnits({day: np.arange(4, dtype=np.uint64) for day in (1, 2)})
    assert seen.forgotten(2) == [] and seen.forgotten(3) == [1] and seen.forgotten(10) == [1, 2]
    assert len(FirstContacts(np.arange(40, dtype=np.uint64), 0).pack()) == 80


def test_recurring_patients_do_not_alarm(bench):
    """The defect: patients whose outcome is fixed alarm in most years if each day counts them again."""
    config = replace(BINARY, pane_s=DAY_S)
    played, rng = Played(bench, config), np.random.default_rng(25)
    p, again = rng.beta(0.7, 2.2, 60), fresh(Tolerance.within(0.0))
    y = (rng.random(60) < p).astype(int)
    for day in range(40):
        ids = [f"{day}.{i}" for i in range(60)]
        units = [f"u{i}" for i in range(60)]
        at_s = START_S + day * DAY_S
        played.predict(at_s, confidences=p, labels=y, units=units, ids=ids)
        played.seal(day)
        table = UnitTable.at_scores(p, np.ones(60), y.astype(float))
        again = advance(again, day, table, 3650.0)
    assert again.alarmed_at is not None
    detector = played.detector()
    assert not detector.in_alarm and detector.n_left_out == 39 * 60
    assert detector.state.log_plain_sr < np.log(3650.0)
