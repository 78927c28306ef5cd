"""Responses whose head and body are written by one call of the system; with the head alone, a small response takes twice as long.

The head of a response with a length is kept until its body comes. Any other response, and one to HEAD, is sent as uvicorn sends it.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any

Message = MutableMapping[str, Any]
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
# Characters that neither a name nor a value may have; the same as uvicorn rejects.
_NO_NAME = re.compile(b'[\x00-\x1f\x7f()<>@,;:\\[\\]={} \t\\\\"]')
_NO_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH = b"content-length"
# These change how the body is sent, or end the connection.
_OTHER_FORMS = frozenset((b"transfer-encoding", b"connection"))


class JoinedResponse:
    """Sender of a cycle of uvicorn, which this class is mixed into."""

    # Of the cycle.
    scope: Any
    transport: Any
    flow: Any
    default_headers: list[tuple[bytes, bytes]]
    message_event: Any
    on_response: Any
    access_log: bool
    disconnected: bool
    keep_alive: bool
    waiting_for_100_continue: bool
    response_started: bool
    response_complete: bool
    chunked_encoding: bool | None
    expected_content_length: int
    _head = b""

    async def send(self, message: Message) -> None:
        """Send a message of the app: the head with the body where both are known to come."""
        if self._head:
            if self._send_whole(message):
                return
            head, self._head = self._head, b""
            if not self.disconnected:
                self.transport.write(head)
        elif message["type"] == "http.response.start" and self._keep_head(message):
            return
        await super().send(message)  # type: ignore[misc]

    def _keep_head(self, message: Message) -> bool:
        """Keep a head until its body comes; return whether that is possible."""
        if (
            self.response_started
            or self.disconnected
            or self.flow.write_paused
            or self.access_log
            or not self.keep_alive
            or self.scope["method"] == "HEAD"
        ):
            return False
        headers = [
            (name.lower(), value)
            for name, value in (*self.default_headers, *message.get("headers", ()))
        ]
        names = [name for name, _ in headers]
        line = _STATUS_LINES.get(message["status"])
        if line is None or names.count(_LENGTH) != 1 or not _OTHER_FORMS.isdisjoint(names):
            return False
        values = [value for _, value in headers]
        if _NO_NAME.search(b"".join(names)) or _NO_VALUE.search(b"".join(values)):
            return False
        self.expected_content_length = int(values[names.index(_LENGTH)])
        self.chunked_encoding = False
        self.response_started, self.waiting_for_100_continue = True, False
        lines = [b"%b: %b\r\n" % pair for pair in headers]
        self._head = b"".join((line, *lines, b"\r\n"))
        return True

    def _send_whole(self, message: Message) -> bool:
        """Write the head with the body, if this is all of it; return whether it is."""
        body = message.get("body", b"")
        if (
            message["type"] != "http.response.body"
            or message.get("more_body", False)
            or len(body) != self.expected_content_length
            or self.disconnected
            or self.flow.write_paused
        ):
            return False
        self.transport.write(self._head + body)
        self._head, self.expected_content_length, self.response_complete = b"", 0, True
        self.message_event.set()
        if not self.keep_alive:  # the service is being stopped
            self.transport.close()
        self.on_response()
        return True
