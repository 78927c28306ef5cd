"""Rejection of work before its body is read: too many body bytes, a full backlog, an unreachable store.

What the store said to one request is believed for a moment, so that the requests behind it are answered
from memory: they cost neither parsing nor a round trip. Then one is let through to find out.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from calibrant_server.service.http.errors import (
    BacklogFull,
    IdsFull,
    RetryLater,
    Saturated,
    StoreUnavailable,
)

EVERYONE = ""
BELIEVED_S = 2.0


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

    @contextmanager
    def remembering(self, model_key: str) -> Iterator[None]:
        """Remember a rejection by the store for the requests that follow."""
        try:
            yield
        except (BacklogFull, IdsFull) as problem:
            self._close(model_key, problem)
            raise
        except StoreUnavailable as problem:
            self._close(EVERYONE, problem)
            raise

    def _close(self, key: str, problem: RetryLater) -> None:
        now = time.monotonic()
        believed_s = min(problem.retry_after_s, BELIEVED_S)
        self._closed[key] = Closed(problem, now + problem.retry_after_s, now + believed_s)

    @contextmanager
    def hold(self) -> Iterator["Hold"]:
        """Yield an empty reservation; its bytes are released at the end."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self.bytes_in_hand -= hold.n_bytes


class Hold:
    """Bytes reserved for one request."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.n_bytes = 0

    def reach(self, n_bytes: int) -> None:
        """Reserve `n_bytes` in total, or reject the request."""
        more = max(0, n_bytes - self.n_bytes)
        if self.admission.bytes_in_hand + more > self.admission.max_bytes_in_hand:
            raise Saturated()
        self.admission.bytes_in_hand += more
        self.n_bytes += more
