"""A model exported from one service and imported into another answers the same, to the last digit, and goes on."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from tests.end_to_end.deployment import Deployment
from tests.near import Near
from tests.waiting import eventually

DAY = (datetime.now(UTC) - timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
GOLDEN = Path(__file__).parents[1] / "workers" / "golden"
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def exported(embedded):
    """Predictions with and without ids, slices, units, waiting labels, running totals, a baseline."""
    path = "/v1/models/moved"
    embedded.client.put(
        path, json={"task": "binary", "slices": {"site": None}, "label_horizon": "P30D"}
    )
    rng = np.random.default_rng(4)
    for i in range(8):
        p = rng.random(60)
        labels = [None if rng.random() < 0.3 else int(rng.random() < each) for each in p]
        body = {
            "confidences": p.tolist(),
            "labels": labels,
            "ids": [f"b{i}.{j}" for j in range(60)],
            "units": [f"u{j % 25}" for j in range(60)],
            "slices": {"site": ["AB"[j % 2] for j in range(60)]},
            "event_times": [(DAY + timedelta(hours=i % 3)).isoformat()] * 60,
        }
        embedded.post(f"{path}/predictions", body)
    embedded.post(f"{path}/predictions", {"confidences": [0.2, 0.7], "labels": [0, 1]})
    embedded.post(f"{path}/labels", {"ids": ["early"], "labels": [1]})
    assert embedded.client.put(f"{path}/baselines/b", json={"window": "P7D"}).status_code == 201
    answer = embedded.client.get(f"{path}/export", params={"records": True})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return answer.content


QUESTIONS = (
    "metrics", "metrics?by=site", "metrics?every=PT1H", "metrics?against=baseline:b&metrics=ece,brier", "reliability",
    "temperature", "calibration-map", "drift", "baselines", "",
)  # fmt: skip


def answers(deployment):
    to = (DAY + timedelta(days=3)).isoformat()
    found = {}
    for pane_query in QUESTIONS:
        params = {"to": to} if pane_query.partition("?")[0] not in ("baselines", "") else {}
        path = f"/v1/models/moved/{pane_query}".rstrip("/")
        path, _, query = path.partition("?")
        params |= dict(pair.split("=") for pair in query.split("&") if pair)
        found[pane_query] = deployment.get(path, **params)
    return found


def unsealed(deployment) -> set[bytes]:
    """The ids that the store lists of panes that are not sealed yet: what the alarm finds rows by."""
    with redis.Redis.from_url(deployment.store.url) as client:
        names = list(client.scan_iter(match="*:j:default/moved|*", count=1000))
        return {
            id_ for name in names for listed in client.hvals(name) for id_ in listed.split(b"\x1f")
        }


def test_answers_are_equal_and_labels_find_their_predictions(exported, embedded, spread):
    made = spread.client.post("/v1/models/moved/import", content=exported, headers=LINES)
    assert made.status_code == 201, made.text
    assert made.json()["records"] == 8 * 60 + 1
    # Sums and rows of a pane were added in another order than the imported sums.
    assert answers(spread) == Near(answers(embedded))
    assert len(unsealed(spread)) == 8 * 60
    for deployment in (embedded, spread):
        ids = [f"b{i}.{j}" for i in range(8) for j in range(20)]
        deployment.post(
            "/v1/models/moved/labels",
            {"ids": ids, "labels": [1] * len(ids), "raters": ["r"] * len(ids)},
        )
        deployment.post(
            "/v1/models/moved/predictions",
            {"confidences": [0.4], "ids": ["early"], "event_times": [DAY.isoformat()]},
        )
    mine, theirs = (
        each.get("/v1/models/moved/metrics", metrics="brier,nll") for each in (embedded, spread)
    )
    assert mine["n_ratings"] == theirs["n_ratings"]
    for slug in ("brier", "nll"):
        assert mine["metrics"][slug]["value"] == pytest.approx(
            theirs["metrics"][slug]["value"], abs=1e-12
        )
    assert embedded.get("/v1/models/moved")["records"] == spread.get("/v1/models/moved")["records"]
    again = spread.client.post("/v1/models/moved/import", content=exported, headers=LINES)
    assert (again.status_code, again.json()) == (200, made.json())
    other = spread.client.get("/v1/models/moved/export").content
    rejection = spread.client.post("/v1/models/moved/import", content=other, headers=LINES)
    assert (rejection.status_code, rejection.json()["type"]) == (409, "/v1/problems/model-conflict")


def cut_off(spread, name: str, content: bytes) -> bool:
    """Send an import that nobody completes and go away; tells whether it had begun by then."""
    with pytest.raises(httpx.ReadTimeout):
        spread.client.post(f"/v1/models/{name}/import", content=content, headers=LINES, timeout=0.7)
    return "send the same import again" in spread.client.get(f"/v1/models/{name}").text


def test_an_import_that_is_cut_off_is_no_model_and_its_repeat_completes_it(
    exported, embedded, spread
):
    """No worker is there to take the pieces, and then the process dies that hands them over."""
    path = "/v1/models/cut"
    for i in range(2):
        spread.kill(f"worker{i}")
    for name in ("cut", "gone"):
        eventually(lambda name=name: cut_off(spread, name, exported))
    spread.kill("http")
    for name in ("worker0", "worker1", "http"):
        spread.start(name)
    spread.wait_ready()
    for read in ("", "/metrics", "/baselines", "/maps", "/drift", "/export"):
        answer = spread.client.get(f"{path}{read}")
        assert (answer.status_code, "send the same import again" in answer.text) == (404, True), (
            read
        )
    assert not {"cut", "gone"} & {each["model"] for each in spread.get("/v1/models")["models"]}
    batch = {"confidences": [0.5], "labels": [1]}
    for verb, noun, body in (("POST", "/predictions", batch), ("PUT", "", {"task": "binary"})):
        answer = spread.client.request(verb, f"{path}{noun}", json=body)
        assert (answer.status_code, answer.json()["type"]) == (
            409,
            "/v1/problems/import-unfinished",
        )
    other = embedded.client.get("/v1/models/moved/export").content
    rejection = spread.client.post(f"{path}/import", content=other, headers=LINES)
    assert rejection.json()["type"] == "/v1/problems/import-unfinished"
    made = spread.client.post(f"{path}/import", content=exported, headers=LINES)
    assert made.status_code == 201, made.text
    complete = embedded.client.post(f"{path}/import", content=exported, headers=LINES)
    assert complete.json() == made.json()
    mine, theirs = (each.get(f"{path}/metrics", metrics="ece,brier") for each in (spread, embedded))
    assert mine == theirs
    assert spread.get(path)["records"] == embedded.get(path)["records"]
    # Half a model may be deleted as well, and the import begins anew.
    assert spread.client.delete("/v1/models/gone").status_code == 204
    assert (
        spread.client.post("/v1/models/gone/import", content=exported, headers=LINES).status_code
        == 201
    )
    gone = spread.get("/v1/models/gone/metrics", metrics="ece,brier")["metrics"]
    assert [gone[slug]["value"] for slug in gone] == [
        mine["metrics"][slug]["value"] for slug in gone
    ]


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Three weeks of sealed days, of which the last week's labels are reversed; a map of the first week is current."""
    # All days come in one batch, so that none is sealed before its predictions are there: 63 panes.
    with Deployment(tmp_path_factory.mktemp("watched"), CALIBRANT_HOUSEKEEPING="0.2") as deployment:
        path = "/v1/models/watched"
        # Of raw scores: a promotion does not begin the evidence again.
        body = {
            "task": "binary",
            "pane": "P1D",
            "label_horizon": "P1D",
            "alarm": {"tolerance": 0.0, "scores": "raw"},
        }
        assert deployment.client.put(path, json=body).status_code == 201
        rng = np.random.default_rng(8)
        p = rng.uniform(0.1, 0.9, 21 * 250)
        truth = np.where(np.arange(len(p)) < 14 * 250, p, 1.0 - p)
        batch = {
            "confidences": p.tolist(),
            "labels": (rng.random(len(p)) < truth).astype(int).tolist(),
            "slices": {"site": ["AB"[i % 2] for i in range(len(p))]},
            "event_times": [
                (DAY - timedelta(days=22 - i // 250)).isoformat() for i in range(len(p))
            ],
        }
        deployment.post(f"{path}/predictions", batch)
        first_week = {"to": (DAY - timedelta(days=15)).isoformat()}
        made = deployment.client.post(f"{path}/maps", json={"method": "platt", **first_week})
        assert made.status_code == 201, made.text
        promotion = {"version": 1, "reason": "first", "override": True}
        answer = deployment.client.put(
            f"{path}/maps/current", json=promotion, headers={"If-None-Match": "*"}
        )
        assert answer.status_code == 200, answer.text
        eventually(lambda: deployment.get(f"{path}/metrics", metrics="ece")["matured"], pause_s=0.2)
        # The last cohorts are sealed a moment after their window has matured.
        eventually(lambda: deployment.get(f"{path}/drift")["status"] == "alarm", pause_s=0.5)
        yield deployment


ABOUT_IT = (
    "drift", "drift?slice=site:A", "drift/history", "metrics?clock=sealed", "maps", "maps/1", "maps/current", "baselines", "",
)  # fmt: skip


def without_partition(answer):
    """The answer without the number of the partition, which is part of every alarm's id."""
    return json.loads(re.sub(r'"al_\d+_', '"al_', json.dumps(answer)))


def test_alarm_and_maps_move_along(watched, spread):
    path = "/v1/models/watched"
    content = watched.client.get(f"{path}/export").content
    kinds = {json.loads(line)["type"] for line in content.splitlines()}
    assert kinds >= {
        "detector",
        "looks",
        "episode",
        "alarm_summary",
        "alarm_change",
        "alarm_map",
        "map",
        "current_map",
    }
    assert spread.client.post(f"{path}/import", content=content, headers=LINES).status_code == 201
    to = {"to": (DAY + timedelta(days=3)).isoformat()}
    for pane_query in ABOUT_IT:
        name, _, query = pane_query.partition("?")
        params = (to if name[:5] in ("drift", "metri") else {}) | dict(
            pair.split("=") for pair in query.split("&") if pair
        )
        mine, theirs = (
            without_partition(each.get(f"{path}/{name}".rstrip("/"), **params))
            for each in (watched, spread)
        )
        # Panes are merged in another grouping than at the origin, so that sums may differ in their last digits. Drift has
        # bounds that are searched for up to a tolerance.
        assert theirs == Near(mine, 1e-6 if name == "drift" else 1e-9), pane_query
    assert mine["model"] == "watched"
    alarms = [
        [each for each in deployment.get("/v1/alarms")["alarms"] if each["model"] == "watched"]
        for deployment in (watched, spread)
    ]
    assert without_partition(alarms[0]) == without_partition(alarms[1]) != []
    tags = [each.client.get(f"{path}/maps/current").headers["etag"] for each in (watched, spread)]
    assert tags[0] == tags[1]
    # Under another name beside it, it has alarms of its own.
    assert (
        spread.client.post("/v1/models/twin/import", content=content, headers=LINES).status_code
        == 201
    )
    twins = [each for each in spread.get("/v1/alarms")["alarms"] if each["model"] == "twin"]
    assert len(twins) == len(alarms[0])
    assert not {each["id"] for each in twins} & {each["id"] for each in alarms[0]}
    acknowledged = spread.client.post(f"/v1/alarms/{twins[0]['id']}/acknowledge", json={})
    assert acknowledged.status_code == 200, acknowledged.text
    assert [
        each for each in spread.get("/v1/alarms")["alarms"] if each["model"] == "watched"
    ] == alarms[1]


def rejected(embedded, content: bytes, rule: str) -> None:
    answer = embedded.client.post("/v1/models/other/import", content=content, headers=LINES)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["rule"] == rule
    assert embedded.client.get("/v1/models/other").status_code == 404


def test_what_is_not_whole_is_rejected_and_leaves_nothing(exported, embedded):
    lines = exported.strip().split(b"\n")
    rejected(embedded, b"\n".join(lines[:-1]), "export_incomplete")
    rejected(embedded, b"\n".join(lines[:5] + lines[6:]), "export_incomplete")
    changed = json.dumps({**json.loads(lines[-1]), "consistent": False}).encode()
    rejected(embedded, b"\n".join([*lines[:-1], changed]), "export_inconsistent")
    rejected(embedded, b"\n".join(lines[1:]), "export_format")
    rejected(embedded, b"{", "json")
    place = next(i for i, line in enumerate(lines) if line.startswith(b'{"type":"pane"'))
    pane = json.loads(lines[place])
    pane["packed"] = {"counts": "AAAA"}
    lines[place] = json.dumps(pane).encode()
    rejected(embedded, b"\n".join(lines), "dead_lettered")


def test_an_export_without_records_answers_the_same(exported, embedded):
    content = embedded.client.get("/v1/models/moved/export").content
    made = embedded.client.post("/v1/models/copy/import", content=content, headers=LINES)
    assert made.json()["records"] == 0
    mine, theirs = (
        embedded.get(f"/v1/models/{name}/metrics", metrics="ece") for name in ("moved", "copy")
    )
    assert mine["metrics"]["ece"]["value"] == theirs["metrics"]["ece"]["value"]
