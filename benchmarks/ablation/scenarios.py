"""What users do: each scenario is prepared once per service, and then repeated. Both count in CPU seconds of the service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import numpy as np
import orjson

from benchmarks.end_to_end import N_CLASSES
from benchmarks.requests import Service, per_request_s, posts

HOURS, ROWS_AN_HOUR = 336, 40
READ = "/v1/models/one/metrics?window=P14D"
SERIES = "/v1/models/one/metrics?window=P14D&every=P1D"
SCORE = "/v1/score?metrics=corp_miscalibration"
_numbers = count()

# Prepares a service, and measures one repetition.
Scenario = tuple[Callable[[Service], None], Callable[[Service], float]]


def columns_of(n: int, seed: int, **more: Any) -> dict[str, Any]:
    """Return a body of labelled predictions."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(N_CLASSES, 0.3), n)
    return {
        "probabilities": scores.tolist(),
        "labels": rng.integers(0, N_CLASSES, n).tolist(),
        **more,
    }


def send(service: Service, path: str, body: dict[str, Any]) -> float:
    """Post a batch and wait until it is merged; return the CPU seconds."""
    headers = {"Content-Type": "application/json", "Prefer": "wait=60"}
    content, before = orjson.dumps(body), service.processor_s()
    response = service.client.post(path, content=content, headers=headers)
    response.raise_for_status()
    return service.processor_s() - before


def _nothing(service: Service) -> None:
    per_request_s(service, posts("one", 50), 8)


def _two_weeks(service: Service) -> None:
    """Fill a pane for each hour of two weeks, in batches of 56 hours."""
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    times = [(end - timedelta(hours=HOURS - i)).isoformat() for i in range(HOURS)]
    for first in range(0, HOURS, 56):
        hours = [each for each in times[first : first + 56] for _ in range(ROWS_AN_HOUR)]
        body = columns_of(len(hours), first, event_times=hours)
        send(service, "/v1/models/one/predictions", body)
    for _ in range(3):  # read twice, panes are cached; the third is as the next ones
        _read_after_a_batch(service)


def _read(service: Service) -> float:
    before = service.processor_s()
    service.client.get(READ).raise_for_status()
    return service.processor_s() - before


def _read_after_a_batch(service: Service) -> float:
    send(service, "/v1/models/one/predictions", columns_of(20, next(_numbers)))
    return _read(service)


def _reads_after_a_batch(service: Service) -> float:
    """Read one window in several ways, as a page of a model does."""
    send(service, "/v1/models/one/predictions", columns_of(20, next(_numbers)))
    before = service.processor_s()
    for read in ("metrics", "reliability", "temperature", "label-distribution", "uncertainty"):
        service.client.get(f"/v1/models/one/{read}?window=P14D").raise_for_status()
    return service.processor_s() - before


def _polls(service: Service) -> float:
    """Read a window that has not changed, as a dashboard does."""
    tag = service.client.get(READ).headers["ETag"]
    before = service.processor_s()
    for _ in range(20):
        response = service.client.get(READ, headers={"If-None-Match": tag})
        assert response.status_code == 304, response.status_code
    return service.processor_s() - before


def _series_after_a_batch(service: Service) -> float:
    send(service, "/v1/models/one/predictions", columns_of(20, next(_numbers)))
    before = service.processor_s()
    service.client.get(SERIES).raise_for_status()
    return service.processor_s() - before


def _sites() -> dict[str, Any]:
    return {"slices": {"site": [f"site-{i % 4}" for i in range(400)]}}


def _some_sites(service: Service) -> None:
    for _ in range(6):
        send(service, "/v1/models/sites/predictions", columns_of(400, next(_numbers), **_sites()))


def _posts_in_turn(service: Service) -> float:
    """Post to one time slice, one batch after the other, with a commit each."""
    path = "/v1/models/sites/predictions"
    return sum(send(service, path, columns_of(400, next(_numbers), **_sites())) for _ in range(10))


def _large_posts(service: Service) -> float:
    path = "/v1/models/large/predictions"
    return sum(send(service, path, columns_of(10_000, next(_numbers))) for _ in range(3))


def _small_posts(service: Service) -> float:
    return per_request_s(service, posts("one", 300, 2), 4) * 301


def _score(service: Service) -> float:
    body, before = orjson.dumps(columns_of(1_000, next(_numbers))), service.processor_s()
    headers = {"Content-Type": "application/json"}
    service.client.post(SCORE, content=body, headers=headers).raise_for_status()
    return service.processor_s() - before


SCENARIOS: dict[str, tuple[str, Scenario]] = {
    "small_posts": ("300 POSTs of 2 rows, 4 clients", (_nothing, _small_posts)),
    "large_posts": ("3 POSTs of 10,000 rows of 10 classes in JSON", (_nothing, _large_posts)),
    "score": (
        "POST /v1/score of 1,000 rows of 10 classes, corp_miscalibration",
        (_nothing, _score),
    ),
    "posts_in_turn": (
        "10 POSTs of 400 rows of 4 sites, one after the other",
        (_some_sites, _posts_in_turn),
    ),
    "reads_after_a_batch": (
        "5 reads of two weeks after a batch",
        (_two_weeks, _reads_after_a_batch),
    ),
    "series_after_a_batch": (
        "GET the series of two weeks by day after a batch",
        (_two_weeks, _series_after_a_batch),
    ),
    "polls": ("20 polls of the metrics of two weeks without a change", (_two_weeks, _polls)),
    "read_after_a_batch": (
        "GET metrics of two weeks after a batch",
        (_two_weeks, _read_after_a_batch),
    ),
}
