"""Connections of one process: how many, how long they may say nothing, and how slowly they may read.

uvicorn starts its only timer after a first response. Without the timers below, a client that never completes a request, or
never reads a response, would keep its descriptor for ever. At the limit, the connection that has waited longest for a
request gives way to a new one; a new one is rejected only if all connections are being served.

Requests are parsed by httptools, in C, where it is installed; else by h11. h11 bounds the head of a request, httptools does not.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from calibrant_server.service.http.errors import Saturated
from calibrant_server.service.http.joined_responses import JoinedResponse

HEADER_TIMEOUT_S = 10.0  # for the first byte of a connection, and for all headers of a request
KEEP_ALIVE_S = 30  # between two requests
# Minimum rate of a client that reads a response: so many bytes in every period.
WRITE_PERIOD_S, MIN_PERIOD_BYTES = 10.0, 16 * 1024
# Descriptors for the store, files, threads and connections that are accepted before others have ended.
RESERVED_DESCRIPTORS, BACKLOG = 256, 128
MAX_CONNECTIONS = 8192
SERVED_SHARE = 0.5  # of the connections: requests of one tenant that may be served at one time
MAX_DESCRIPTORS = 65_536
# With httptools: bytes of a head or of trailers, and requests that a connection may send before earlier responses.
MAX_HEAD_BYTES, MAX_PIPELINED = 64 * 1024, 64
_PART_BYTES = 32 * 1024
_INVALID = "Invalid HTTP request received."
QUIET_S = 60.0  # between two log lines about the same lack of descriptors

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

if TYPE_CHECKING:
    _Protocol = H11Protocol
else:
    _Protocol = object

log = logging.getLogger("service.connections")


def _full() -> bytes:
    """Return the response to a connection without a place."""
    problem = Saturated("All connections of the service are in use.")
    body = orjson.dumps(problem.body("*"))
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/problem+json\r\n"
        f"retry-after: {problem.retry_after_s}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors up to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limit(n_processes: int = 1) -> int:
    """Return how many connections this process may have: fewer than its descriptors, with a reserve.

    Parameters
    ----------
    n_processes : processes on the same port; together they have at most `MAX_CONNECTIONS`
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(1, MAX_CONNECTIONS // n_processes)
    if soft == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, soft - min(RESERVED_DESCRIPTORS, soft // 2)))


def backlog() -> int:
    """Return how many connections are accepted at once, so that they fit in the reserve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return BACKLOG if soft == resource.RLIM_INFINITY else max(8, min(BACKLOG, soft // 4))


class ConnectionSlots:
    """Slots for connections; `waiting` has those without a request, the one that has waited longest first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: dict[BoundedProtocol, None] = {}

    def free_slot(self) -> bool:
        """End the connection that has waited longest; return whether there was one."""
        longest = next(iter(self.waiting), None)
        if longest is None:
            return False
        longest.end()
        return True


class BoundedProtocol(_Protocol):
    """Time limit for headers, minimum rate of reading, and one of the slots, for a protocol of uvicorn."""

    slots: ClassVar[ConnectionSlots]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._has_begun = False  # some, not all headers of a request have arrived
        self._waiting: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._n_unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a slot, or reject the connection."""
        super().connection_made(transport)
        if len(self.connections) > self.slots.limit and not self.slots.free_slot():
            transport.write(_full())
            transport.close()
            return
        self._wait(HEADER_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        """Read what has arrived; headers that have begun must be complete in time."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_served:
            self._has_begun = False
            self._serve()
        elif not self._has_begun:
            self._has_begun = True
            self._wait(HEADER_TIMEOUT_S)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the end of the connection."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_later()
        elif not self._is_served:
            self._wait(KEEP_ALIVE_S)

    def timeout_keep_alive_handler(self) -> None:
        """Leave the time limit to the timer of this class, which also ends connections that do not read."""

    def pause_writing(self) -> None:
        """Watch a client that reads more slowly than the response is made."""
        super().pause_writing()
        self._n_unsent = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(WRITE_PERIOD_S, self._check_writing)

    def resume_writing(self) -> None:
        """Stop watching: the client has read."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._serve()
        if self._writing is not None:
            self._writing.cancel()
        super().connection_lost(exc)

    def end(self) -> None:
        """End a connection without a request that is being served; what it has not read yet is lost."""
        self._serve()
        self.transport.abort()

    @property
    def _is_served(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, seconds: float) -> None:
        self._serve()
        self.slots.waiting[self] = None
        self._waiting = self.loop.call_later(seconds, self.end)

    def _serve(self) -> None:
        """Stop waiting for a request."""
        self.slots.waiting.pop(self, None)
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end_later(self) -> None:
        """End a connection that is closing although its client does not read the rest."""
        self._serve()
        self._waiting = self.loop.call_later(WRITE_PERIOD_S, self.transport.abort)

    def _check_writing(self) -> None:
        n_unsent = self.transport.get_write_buffer_size()
        if self._n_unsent - n_unsent < MIN_PERIOD_BYTES:
            log.info("client_does_not_read", extra={"unsent_bytes": n_unsent})
            self.transport.abort()
            return
        self._n_unsent = n_unsent
        self._writing = self.loop.call_later(WRITE_PERIOD_S, self._check_writing)


def check_head(headers: Sequence[tuple[bytes, bytes]], version: str) -> None:
    """Raise ValueError unless a head has one host, and a body whose end every server finds at the same place.

    Parameters
    ----------
    headers : names in lower case, and values
    version : `1.0` or `1.1`
    """
    hosts = [value for name, value in headers if name == b"host"]
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if len(hosts) > 1 or (not hosts and version != "1.0"):
        raise ValueError(f"received {len(hosts)} Host headers; expected 1")
    if codings and (codings != [b"chunked"] or version == "1.0"):
        raise ValueError("received a transfer coding other than chunked")


class BoundedHead:
    """What h11 does and httptools does not: bounds of a head, trailers and waiting requests; rules for heads; order of errors."""

    # Of the protocol that this class is mixed into.
    transport: asyncio.Transport
    pipeline: deque[Any]
    headers: list[tuple[bytes, bytes]]
    parser: Any
    cycle: Any
    _n_head = 0
    _is_broken = False  # what follows on this connection cannot be parsed

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, a part at a time: where a head begins in it is only known to its part."""
        if self._is_broken:
            return
        for start in range(0, len(data), _PART_BYTES):
            part = data[start : start + _PART_BYTES]
            self._n_head += len(part)
            super().data_received(part)  # type: ignore[misc]
            self._end_if_too_large()
            if self.transport.is_closing() or self._is_broken:
                return

    def _end_if_too_large(self) -> None:
        if self._n_head > MAX_HEAD_BYTES and not self._is_served:  # type: ignore[attr-defined]
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()
        elif self._n_head > MAX_HEAD_BYTES or len(self.pipeline) > MAX_PIPELINED:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Reject a head that another server on the way could read differently."""
        check_head(self.headers, self.parser.get_http_version())
        super().on_headers_complete()  # type: ignore[misc]
        joined_cycle(self.cycle)

    def send_400_response(self, msg: str) -> None:
        """Reject what cannot be parsed, after the responses to the requests before it."""
        self._is_broken = True
        cycle = self.cycle
        if cycle is not None and cycle.more_body and not cycle.response_complete:
            # The broken part is the body of this request: it is not served.
            if not (self.pipeline and self.pipeline[0][0] is cycle):
                super().send_400_response(msg)  # type: ignore[misc]
                return
            self.pipeline.popleft()
        elif cycle is None or cycle.response_complete:
            super().send_400_response(msg)  # type: ignore[misc]

    def on_response_complete(self) -> None:
        """Begin the next request that waits; behind the last one, reject what could not be parsed."""
        is_last = not self.pipeline
        super().on_response_complete()  # type: ignore[misc]
        if self._is_broken and is_last and not self.transport.is_closing():
            super().send_400_response(_INVALID)  # type: ignore[misc]

    def on_message_begin(self) -> None:
        """Count the next head from its beginning."""
        self._n_head = 0
        super().on_message_begin()  # type: ignore[misc]

    def on_body(self, body: bytes) -> None:
        """Count trailers from the last byte of the body; the app bounds the body."""
        self._n_head = 0
        super().on_body(body)  # type: ignore[misc]


@lru_cache(1)
def _joined() -> tuple[type, type]:
    """Return uvicorn's class of a request and its response, and one that sends head and body together."""
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    return RequestResponseCycle, type("JoinedCycle", (JoinedResponse, RequestResponseCycle), {})


def joined_cycle(cycle: Any) -> None:
    """Make a cycle of uvicorn send head and body together. There is no setting of its class."""
    plain, joined = _joined()
    if type(cycle) is plain:
        cycle.__class__ = joined


def protocol_in(slots: ConnectionSlots, parser: str | None = None) -> type[BoundedProtocol]:
    """Return the protocol of connections that share `slots`.

    Parameters
    ----------
    parser : "httptools" or "h11"; default: httptools if it is installed
    """
    bases: tuple[type, ...] = (BoundedProtocol, H11Protocol)
    if (parser or _parser()) == "httptools":
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        bases = (BoundedProtocol, BoundedHead, HttpToolsProtocol)
    return type("RoomProtocol", bases, {"slots": slots})


def _parser() -> str:
    return "h11" if find_spec("httptools") is None else "httptools"


class OnceAMinute(logging.Filter):
    """Pass asyncio's message that no descriptor is left once per minute; it repeats it for every connection that waits."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -QUIET_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if "out of system resource" not in record.getMessage():
            return True
        now = time.monotonic()
        if now - self._last < QUIET_S:
            return False
        self._last = now
        return True
