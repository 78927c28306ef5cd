"""The alarm through a real deployment: a year of sealed days, and a signed message to its webhook."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
import numpy as np
import pytest
from scipy.special import softmax

from calibrant import Pane
from tests.end_to_end.alarm_days import (
    A_DAY,
    CHANGE,
    KEY,
    SEASON,
    YEAR,
    Receiver,
    declare,
    exact,
    kept,
    n_seen,
    play,
    sealed,
)
from tests.end_to_end.deployment import Deployment
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture(scope="module")
def receiver():
    server = Receiver()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Workers that seal often and may send to this machine."""
    environment = {"CALIBRANT_HOUSEKEEPING": "0.5", "CALIBRANT_WEBHOOK_NETWORKS": "127.0.0.0/8"}
    directory = tmp_path_factory.mktemp("watched")
    with Deployment(directory, n_workers=2, **environment) as deployment:
        yield deployment


def test_before_anything_is_sealed_the_verdict_says_why_there_is_none(watched):
    watched.client.put("/v1/models/plain", json={"task": "binary"})
    watched.post("/v1/models/plain/predictions", {"confidences": [0.2], "labels": [0]})
    found = watched.get("/v1/models/plain/drift")
    assert (found["status"], found["change"]["word"]) == ("insufficient_data", "not_armed")
    assert "Declare the time after which labels are complete" in found["change"]["sentence"]
    assert len(found) <= 15 and len(json.dumps(found)) <= 3000
    assert watched.get("/v1/models/plain/drift/history")["cohorts"] == []


def test_the_accuracy_to_expect_is_that_of_the_library(watched):
    rng = np.random.default_rng(12)
    p = rng.beta(0.7, 0.7, 900)
    y = [int(each) for each in rng.random(900) < p]
    labels, ids = [*y[:600], *[None] * 300], [f"i{i}" for i in range(900)]
    watched.client.put("/v1/models/expected", json={"task": "binary"})
    watched.post(
        "/v1/models/expected/predictions", {"confidences": p.tolist(), "labels": labels, "ids": ids}
    )
    found = watched.get("/v1/models/expected/drift")["scores"]
    exact = Pane.fill(p, labels).expected_accuracy()
    assert found["expected_accuracy"] == pytest.approx(exact.value)
    assert found["expected_interval"] == pytest.approx(exact.interval)
    assert found["n_unlabelled"] == 300
    assert f"their expected accuracy is {100 * exact.value:.1f} %" in found["sentence"]


