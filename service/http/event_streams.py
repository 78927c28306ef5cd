"""Event streams: a bounded number of them."""

from collections.abc import AsyncIterator

from calibrant_server.service.http.errors import Saturated


class Streams:
    """The number of open streams."""

    def __init__(self) -> None:
        self.open = 0

    def enter(self, limit: int) -> None:
        """Reserve a place for a stream, or reject the request."""
        if self.open >= limit:
            raise Saturated("The service holds as many event streams as it has room for.")
        self.open += 1

    async def leaving(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Forward events, and release the place at the end."""
        try:
            async for each in events:
                yield each
        finally:
            self.open -= 1
