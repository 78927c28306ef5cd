"""Responses that are event streams, and the bound on how many are open."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from calibrant_server.service.http.errors import Saturated

EVENTS = "text/event-stream"


class Streams:
    """Number of open streams of one process."""

    def __init__(self) -> None:
        self.open = 0

    @contextmanager
    def place(self, limit: int) -> Iterator[None]:
        """Count one open stream during the block, or reject it."""
        if self.open >= limit:
            raise Saturated("The service holds as many event streams as it has room for.")
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


class EventStream(StreamingResponse):
    """Stream that counts as open while it is sent.

    The response counts itself: a client that disconnects early may leave `events` unstarted, and then their `finally` never runs.
    """

    def __init__(self, events: AsyncIterator[bytes], streams: Streams, limit: int) -> None:
        super().__init__(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})
        self.streams, self.limit = streams, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or raise `Saturated` before its first byte."""
        with self.streams.place(self.limit):
            await super().__call__(scope, receive, send)
