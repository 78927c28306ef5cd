"""The body of a request that is rejected unread: received and forgotten, so that a client that writes first sees the response.

Many clients send the complete body before they read. If the connection closes in the middle of it, they report a broken pipe
instead of the problem.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

# Bytes of a body whose sender is not known, and the time for any.
MAX_UNKNOWN_BYTES = 1024 * 1024
DRAIN_S = 10.0
# Headers of a request with a body.
_ANNOUNCES = (b"content-length", b"transfer-encoding")
# Too slow, too large, too many: here the rest of the body is what is rejected.
_UNDRAINED = frozenset((408, 413, 429))


class CountedBody:
    """Receiver of a request that counts the bytes of the body as sent, and knows whether all have arrived."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.n_bytes = 0
        self.is_complete = False

    async def __call__(self) -> Message:
        """Receive one message."""
        message = await self.receive()
        self.n_bytes += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        return message

    async def drain(self, scope: Scope, status: int, max_bytes: int) -> None:
        """Receive what is left of the body of a rejected request, within bounds of bytes and time."""
        if self.is_complete or not 400 <= status < 500 or status in _UNDRAINED:
            return
        sent = {name for name, _ in scope["headers"]}
        if sent.isdisjoint(_ANNOUNCES) or b"expect" in sent:
            return  # there is no body, or the client waits for permission to send it
        limit = max_bytes if "caller" in scope else MAX_UNKNOWN_BYTES
        try:
            async with asyncio.timeout(DRAIN_S):
                while not self.is_complete and self.n_bytes <= limit:
                    await self()
        except TimeoutError:
            return
