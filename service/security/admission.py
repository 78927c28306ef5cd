"""Rejection of work before its body is read: too many body bytes, a full backlog, an unreachable store.

The store's response to one request is reused for a moment, so that the requests behind it are answered
from memory: they cost neither parsing nor a round trip. Then one is let through to find out.
"""

import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from calibrant_server.service.http.engine_errors import problem_of_engine
from calibrant_server.service.http.problems import (
    BacklogFull,
    IdsFull,
    Problem,
    RetryLater,
    Saturated,
    StoreUnavailable,
)

EVERYONE = ""
BELIEVED_S = 2.0
# Share of the bytes that every body may use; the rest is for the first body of a tenant.
SHARED_PART = 0.6


@dataclass(frozen=True)
class Closed:
    """A rejection with its retry time; it is repeated from memory until `believed_until`."""

    problem: RetryLater
    retry_at: float
    believed_until: float


class Admission:
    """Reserved body bytes, and active rejections by model."""

    def __init__(self, max_bytes_in_hand: int) -> None:
        self.max_bytes_in_hand = max_bytes_in_hand
        self.bytes_in_hand = 0
        self.bytes_of: Counter[str | None] = Counter()
        self.on_change: Callable[[int], None] = lambda n_bytes: None
        self._closed: dict[str, Closed] = {}

    def check(self, model_key: str) -> None:
        """Raise the recent rejection of this model, or of all models."""
        now = time.monotonic()
        for key in (EVERYONE, model_key):
            closed = self._closed.get(key)
            if closed is None:
                continue
            if now < closed.believed_until:
                left_s = closed.retry_at - now
                raise type(closed.problem)(closed.problem.detail, retry_after_s=left_s)
            del self._closed[key]

    def remembering(self, model_key: str) -> "Remembering":
        """Remember, in a `with` block, a rejection by the store for the requests that follow."""
        return Remembering(self, model_key)

    def close(self, key: str, problem: RetryLater) -> None:
        now = time.monotonic()
        believed_s = min(problem.retry_after_s, BELIEVED_S)
        self._closed[key] = Closed(problem, now + problem.retry_after_s, now + believed_s)

    def hold(self) -> "Hold":
        """Return an empty reservation; its bytes are released at the end of its `with` block."""
        return Hold(self)

    def limit(self, tenant: str | None, own: int) -> int:
        """Return the bytes up to which a request that holds `own` bytes may reserve.

        The last part is for the first body of a tenant: one tenant's bodies never take all of it.
        """
        is_first = tenant is None or self.bytes_of[tenant] <= own
        return self.max_bytes_in_hand if is_first else int(SHARED_PART * self.max_bytes_in_hand)

    def add(self, tenant: str | None, n_bytes: int) -> None:
        """Count bytes of a tenant; None is the only one of a service without keys."""
        self.bytes_in_hand += n_bytes
        self.on_change(self.bytes_in_hand)
        self.bytes_of[tenant] += n_bytes
        if not self.bytes_of[tenant]:
            del self.bytes_of[tenant]


class ServedRequests:
    """Requests that are being served, by tenant; no tenant may have more than its share."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.of: Counter[str] = Counter()

    def enter(self, scope: MutableMapping[str, Any], tenant: str) -> None:
        """Count a request once, or reject it."""
        if "served_tenant" in scope:
            return
        if self.of[tenant] >= self.limit:
            raise Saturated(
                f"{self.limit} requests of your tenant are open, the maximum. Wait for their responses first."
            )
        self.of[tenant] += 1
        scope["served_tenant"] = tenant

    def leave(self, scope: MutableMapping[str, Any]) -> None:
        """Forget a request that has ended, if it was counted."""
        tenant = scope.pop("served_tenant", None)
        if tenant is not None:
            self.of[tenant] -= 1
            if not self.of[tenant]:
                del self.of[tenant]


# No generators: every request enters these, and a generator as a context manager takes several times as long.
class Remembering:
    """A block in which a rejection by the store is remembered."""

    def __init__(self, admission: Admission, model_key: str) -> None:
        self.admission = admission
        self.model_key = model_key

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        found = error if isinstance(error, Problem) else problem_of_engine(error)
        if isinstance(found, BacklogFull | IdsFull):
            self.admission.close(self.model_key, found)
        elif isinstance(found, StoreUnavailable):
            self.admission.close(EVERYONE, found)


class Hold:
    """Bytes reserved for one request."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.tenant: str | None = None
        self.n_bytes = 0

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, *_: object) -> None:
        self.admission.add(self.tenant, -self.n_bytes)

    def claim(self, tenant: str | None) -> None:
        """Reserve as this tenant. Nothing is reserved yet."""
        self.tenant = tenant

    def reach(self, n_bytes: int) -> None:
        """Reserve `n_bytes` in total, or reject the request."""
        more = max(0, n_bytes - self.n_bytes)
        if self.admission.bytes_in_hand + more > self.admission.limit(self.tenant, self.n_bytes):
            raise Saturated()
        self.admission.add(self.tenant, more)
        self.n_bytes += more
