"""A model exported from one service and imported into another answers the same, to the last digit, and goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import redis

DAY = (datetime.now(UTC) - timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def exported(embedded):
    """Predictions with and without ids, slices, units, waiting labels, running totals, a baseline."""
    path = "/v1/models/moved"
    embedded.client.put(path, json={"task": "binary", "slices": {"site": None}, "label_horizon": "P30D"})
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
    "metrics", "metrics?by=site", "metrics?every=PT1H", "metrics?against=b&metrics=ece,brier", "reliability",
    "temperature", "calibration-map", "drift", "baselines", "",
)  # fmt: skip


def answers(deployment):
    to = (DAY + timedelta(days=3)).isoformat()
    found = {}
    for question in QUESTIONS:
        params = {"to": to} if question.partition("?")[0] not in ("baselines", "") else {}
        path = f"/v1/models/moved/{question}".rstrip("/")
        path, _, query = path.partition("?")
        params |= dict(pair.split("=") for pair in query.split("&") if pair)
        found[question] = deployment.get(path, **params)
    return found


def unsealed(deployment) -> set[bytes]:
    """The ids that the store lists of panes that are not sealed yet: what the alarm finds rows by."""
    with redis.Redis.from_url(deployment.store.url) as client:
        names = list(client.scan_iter(match="*:j:default/moved|*", count=1000))
        return {id_ for name in names for listed in client.hvals(name) for id_ in listed.split(b"\x1f")}


def test_answers_are_identical_and_labels_find_their_predictions(exported, embedded, spread):
    made = spread.client.post("/v1/models/moved/import", content=exported, headers=LINES)
    assert made.status_code == 201, made.text
    assert made.json()["records"] == 8 * 60 + 1
    assert answers(spread) == answers(embedded)
    assert len(unsealed(spread)) == 8 * 60
    for deployment in (embedded, spread):
        ids = [f"b{i}.{j}" for i in range(8) for j in range(20)]
        deployment.post("/v1/models/moved/labels", {"ids": ids, "labels": [1] * len(ids), "raters": ["r"] * len(ids)})
        deployment.post(
            "/v1/models/moved/predictions",
            {"confidences": [0.4], "ids": ["early"], "event_times": [DAY.isoformat()]},
        )
    mine, theirs = (each.get("/v1/models/moved/metrics", metrics="brier,nll") for each in (embedded, spread))
    assert mine["n_ratings"] == theirs["n_ratings"]
    for slug in ("brier", "nll"):
        assert mine["metrics"][slug]["value"] == pytest.approx(theirs["metrics"][slug]["value"], abs=1e-12)
    assert embedded.get("/v1/models/moved")["records"] == spread.get("/v1/models/moved")["records"]
    again = spread.client.post("/v1/models/moved/import", content=exported, headers=LINES)
    assert again.status_code == 409


def refused(embedded, content: bytes, rule: str) -> None:
    answer = embedded.client.post("/v1/models/other/import", content=content, headers=LINES)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["rule"] == rule
    assert embedded.client.get("/v1/models/other").status_code == 404


def test_what_is_not_whole_is_refused_and_leaves_nothing(exported, embedded):
    lines = exported.strip().split(b"\n")
    refused(embedded, b"\n".join(lines[:-1]), "export_incomplete")
    refused(embedded, b"\n".join(lines[:5] + lines[6:]), "export_incomplete")
    changed = json.dumps({**json.loads(lines[-1]), "consistent": False}).encode()
    refused(embedded, b"\n".join([*lines[:-1], changed]), "export_inconsistent")
    refused(embedded, b"\n".join(lines[1:]), "export_format")
    refused(embedded, b"{", "json")
    place = next(i for i, line in enumerate(lines) if line.startswith(b'{"type":"pane"'))
    pane = json.loads(lines[place])
    pane["packed"] = {"counts": "AAAA"}
    lines[place] = json.dumps(pane).encode()
    refused(embedded, b"\n".join(lines), "dead_lettered")


def test_an_export_without_records_answers_the_same(exported, embedded):
    content = embedded.client.get("/v1/models/moved/export").content
    made = embedded.client.post("/v1/models/copy/import", content=content, headers=LINES)
    assert made.json()["records"] == 0
    mine, theirs = (embedded.get(f"/v1/models/{name}/metrics", metrics="ece") for name in ("moved", "copy"))
    assert mine["metrics"]["ece"]["value"] == theirs["metrics"]["ece"]["value"]