@pytest.mark.parametrize("n", [SEASON, pytest.param(YEAR, marks=pytest.mark.slow)])
def test_a_calibrated_model_stays_ok(watched, n):
    model = f"steady-{n}"
    declare(watched, model)
    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play, watched, model, 1, 1.0, range(n - 20), n)
        # Killed while they merge and seal: what was sealed stays, and no cohort is seen twice.
        cut = []
        for least in (10, n // 4, n // 2):
            cut.append(
                eventually(lambda least=least: (seen := n_seen(watched, model)) >= least and seen)
            )
            for name in ("worker0", "worker1"):
                watched.kill(name)
                watched.start(name)
        first = playing.result()
    play(watched, model, 1, 1.0, range(n - 20, n), n)
    assert max(cut) < n
    found = sealed(watched, model, n)
    expected = replace(exact(first, 1, 1.0, n), units="units_unknown")
    assert kept(watched, model) == {b"score|": expected.pack()}
    assert found["units"]["claim"] is None
    assert (found["status"], found["detector"]["n_cohorts"]) == ("ok", n)
    words = [found[name]["word"] for name in ("calibration", "change", "scores")]
    assert words == ["good", "none_seen", "none_seen"]
    assert found["recommendation"]["action"] == "none" and found["level"] == 1 / 3650
    assert found["calibration"]["coverage"] == 1.0 and found["change"]["start"] is None
    short = watched.get(f"/v1/models/{model}/drift")
    assert len(short) <= 15 and len(json.dumps(short)) <= 3000
    reference_is_the_first_month(watched, model, first)
    rows = watched.get(f"/v1/models/{model}/drift/history")["cohorts"]
    assert len(rows) == n and not any(row["over_threshold"] for row in rows)
    assert rows[-1]["evidence_log10"] == pytest.approx(-np.log10(found["p"]), abs=1e-12)


def reference_is_the_first_month(deployment: Deployment, model: str, first: datetime) -> None:
    """`against=reference` compares with the first 28 sealed cohorts."""
    path, month = f"/v1/models/{model}/metrics", (first, first + timedelta(days=28))
    ends = [each.isoformat().replace("+00:00", "Z") for each in month]
    own = deployment.get(path, metrics="brier", **dict(zip(("from", "to"), ends, strict=True)))
    found = deployment.get(path, metrics="brier", window="P30D", against="reference")
    assert found["against"]["reference"] == {"from": ends[0], "to": ends[1]} == own["window"]
    assert found["against"]["n_labelled"] == 28 * A_DAY == own["n_labelled"]
    brier = found["metrics"]["brier"]
    assert brier["against"] == pytest.approx(own["metrics"]["brier"]["value"], abs=1e-12)
    low, high = brier["difference_interval"]
    assert low <= 0 <= high


def judged(deployment: Deployment, model: str) -> dict[bytes, bytes]:
    """Days of rows with ids, labelled by two raters; returns the detectors once all are seen."""
    rng, n_days = np.random.default_rng(9), 40
    declare(deployment, model)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    columns: dict[str, list] = {"confidences": [], "ids": [], "units": [], "event_times": []}
    for day in range(n_days):
        columns["confidences"] += rng.beta(0.7, 2.2, 30).tolist()
        columns["ids"] += [f"d{day}.{i}" for i in range(30)]
        columns["units"] += [f"d{day}.{i // 3}" for i in range(30)]
        columns["event_times"] += [(today - timedelta(days=n_days + 2 - day)).isoformat()] * 30
    said = [(rng.random(2) < p).astype(int).tolist() for p in columns["confidences"]]
    labels = {"ids": columns["ids"], "labels": said, "raters": [["ann", "bob"]] * len(said)}
    # Labels first: they wait, and no day is sealed without them.
    deployment.post(f"/v1/models/{model}/labels", labels)
    deployment.post(f"/v1/models/{model}/predictions", columns)
    if model == "killed":
        for _ in range(3):
            for name in ("worker0", "worker1"):
                deployment.kill(name)
                deployment.start(name)
            time.sleep(0.7)
    sealed(deployment, model, n_days)
    return kept(deployment, model)


def test_rows_and_raters_are_seen_once_whatever_is_killed(watched):
    found = judged(watched, "killed")
    assert sorted(found) == [b"rater:ann|", b"rater:bob|", b"score|"]
    assert found == judged(watched, "spared")
    reported = watched.get("/v1/models/spared/drift", include="evidence")
    assert reported["calibration"]["n"] == pytest.approx(280)
    assert [row["rater"] for row in reported["raters"]] == ["ann", "bob"]
    mine = watched.get("/v1/models/spared/drift", scope="rater:ann", include="evidence")
    assert mine["detector"]["scope"] == "rater:ann" and mine["calibration"]["n"] == pytest.approx(
        280
    )


def check_advice(deployment: Deployment, model: str, advice: dict) -> None:
    """A temperature is the number of the call that the advice names, and of the map that it asks for."""
    assert advice["action"] == "temperature", advice
    evidence = advice["evidence"]
    assert evidence["n_units"] >= evidence["n_units_needed"]
    called = deployment.client.get(evidence["call"]["path"]).json()
    assert called["weights"] == "unit"
    assert evidence["parameters"] == {"temperature": called["temperature"]}
    assert f"{called['temperature']:.2f}" in advice["reason"]
    frozen = deployment.client.request(
        advice["next"]["method"], advice["next"]["path"], json=advice["next"]["body"]
    )
    assert frozen.status_code == 201, frozen.text
    assert frozen.json()["parameters"] == evidence["parameters"]


def test_a_softmax_temperature_is_advised_for_several_classes(watched):
    """Patients have one to three images, and from day 20 on outcomes follow the softmax at temperature 2."""
    body = {
        "task": "multiclass", "classes": 4, "pane": "P1D", "label_horizon": "P1D",
    }  # fmt: skip
    assert watched.client.put("/v1/models/softmax", json=body).status_code == 201
    rng, n_days = np.random.default_rng(11), 45
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    columns: dict[str, list] = {"logits": [], "labels": [], "event_times": [], "units": []}
    for day in range(n_days):
        for patient in range(60):
            n = 1 + patient % 3
            logits = 2.5 * rng.standard_normal((n, 4))
            truth = softmax(logits / (2.0 if day >= 20 else 1.0), axis=1)
            labels = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
            columns["logits"] += logits.tolist()
            columns["labels"] += labels.tolist()
            time_ = (today - timedelta(days=n_days + 2 - day) + timedelta(hours=9)).isoformat()
            columns["event_times"] += [time_] * n
            columns["units"] += [f"{day}.{patient}"] * n
    watched.post("/v1/models/softmax/predictions", {"batch_id": "all"} | columns)
    found = sealed(watched, "softmax", n_days)
    assert found["status"] == "alarm"
    check_advice(watched, "softmax", found["recommendation"])
    call = found["recommendation"]["evidence"]["call"]["path"]
    by_unit = watched.client.get(call).json()
    assert by_unit["temperature"] == pytest.approx(2.0, rel=0.15)
    by_row = watched.client.get(call.replace("weights=unit", "weights=prediction")).json()
    assert by_row["temperature"] != by_unit["temperature"]


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_slope_that_falls_is_found_reported_and_acknowledged(watched, receiver, seed):
    """The receiver is down when the alarm is raised; it is notified once it is back, and the notification is signed."""
    receiver.stop()
    receiver.got.clear()
    model = f"steep-{seed}"
    declare(watched, model, receiver)
    first = play(watched, model, seed, slope_after=0.75, days=range(CHANGE + 60))
    found = sealed(watched, model, CHANGE + 60)
    assert found["status"] == "alarm"
    [alarm] = watched.get("/v1/alarms", model=model)["alarms"]
    start, alarmed = (
        datetime.fromisoformat(t) for t in (found["change"]["start"], alarm["cohort"]["to"])
    )
    change = first + timedelta(days=CHANGE)
    assert abs((start - change).days) <= 14
    # A slope of 0.75 is found after a median of two weeks; a single run may well take three times as long.
    assert timedelta(0) < alarmed - change <= timedelta(days=50)
    assert 1.0 / found["effect"]["after"]["temperature"] == pytest.approx(0.75, abs=0.3)
    assert alarm["id"] == found["alarm"] and alarm["state"] == "open"
    log = f"/v1/models/{model}/alarm/deliveries"
    eventually(lambda: watched.get(log)["deliveries"][0]["attempts"])
    [waiting] = watched.get(log)["deliveries"]
    assert waiting["status"] == "waiting" and waiting["attempts"][0]["error"]
    watched.kill("worker0")
    receiver.start()
    eventually(lambda: watched.get(log)["deliveries"][0]["status"] == "delivered")
    [(headers, body)] = receiver.of("alarm.raised")
    assert [each["id"] for each in body["data"].pop("scopes")] == [alarm["id"]]
    sentences = {"calibration": "sentence", "change": "sentence", "recommendation": "reason"}
    for name, field in sentences.items():
        body["data"][name][field] = f"When raised: {body['data'][name][field]}"
    assert body["data"] == alarm and headers["webhook-id"] == waiting["id"]
    assert alarm["recommendation"]["action"] == "temperature"
    check_advice(watched, model, found["recommendation"])
    raw = receiver.got[0][1]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + raw
    signature = base64.b64encode(hmac.new(KEY, signed, sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"
    assert abs(time.time() - int(headers["webhook-timestamp"])) < 300
    watched.start("worker0")
    acknowledged = watched.client.post(
        f"/v1/alarms/{alarm['id']}/acknowledge", json={"note": "seen"}
    )
    assert (acknowledged.status_code, acknowledged.json()["state"]) == (200, "acknowledged")
    assert acknowledged.json()["acknowledged_at"] and not alarm["acknowledged_at"]
    noted = watched.get(f"/v1/models/{model}/drift")["change"]
    assert noted["acknowledged_at"] and noted["word"] != "changed"
    eventually(lambda: receiver.of("alarm.acknowledged"))
    watched.client.post(f"/v1/models/{model}/alarm/test")
    [(_, tested)] = eventually(lambda: receiver.of("alarm.test"))
    assert tested["data"] == {"model": model}


def test_a_promoted_map_mends_the_model_and_the_alarm_judges_what_it_makes_of_scores(watched):
    """Outcomes follow another slope than the scores from the first day on; a map fitted to some days is active."""
    declare(watched, "mended")
    first = play(watched, "mended", 7, slope_after=0.4, days=range(CHANGE, CHANGE + 25))
    found = sealed(watched, "mended", 25)
    assert (found["status"], found["calibration"]["word"]) == ("watch", "off")
    assert found["calibration"]["sentence"].startswith("Off since the start")
    assert found["recommendation"]["action"] == "temperature" and found["map_version"] is None
    day = first + timedelta(days=CHANGE)
    fit = {
        "method": "platt",
        "raters": "mean",
        "from": day.isoformat(),
        "to": (day + timedelta(days=25)).isoformat(),
    }
    assert watched.client.post("/v1/models/mended/maps", json=fit).status_code == 201
    promoted = watched.client.put(
        "/v1/models/mended/maps/current",
        json={"version": 1, "reason": "drift"},
        headers={"If-None-Match": "*"},
    )
    assert promoted.status_code == 200
    after = eventually(
        lambda: (reported := watched.get("/v1/models/mended/drift"))["map_version"] and reported
    )
    assert (after["status"], after["calibration"]["word"]) == ("insufficient_data", "unknown")
    watched.client.patch(
        "/v1/models/mended", json={"alarm": {"tolerance": 0.06}}, headers={"If-Match": "*"}
    )
    play(watched, "mended", 7, slope_after=0.4, days=range(CHANGE + 25, CHANGE + 55))
    found = sealed(watched, "mended", 30)
    assert (found["detector"]["n_cohorts"], found["map_version"]) == (30, "1")
    assert found["calibration"]["word"] == "good" and found["change"]["word"] != "changed"


def test_meters_hold_the_sums_of_sealed_cohorts(watched):
    text = watched.client.get("/metrics/models").text
    name = "calibrant_drift_bin_units_total{"
    lines = [
        line for line in text.splitlines() if line.startswith(name) and f"steady-{SEASON}" in line
    ]
    assert sum(float(line.split()[-1]) for line in lines) == pytest.approx(A_DAY * SEASON)


def test_a_stream_tells_of_alarms_and_continues_where_it_was_left(watched):
    """The alarm of a model that changes; the stream begins behind everything that was before."""
    got: list[str] = []
    declare(watched, "streamed")

    def listen() -> None:
        with watched.client.stream("GET", "/v1/alarms/events", timeout=3 * PATIENCE_S) as answer:
            for line in answer.iter_lines():
                got.append(line)
                if line.startswith("data:") and '"streamed"' in line:
                    return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    eventually(lambda: got)
    play(watched, "streamed", 4, slope_after=0.3, days=range(CHANGE - 10, CHANGE + 20))
    thread.join(3 * PATIENCE_S)
    assert not thread.is_alive()
    event = [line for line in got if line.startswith("id:")][-1].split(" ", 1)[1]
    reported = json.loads(got[-1].split(" ", 1)[1])
    assert (reported["model"], reported["state"]) == ("streamed", "open")
    acknowledged = watched.client.post(
        f"/v1/alarms/{reported['id']}/acknowledge", json={"note": "noted"}
    )
    assert acknowledged.status_code == 200, acknowledged.text
    headers = {"Last-Event-ID": event}
    with watched.client.stream(
        "GET", "/v1/alarms/events", headers=headers, timeout=3 * PATIENCE_S
    ) as answer:
        after = (
            json.loads(line.split(" ", 1)[1])
            for line in answer.iter_lines()
            if line.startswith("data:")
        )
        # Other models of this deployment are reported in the same stream.
        again = next(each for each in after if each["id"] == reported["id"])
    # An event has the alarm as it is when the event is sent. The model is still off: by then its next alarm may be open.
    assert again["note"] == "noted"
    assert (again["state"] == "acknowledged" and again["acknowledged_at"]) or (
        again["closed_because"] == "the detector raised another alarm"
    )


def test_slices_have_verdicts_of_their_own(watched):
    declare(watched, "sliced")
    play(watched, "sliced", 6, slope_after=0.2, days=range(CHANGE - 15, CHANGE + 15))
    found = sealed(watched, "sliced", 30)
    assert found["detector"]["n_detectors"] == 3 and found["level"] == pytest.approx(1 / 10950)
    assert {each["slice"] for each in found["slices"] if each["flagged"]} == {"site:A", "site:B"}
    assert found["calibration"]["word"] == "off" and "site:A off by" in found["calibration"]["sentence"]  # fmt: skip
    site = watched.get("/v1/models/sliced/drift", slice="site:A", include="evidence")
    row = next(each for each in found["slices"] if each["slice"] == "site:A")
    assert site["status"] == "alarm" and site["p"] == row["p"]
    assert row["n_units"] == pytest.approx(30 * A_DAY * 3 / 4)
    assert "slices" not in site and site["detector"]["slice"] == "site:A"
    raised = watched.get("/v1/alarms", model="sliced")["alarms"]
    assert {each["slice"] for each in raised} >= {None, "site:A"}


def test_a_long_poll_is_answered_when_a_cohort_is_sealed(watched):
    declare(watched, "polled")
    play(watched, "polled", 5, slope_after=1.0, days=range(0, 3))
    sealed(watched, "polled", 3)
    answers: dict[str, httpx.Response] = {}

    def poll(path: str, etag: str) -> None:
        headers = {"If-None-Match": etag, "Prefer": "wait=50"}
        answer = watched.client.get(path, headers=headers)
        # On a busy machine sealing may take longer than a poll may wait.
        while answer.status_code == 304:
            answer = watched.client.get(path, headers=headers)
        answers[path] = answer

    paths = [f"/v1/models/polled/{name}" for name in ("drift", "drift/history")]
    threads = [
        threading.Thread(target=poll, args=(path, watched.client.get(path).headers["etag"]))
        for path in paths
    ]
    for thread in threads:
        thread.start()
    play(watched, "polled", 5, slope_after=1.0, days=range(3, 5))
    for thread in threads:
        thread.join(3 * PATIENCE_S)
    # The verdict's comparison is of days that are not sealed as well, so it may be answered first; the history waits.
    assert [answers[path].status_code for path in paths] == [200, 200]
    assert len(answers[paths[1]].json()["cohorts"]) > 3
