"""Old days in files, from outside: every response is the same to the byte, and a store of files that is away is a 503."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually

MODEL = "/v1/models/old"
FIRST = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=6)
N_DAYS = 3
WINDOW = {"from": FIRST.isoformat(), "to": (FIRST + timedelta(days=N_DAYS)).isoformat()}
# Reads of a window that need no more than a model; each of all rows and of a slice.
READS = (
    "metrics", "metrics?every=P1D", "metrics?by=site", "metrics?metrics=ece,brier,nll&bins=10", "reliability", "roc", "temperature",
    "calibration-map", "calibration-map?method=vector_scaling", "uncertainty", "stability", "raters", "disagreement", "label-distribution", "drift",
    "metrics?against=baseline:b&metrics=ece,brier", "report", "score-histogram",
)  # fmt: skip
TABLES = ("application/x-ndjson", "application/vnd.apache.arrow.stream")


def days_are_merged(deployment: Deployment) -> bool:
    return len(hot(deployment)) == N_DAYS * 3


def hot(deployment: Deployment) -> list[bytes]:
    """Panes of old days in the store; the baseline has none of them."""
    end = int((FIRST + timedelta(days=N_DAYS)).timestamp())
    with deployment.store.client() as store:
        names = list(store.scan_iter(match="*:s:default/old|*", count=1000))
    return [
        name for name in names if b"baseline!" not in name and int(name.rpartition(b"|")[2]) < end
    ]


def forget_results(deployment: Deployment) -> None:
    """Remove the caches of the store: results, and merges of panes."""
    with deployment.store.client() as store:
        for pattern in ("calibrant:a:*", "*:g:*"):
            for name in store.scan_iter(match=pattern, count=1000):
                store.delete(name)


def answers(deployment: Deployment) -> dict[str, Any]:
    """Status, ETag and bytes of every read."""
    forget_results(deployment)
    found: dict[str, Any] = {}
    for read in READS:
        for slice_ in ({}, {"slice": "site:A"}):
            path, _, query = read.partition("?")
            params = {
                **WINDOW,
                **slice_,
                **dict(pair.split("=") for pair in query.split("&") if pair),
            }
            response = deployment.client.get(f"{MODEL}/{path}", params=params)
            # A problem names its request, and a report the time at which it was made.
            is_found = response.status_code == 200 and read != "report"
            found[f"{read} {slice_}"] = (
                response.status_code,
                response.headers.get("etag"),
                response.content if is_found else b"",
            )
    for table in TABLES:
        response = deployment.client.get(
            f"{MODEL}/export", headers={"accept": table}, params={"records": True}
        )
        found[table] = response.status_code, response.content
    return found


def restarted(deployment: Deployment, **environment: str) -> None:
    """All processes but the store, again with other settings."""
    for name in ("worker0", "http"):
        deployment.processes[name].terminate()
        deployment.processes[name].wait()
        deployment.environment.update(environment)
    for name in ("worker0", "http"):
        deployment.start(name)
    deployment.wait_ready()


@pytest.fixture
def deployment(tmp_path: Path):
    with Deployment(
        tmp_path, n_workers=1, CALIBRANT_HOUSEKEEPING="0.1", CALIBRANT_COMPACT_AFTER="PT1H", CALIBRANT_COLD_AFTER="0"
    ) as deployment:  # fmt: skip
        yield deployment


@pytest.mark.slow
def test_responses_are_the_same_to_the_byte_and_files_that_are_away_are_a_503(
    deployment: Deployment, tmp_path: Path
) -> None:
    created = deployment.client.put(
        MODEL,
        json={"task": "multiclass", "classes": ["a", "b", "c"], "slices": {"site": ["A", "B"]}},
    )
    assert created.status_code == 201, created.text
    rng = np.random.default_rng(3)
    today = FIRST + timedelta(days=6)
    for at in (*range(2 * N_DAYS), 12):
        n = 40
        body = {
            "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
            "label_counts": rng.multinomial(3, [0.4, 0.3, 0.3], n).tolist(),
            "ids": [f"{at}.{i}" for i in range(n)],
            "units": [f"u{i}" for i in rng.integers(0, 30, n)],
            "slices": {"site": ["AB"[i % 2] for i in range(n)]},
            "event_times": [(FIRST + timedelta(hours=12 * at)).isoformat()] * n,
        }
        deployment.post(f"{MODEL}/predictions", body)
    frozen = deployment.client.put(f"{MODEL}/baselines/b", json=WINDOW)
    assert frozen.status_code == 201, frozen.text
    eventually(lambda: days_are_merged(deployment))
    restarted(deployment)
    before = answers(deployment)
    assert sum(found[0] == 200 for found in before.values()) > 2 * len(READS) - 4, {
        name: found for name, found in before.items() if found[0] != 200
    }
    root = tmp_path / "days"
    restarted(deployment, CALIBRANT_COLD_URL=str(root), CALIBRANT_COLD_AFTER="PT1H")
    eventually(lambda: not hot(deployment))
    after = answers(deployment)
    changed = {name: (before[name], after[name]) for name in before if after[name] != before[name]}
    assert changed == {}

    etag = before["metrics {}"][1]
    metrics = f"{MODEL}/metrics"
    root.rename(tmp_path / "elsewhere")
    forget_results(deployment)
    restarted(deployment)
    # Nothing has changed: the state is named by the store alone.
    same = deployment.client.get(metrics, params=WINDOW, headers={"If-None-Match": etag})
    assert same.status_code == 304
    away = deployment.client.get(metrics, params=WINDOW)
    assert away.status_code == 503 and int(away.headers["retry-after"]) >= 1, away.text
    assert "not mounted" in away.json()["detail"]
    assert deployment.client.get(f"{MODEL}/export").status_code == 503
    assert deployment.client.get("/readyz").json()["files_unavailable"] is True
    recent = {"from": today.isoformat()}
    assert deployment.client.get(metrics, params=recent).status_code == 200
    os.rename(tmp_path / "elsewhere", root)
    eventually(lambda: deployment.client.get(metrics, params=WINDOW).status_code == 200)
    eventually(lambda: deployment.client.get("/readyz").json()["files_unavailable"] is False)
    assert answers(deployment) == before
