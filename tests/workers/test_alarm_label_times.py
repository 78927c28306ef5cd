"""Labels in time and late ones: what the verdict tells of them, and when they alarm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant.input.labels import LabelRow
from calibrant_server.workers.alarm.detectors import Detector
from calibrant_server.workers.ingest.entries import PREDICTIONS
from tests.workers.alarm_days import BINARY, DAY_S, START_S, Played

pytestmark = pytest.mark.one_server


def test_the_verdict_tells_of_labels_and_their_delays(bench):
    """And what was sent twice is counted, and no evidence."""
    simulated, rng, n_known = (
        Played(bench, replace(BINARY, pane_s=DAY_S)),
        np.random.default_rng(11),
        0,
    )
    for day in range(4):
        p = rng.random(100)
        ids = [f"d{day}.{i}" for i in range(100)]
        batch = simulated.predict(START_S + day * DAY_S, confidences=p, ids=ids)
        known = [i for i in range(100) if rng.random() < p[i]]
        rows = [LabelRow(ids[i], {int(rng.random() < p[i]): 1}, []) for i in known]
        n_known += len(known)
        simulated.label(START_S + day * DAY_S + 7200, rows)
        simulated.send(PREDICTIONS, batch.pack(), batch.digest(), 100, START_S + day * DAY_S + 9000)
        simulated.seal(day)
    result = simulated.result()
    assert result["coverage"]["gradient"]["slope"] > 0.5
    assert result["coverage"]["by_bin"][0] < result["coverage"]["by_bin"][-1]
    assert result["coverage"]["delay"]["median_s"] == pytest.approx(7200, rel=0.1)
    assert result["labels"]["n_duplicates_dropped"] == 400
    assert result["n_units"] == result["coverage"]["n_labelled"] == n_known
    assert (
        "labelled units" in result["summary"]
        and "A calibrated model with the same number" in result["description"]["text"]
    )


def test_late_labels_of_one_class_are_a_watch_until_the_run_in_is_complete(bench):
    """Positives are labelled after the seal: nothing alarms. Once nearly all labels come in time, the evidence is the plain one."""
    config = replace(BINARY, pane_s=DAY_S, alarm={"tolerance": 0.02})
    simulated, rng = Played(bench, config), np.random.default_rng(21)

    def play(day, is_late):
        p = rng.beta(0.7, 2.2, 150)
        y = (rng.random(150) < p).astype(int)
        ids = [f"{day}.{i}" for i in range(150)]
        late = is_late(y)
        labels = [None if wait else int(label) for wait, label in zip(late, y, strict=True)]
        simulated.predict(START_S + day * DAY_S, confidences=p, labels=labels, ids=ids)
        simulated.seal(day)
        rows = [LabelRow(ids[i], {int(y[i]): 1}, []) for i in np.flatnonzero(late)]
        if rows:
            simulated.label(START_S + (day + 2) * DAY_S, rows)

    for day in range(25):
        play(day, lambda y: (y == 1) & (rng.random(len(y)) < 0.5))
    result = simulated.result()
    assert result["status"] == "watch" and "labels_pending" in result["reason"]
    assert not simulated.detector().in_alarm and simulated.detector().state.n_pending == 25
    run_in = simulated.detector().label_run_in
    assert run_in.n_cohorts == 24 and not run_in.is_complete
    assert run_in.coverage[0] == pytest.approx(0.5, abs=0.1) and run_in.coverage[1] == 1.0
    assert Detector.unpack(simulated.detector().pack()).label_run_in == run_in


def test_labels_that_come_in_time_page_although_some_never_come(bench):
    """A tenth of the predictions is never labelled: no label is pending for long, and the run-in shows it."""
    config = replace(BINARY, pane_s=DAY_S)
    simulated, rng = Played(bench, config), np.random.default_rng(22)
    for day in range(60):
        p = rng.beta(0.7, 2.2, 150)
        truth = expit((0.3 if day >= 40 else 1.0) * logit(np.clip(p, 1e-12, 1 - 1e-12)))
        y = (rng.random(150) < truth).astype(int)
        labels = [None if i % 10 == 0 else int(y[i]) for i in range(150)]
        ids = [f"{day}.{i}" for i in range(150)]
        simulated.predict(START_S + day * DAY_S, confidences=p, labels=labels, ids=ids)
        simulated.seal(day)
    detector = simulated.detector()
    assert detector.label_run_in.is_complete and detector.state.n_pending < 15
    assert detector.in_alarm and detector.state.start_of_change >= START_S + 37 * DAY_S
