"""The alarm reads retained rows: units once in a cohort, and classes that share units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch
from calibrant.core.pane import Pane
from calibrant.drift.cohort_tables import row_table
from calibrant.drift.unit_tables import unit_table
from calibrant.input.labels import LabelRow
from calibrant_server.workers.alarm.cohorts import FirstContacts, SeenUnits
from calibrant_server.workers.alarm.detectors import Detector, Words
from calibrant_server.workers.queries.drift_evidence import place_in_list
from tests.workers.alarm_days import BINARY, DAY_S, HOUR_S, START_S, Played

pytestmark = pytest.mark.one_server


def shared(rng, n_units=20, hours=(1, 5, 9, 23)):
    """A unit's row in each of several hours: one luck for all of them."""
    p = rng.beta(0.7, 2.2, (len(hours), n_units))
    y = (rng.random(n_units) < p).astype(int)
    units = [f"u{i}" for i in range(n_units)]
    return [(hour, p[i], y[i], units) for i, hour in enumerate(hours)]


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_unit_in_several_panes_of_a_day_counts_once_where_rows_have_ids(bench, with_ids):
    simulated, rng = Played(bench, BINARY), np.random.default_rng(1)
    columns = {"confidences": [], "labels": [], "units": []}
    for hour, p, y, units in shared(rng):
        named = {"ids": [f"{hour}.{u}" for u in units]} if with_ids else {}
        batch = {
            "confidences": p,
            "labels": y,
            "units": units,
            "slices": {"site": ["A"] * len(units)},
        }
        simulated.predict(START_S + hour * HOUR_S, **batch, **named)
        for name in columns:
            columns[name] += list(batch[name])
    assert bool(simulated.listed()) == with_ids
    simulated.seal(0)
    detector = simulated.detector()
    assert detector.last == START_S and simulated.listed() == []
    assert detector.total.n_units == pytest.approx(20 if with_ids else 80)
    [look] = simulated.held.cohort_results("score|")
    assert look.table.columns[5:].sum(axis=1).tolist() == [80, 80]
    assert simulated.detector("score|site:A").total.n_units == pytest.approx(detector.total.n_units)
    if with_ids:
        expected = row_table(Batch.from_columns(columns, task="binary").batch, "score", "mean")
        np.testing.assert_allclose(detector.total.columns, expected.columns, atol=1e-12)


def test_rows_without_ids_among_others_leave_the_cohort_to_its_panes(bench):
    simulated, rng = Played(bench, BINARY), np.random.default_rng(2)
    for hour, p, y, units in shared(rng):
        named = {"ids": [f"{hour}.{u}" for u in units]} if hour != 5 else {}
        simulated.predict(START_S + hour * HOUR_S, confidences=p, labels=y, units=units, **named)
    simulated.seal(0)
    assert simulated.detector().total.n_units == pytest.approx(80)


def test_where_nothing_is_shared_rows_and_panes_are_the_same_cohort(bench):
    simulated, rng = Played(bench, BINARY), np.random.default_rng(3)
    complete = Pane(BINARY.spec())
    for hour in (0, 7):
        ids = [f"{hour}.{i}" for i in range(50)]
        complete.fill_batch(
            simulated.predict(
                START_S + hour * HOUR_S,
                confidences=rng.random(50),
                ids=ids,
                units=ids,
                labels=[0] * 50,
            )
        )
    simulated.seal(0)
    np.testing.assert_allclose(
        simulated.detector().total.columns[:3],
        unit_table(complete, "mean").columns[:3],
        atol=1e-9,
    )


@pytest.mark.parametrize(("with_ids", "n_units"), [(True, 40), (False, 30)])
def test_settings_that_change_while_a_cohort_is_gathered(bench, with_ids, n_units):
    """Sums of other settings are left behind; with ids the whole cohort is read anew."""
    simulated, rng = Played(bench, BINARY), np.random.default_rng(12)

    def predict(hour, n):
        named = {
            "ids": [f"{hour}.{i}" for i in range(n)],
            "units": [f"{hour}.{i}" for i in range(n)],
        }
        p = rng.random(n)
        simulated.predict(
            START_S + hour * HOUR_S, confidences=p, labels=[0] * n, **(named if with_ids else {})
        )

    predict(0, 10)
    simulated.sealing.seal(BINARY, START_S + DAY_S + 2 * HOUR_S)
    assert simulated.held.partial_cohort.contents.n == 10
    simulated.config = bench.put_model(
        replace(BINARY, alarm={"tolerance": 0.0, "raters": "majority"})
    )
    predict(5, 30)
    simulated.seal(0)
    assert simulated.held.partial_cohort is None
    assert simulated.detector().total.n_units == pytest.approx(n_units)


