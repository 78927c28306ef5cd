"""What is recorded of requests: Prometheus metrics, which are only returned on request, and lines of the log.

The log omits what anyone could use to fill the disk that the store needs: a probe that succeeds has no line. Requests without a known key
have a line as long as there are few of them; a line says how many were left out before it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from calibrant_server.service.security.admission import Admission
from calibrant_server.workers.store.partition_state import Troubles

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


# No series with the time at which each counter began: a rate does not need it, and it is an eighth of the text.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """Counters of one app; each app has its own, so that tests do not share them."""

    def __init__(self, admission: Admission) -> None:
        self.registry = CollectorRegistry()
        labels = ("operation", "status")
        self.requests = Counter(
            "calibrant_requests", "Requests with a response.", labels, registry=self.registry
        )
        self.seconds = Histogram(
            "calibrant_request_seconds",
            "Time to the response.",
            ("operation",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.accepted = Counter(
            "calibrant_accepted_rows",
            "Predictions, labels and histogram updates of accepted batches; repeated batches are left out.",
            ("kind",),
            registry=self.registry,
        )
        self._accepted_of: dict[str, Counter] = {}
        self.events = Counter(
            "calibrant_cloudevents",
            "CloudEvents: accepted, skipped, waiting for the other half, refused, or shed.",
            ("outcome",),
            registry=self.registry,
        )
        self.ingest_seconds, self.query_seconds = (
            Histogram(name, text, buckets=SECONDS, registry=self.registry)
            for name, text in (
                ("calibrant_ingest_seconds", "Time until a batch is accepted or rejected."),
                (
                    "calibrant_query_seconds",
                    "Time to return a result; waits that a client requests included.",
                ),
            )
        )
        in_hand = Gauge(
            "calibrant_body_bytes_in_hand",
            "Request bodies being read.",
            registry=self.registry,
        )
        in_hand.set(0)
        admission.on_change = in_hand.set

    def accept(self, kind: str, n: int) -> None:
        """Count accepted rows of a kind of batch. To find a counter by its label takes longer than to count."""
        counter = self._accepted_of.get(kind)
        if counter is None:
            counter = self._accepted_of[kind] = self.accepted.labels(kind)
        counter.inc(n)


OPERATION = {
    "calibrant_parked_entries": ("Batches kept for a replay, not merged.", "parked_entries"),
    "calibrant_unsealed_models": (
        "Models with a cohort that a damaged pane keeps unsealed.",
        "unsealed_models",
    ),
    "calibrant_dead_letters": ("Batches that could not be merged.", "dead_letters"),
    "calibrant_stalled_partitions": (
        "Partitions with a backlog that does not advance.",
        "stalled_partitions",
    ),
    "calibrant_files_unavailable": (
        "1 if the files of old days cannot be read or written.",
        "files_unavailable",
    ),
    "calibrant_partitions_without_lease": (
        "Partitions that no worker serves.",
        "partitions_without_lease",
    ),
    "calibrant_workers": ("Worker processes with a recent heartbeat.", "workers"),
    "calibrant_backlog_entries": ("Batches that wait to be merged.", "backlog_entries"),
    "calibrant_backlog_bytes": ("Bytes that wait to be merged.", "backlog_bytes"),
    "calibrant_merge_lag_seconds": ("Age of the oldest batch that waits.", "merge_lag_s"),
}


class Series(Collector):
    """Families that were made for one response."""

    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        return self._families


def operation_series(troubles: Troubles) -> Iterator[Metric]:
    """Yield the backlog, and conditions that need an operator."""
    for name, (text, field) in OPERATION.items():
        yield GaugeMetricFamily(name, text, value=getattr(troubles, field))


log = logging.getLogger("service.access")

MAX_PATH_CHARACTERS = 500
PROBES = frozenset(("getLive", "getReady", "getServiceMetrics"))
MAX_UNKNOWN_PER_S = 10


class RequestLog:
    """Lines of one process."""

    def __init__(self) -> None:
        self._second = 0
        self._n_of_second = 0
        self._n_left_out = 0

    def note(self, scope: Scope, operation: str, status: int, seconds: float, **sizes: int) -> None:
        """Write the line of a request that has ended, if it is due."""
        if operation in PROBES and status == 200:
            return
        if "caller" not in scope and not self._has_room():
            self._n_left_out += 1
            return
        more = {"n_left_out": self._n_left_out} if self._n_left_out else {}
        self._n_left_out = 0
        log.info("request", extra={**_fields(scope, operation, status, seconds), **sizes, **more})

    def _has_room(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._n_of_second = second, 0
        self._n_of_second += 1
        return self._n_of_second <= MAX_UNKNOWN_PER_S


def _fields(scope: Scope, operation: str, status: int, seconds: float) -> dict[str, Any]:
    caller, client = scope.get("caller"), scope.get("client")
    return {
        "request_id": scope["request_id"],
        "trace_id": scope["traceparent"].split("-")[1],
        "method": scope["method"],
        "path": scope["path"][:MAX_PATH_CHARACTERS],
        "operation": operation,
        "model": scope.get("path_params", {}).get("model"),
        "tenant": caller.tenant if caller else None,
        "key": caller.name if caller else None,
        "key_id": caller.key_id if caller else None,
        "client": client[0] if client else None,
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
    }
