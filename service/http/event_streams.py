"""Responses that are event streams, and the bound on how many are open."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from calibrant_server.service.http.problems import QuotaFull, Saturated

EVENTS = "text/event-stream"


class Streams:
    """Number of open streams of one process, also by tenant."""

    def __init__(self) -> None:
        self.open = 0
        self.of: Counter[str] = Counter()

    def check(self, limit: int, tenant: str = "", share: float = 1.0) -> None:
        """Reject a stream for which there is no room; a tenant may have a share of all streams."""
        if self.open >= limit:
            raise Saturated(
                f"{self.open} event streams are open, the maximum of this process. Close one, or try later."
            )
        if self.of[tenant] >= max(1, int(limit * share)):
            raise QuotaFull(
                f"Your tenant has {self.of[tenant]} open streams, the maximum. Close one first."
            )

    @contextmanager
    def place(self, limit: int, tenant: str = "", share: float = 1.0) -> Iterator[None]:
        """Count one open stream during the block, or reject it."""
        self.check(limit, tenant, share)
        self.open += 1
        self.of[tenant] += 1
        try:
            yield
        finally:
            self.open -= 1
            self.of[tenant] -= 1
            if not self.of[tenant]:
                del self.of[tenant]


class EventStream(StreamingResponse):
    """Stream that counts as open while it is sent.

    The response counts itself: a client that disconnects early may leave `events` unstarted, and then their `finally` never runs.
    """

    def __init__(
        self,
        events: AsyncIterator[bytes],
        streams: Streams,
        limit: int,
        tenant: str = "",
        share: float = 1.0,
    ) -> None:
        super().__init__(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})
        self.streams, self.limit, self.tenant, self.share = streams, limit, tenant, share

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or raise `Saturated` before its first byte."""
        with self.streams.place(self.limit, self.tenant, self.share):
            await super().__call__(scope, receive, send)