def test_listed_classes_are_watched_where_rows_share_units(bench):
    config = replace(BINARY, task="multiclass", n_classes=3, pane_s=DAY_S, alarm={"bets": [0, 2]})
    simulated, rng = Played(bench, config), np.random.default_rng(4)
    rows = rng.dirichlet([1, 1, 1], 60)
    columns = {"probabilities": rows, "labels": [int(rng.choice(3, p=row)) for row in rows]}
    columns["units"] = [f"u{i % 12}" for i in range(60)]
    batch = simulated.predict(START_S, **columns, ids=[f"i{i}" for i in range(60)])
    simulated.seal(0)
    assert sorted(simulated.held.detectors) == ["class:0|", "class:2|"]
    for index in (0, 2):
        table = row_table(batch, f"class:{index}", "mean")
        np.testing.assert_allclose(
            simulated.detector(f"class:{index}|").total.columns, table.columns, atol=1e-12
        )
        assert table.n_units == pytest.approx(12)
    simulated.predict(START_S + DAY_S, **columns)
    simulated.seal(1)
    result = simulated.result(scope="class:2")
    assert (
        result["cohorts_passed_over"]["n"] == 1 and "ids" in result["cohorts_passed_over"]["detail"]
    )


def test_a_unit_bets_once_in_its_first_cohort(bench):
    """A patient who returns every day is left out from the second day on, and counted."""
    simulated, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(23)
    for day in range(3):
        p = rng.beta(0.7, 2.2, 40)
        units = [f"always{i}" for i in range(15)] + [f"{day}.{i}" for i in range(25)]
        ids = [f"{day}.{i}" for i in range(40)]
        labels = (rng.random(40) < p).astype(int)
        slices = {"site": ["A" if i < 20 else "B" for i in range(40)]}
        at_s = START_S + day * DAY_S
        simulated.predict(at_s, confidences=p, labels=labels, units=units, ids=ids, slices=slices)
        simulated.seal(day)
    detector, result = simulated.detector(), simulated.result()
    assert detector.total.n_units == pytest.approx(40 + 25 + 25)
    assert simulated.detector("score|site:A").total.n_units == pytest.approx(20 + 5 + 5)
    assert result["units"] | {"detail": None} == {
        "rule": "first_contacts_only", "n_left_out": 30, "claim": "1 per P10Y", "detail": None,
    }  # fmt: skip
    assert Detector.unpack(detector.pack()).n_left_out == 30
    simulated.seal(2)
    assert simulated.detector().n_left_out == 30


def returning(simulated):
    """Send three days of 40 patients, 15 of whom return each day, with the labels of two raters that come later."""
    rng = np.random.default_rng(23)
    for day in range(3):
        p = rng.beta(0.7, 2.2, 40)
        units = [f"always{i}" for i in range(15)] + [f"{day}.{i}" for i in range(25)]
        ids, at_s = [f"{day}.{i}" for i in range(40)], START_S + day * DAY_S
        simulated.predict(at_s, confidences=p, units=units, ids=ids)
        y = (rng.random((40, 2)) < p[:, None]).astype(int).tolist()
        rows = zip(ids, y, strict=True)
        rated = [LabelRow(name, {}, [("ann", a, None), ("bob", b, None)]) for name, (a, b) in rows]
        simulated.label(at_s + 7200, rated)


def words_and_evidence(simulated):
    found = simulated.result()
    return {name: found[name] for name in ("calibration", "change", "units", "raters", "recent")}


