"""Refuses work before its body is read: too many bytes in hand, a full backlog, a store away.

What a store said to one request is remembered for as long as it asked, so that the requests behind it
are answered from memory: they cost neither parsing nor a round trip.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import BacklogFull, IdsFull, RetryLater, Saturated, StoreUnavailable

EVERYONE = ""


class Admission:
    """What the door holds now, and whom it turns away until when."""

    def __init__(self, max_bytes_in_hand: int) -> None:
        self.max_bytes_in_hand = max_bytes_in_hand
        self.bytes_in_hand = 0
        self._closed: dict[str, tuple[float, RetryLater]] = {}

    def check(self, model_key: str) -> None:
        """Raise what this model, or everyone, was lately told to wait for."""
        for key in (EVERYONE, model_key):
            until, problem = self._closed.get(key, (0.0, None))
            if problem is None:
                continue
            left = until - time.monotonic()
            if left > 0:
                raise type(problem)(problem.detail, retry_after_s=left)
            del self._closed[key]

    @contextmanager
    def remembering(self, model_key: str) -> Iterator[None]:
        """Keep what the store says to a request on behalf of those behind it."""
        try:
            yield
        except (BacklogFull, IdsFull) as problem:
            self._close(model_key, problem)
            raise
        except StoreUnavailable as problem:
            self._close(EVERYONE, problem)
            raise

    def _close(self, key: str, problem: RetryLater) -> None:
        self._closed[key] = (time.monotonic() + problem.retry_after_s, problem)

    @contextmanager
    def hold(self) -> Iterator["Hold"]:
        """Return an empty hold; its bytes are given back at the end."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self.bytes_in_hand -= hold.n_bytes


class Hold:
    """The bytes of one request."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.n_bytes = 0

    def reach(self, n_bytes: int) -> None:
        """Hold `n_bytes` in all, or refuse the request."""
        more = max(0, n_bytes - self.n_bytes)
        if self.admission.bytes_in_hand + more > self.admission.max_bytes_in_hand:
            raise Saturated()
        self.admission.bytes_in_hand += more
        self.n_bytes += more
