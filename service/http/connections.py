"""Connections of one process: how many, and how long they may say nothing.

A proxy in front bounds this for each address, and slow bodies and readers too (`deploy/nginx`). Without one, a client that never completes a
request would keep its descriptor for ever: uvicorn starts its only timer after a first response. At the limit, the connection that has
waited longest for a request gives way to a new one; a new one is rejected only if all connections are being served.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from calibrant_server.service.http.problems import Saturated

MAX_CONNECTIONS = 8192
SERVED_SHARE = 0.5  # of the connections: requests of one tenant that may be served at one time
HEADER_TIMEOUT_S = 10.0  # for the first byte of a connection, and for all headers of a request
KEEP_ALIVE_S = 30  # between two requests
MAX_HEAD_BYTES = 64 * 1024
HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    Protocol = object


class ConnectionSlots:
    """Slots for connections; `waiting` has those without a request, the one that has waited longest first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: dict[BoundedConnection, None] = {}

    def free_slot(self) -> bool:
        """End the connection that has waited longest; return whether there was one."""
        for longest in self.waiting:
            longest.end()
            return True
        return False


class BoundedConnection(Protocol):
    """Time limit and size of a head, and one of the slots, for a protocol of uvicorn."""

    slots: ClassVar[ConnectionSlots]
    head_timer: asyncio.TimerHandle | None = None
    n_head = 0

    @property
    def is_served(self) -> bool:
        """Whether a request has no complete response yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a slot, or reject the connection."""
        super().connection_made(transport)
        if len(self.connections) > self.slots.limit and not self.slots.free_slot():
            transport.write(no_slot())
            transport.close()
        else:
            self.wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Read what has arrived; a head that has begun must be complete in time, and small."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self.n_head = 0 if self.is_served else self.n_head + len(data)
        if self.is_served:
            self.stop_waiting()
        elif self.head_timer is None:
            self.wait_for_head()
        if self.n_head > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(HEAD_TOO_LARGE)
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.is_served:
            self.slots.waiting[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the slot back."""
        self.stop_waiting()
        super().connection_lost(exc)

    def end(self) -> None:
        """End the connection; what its client has not read yet is lost."""
        self.stop_waiting()
        self.transport.abort()

    def wait_for_head(self) -> None:
        """Begin the time of a head."""
        self.slots.waiting[self] = None
        self.head_timer = self.loop.call_later(HEADER_TIMEOUT_S, self.end)

    def stop_waiting(self) -> None:
        """Stop waiting for a request."""
        self.slots.waiting.pop(self, None)
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None


def no_slot() -> bytes:
    """Return the response to a connection without a slot."""
    problem = Saturated("All connections of the service are in use.")
    body = orjson.dumps(problem.body("*"))
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/problem+json\r\n"
        f"retry-after: {problem.retry_after_s}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def protocol_in(slots: ConnectionSlots, base: Any = AutoHTTPProtocol) -> type[BoundedConnection]:
    """Return the protocol of connections that share `slots`.

    Parameters
    ----------
    base : a protocol of uvicorn; default: the one that uvicorn chooses, with httptools if it is installed
    """
    return type("BoundedProtocol", (BoundedConnection, base), {"slots": slots})