def test_a_horizon_declared_after_the_data_finds_the_same_units_and_raters(bench):
    """Units were unknown and raters had no detectors if the data came before `label_horizon`, in the order of the README."""
    first = Played(bench, replace(BINARY, model="first", generation="g1", pane_s=DAY_S))
    returning(first)
    late = Played(
        bench, replace(BINARY, model="late", generation="g2", pane_s=DAY_S, label_horizon_s=None)
    )
    returning(late)
    assert first.listed() and not late.listed()
    late.config = bench.put_model(replace(late.config, label_horizon_s=DAY_S))
    for simulated in (first, late):
        for day in range(3):
            simulated.seal(day)
        assert simulated.detector().total.n_units == pytest.approx(40 + 25 + 25)
        units = simulated.result()["units"]
        assert units["rule"] == "first_contacts_only" and units["claim"] == "1 per P10Y"
        assert [row["rater"] for row in simulated.result()["raters"]] == ["ann", "bob"]
    assert words_and_evidence(late) == words_and_evidence(first)


def test_an_index_is_written_again_after_data_without_a_horizon(bench):
    simulated = Played(bench, replace(BINARY, pane_s=DAY_S, label_horizon_s=None))
    columns = {"confidences": [0.2] * 4, "labels": [0] * 4, "units": ["a", "b", "c", "d"]}
    for day, horizon_s in enumerate((DAY_S, None, DAY_S)):
        simulated.config = bench.put_model(replace(simulated.config, label_horizon_s=horizon_s))
        simulated.predict(START_S + day * DAY_S, ids=[f"{day}.{i}" for i in range(4)], **columns)
        if horizon_s is not None:
            simulated.seal(day)
        assert simulated.marks.indexed == (horizon_s is not None)
    detector = simulated.detector()
    assert (detector.units, detector.n_left_out) == ("first_contacts_only", 8)
    assert detector.total.n_units == pytest.approx(4)


def test_predictions_whose_ids_are_their_units_are_in_one_cohort_each(bench):
    simulated, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(24)
    p = rng.beta(0.7, 2.2, 40)
    y = (rng.random(40) < p).astype(int)
    simulated.predict(START_S, confidences=p, labels=y, ids=[f"i{i}" for i in range(40)])
    simulated.seal(0)
    expected = {"rule": "first_contacts_only", "n_left_out": 0, "claim": "1 per P10Y", "detail": None}  # fmt: skip
    assert simulated.result()["units"] == expected


@pytest.mark.parametrize("columns", [("units",), ()])
def test_without_units_of_rows_no_rate_is_claimed(bench, columns):
    simulated, rng = Played(bench, replace(BINARY, pane_s=DAY_S)), np.random.default_rng(24)
    p = rng.beta(0.7, 2.2, 40)
    named = {
        name: [f"{name}{i // 2 if name == 'units' else i}" for i in range(40)] for name in columns
    }
    simulated.predict(START_S, confidences=p, labels=(rng.random(40) < p).astype(int), **named)
    simulated.seal(0)
    result = simulated.result()["units"]
    assert (result["rule"], result["n_left_out"], result["claim"]) == ("units_unknown", None, None)


def test_the_oldest_units_are_forgotten_beyond_the_bound(monkeypatch):
    monkeypatch.setattr("calibrant_server.workers.alarm.cohorts.MAX_UNITS", 10)
    seen = SeenUnits({day: np.arange(4, dtype=np.uint64) for day in (1, 2)})
    assert seen.forgotten(2) == [] and seen.forgotten(3) == [1] and seen.forgotten(10) == [1, 2]
    assert len(FirstContacts(np.arange(40, dtype=np.uint64), 0).pack()) == 80


def test_a_lower_limit_of_off_comes_before_an_upper_limit_of_unknown():
    """D (.054, unknown) stood above B (.046, off), as if its error were larger."""
    limits = {"D": ("unknown", 0.054), "B": ("off", 0.046), "A": ("good", 0.01), "C": ("off", 0.09)}
    found = {name: Detector("", words=Words(word, limit=limit)) for name, (word, limit) in limits.items()}  # fmt: skip
    assert sorted(found, key=lambda name: place_in_list(found[name])) == ["C", "B", "D", "A"]
