"""Log line of each request, without those that anyone could use to fill the disk that the store needs.

A probe that succeeds has no line. Requests without a known key have a line as long as there are few of them; a line says how many were left
out before it.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.types import Scope

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
