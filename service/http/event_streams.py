"""Event streams: a bounded number of them."""

from collections.abc import AsyncIterator

from calibrant_server.service.http.errors import Saturated


class Streams:
    """How many streams are open."""

    def __init__(self) -> None:
        self.open = 0

    def enter(self, limit: int) -> None:
        """Take a place, or refuse."""
        if self.open >= limit:
            raise Saturated("The service holds as many event streams as it has room for.")
        self.open += 1

    async def leaving(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Pass events on, and give the place back at the end."""
        try:
            async for each in events:
                yield each
        finally:
            self.open -= 1
