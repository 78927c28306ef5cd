"""Requests that a page makes to the API of its own process, as its visitor.

A page has no access of its own to the state. So tenants, scopes, limits, the audit log and the numbers are those of the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from fastapi import Request
from starlette.types import Message

from calibrant_server.service.security.keys import SIGNED_IN, Caller

# Headers that the check of open mode reads, and those that name the request.
PASSED_ON = ("host", "sec-fetch-site", "origin")


@dataclass(frozen=True)
class ApiResponse:
    """Response of the API: its document is the requested one, or a problem; `content` is what is not JSON.

    `retry_after` is in seconds, as the header of that name says.
    """

    status: int
    document: dict[str, Any]
    etag: str | None = None
    content: bytes = b""
    retry_after: int | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the request succeeded."""
        return self.status < 400

    @property
    def problem(self) -> str:
        """Return why there is nothing; empty if there is something."""
        return "" if self.is_ok else str(self.document.get("detail") or self.document["title"])


class Api:
    """The API as the visitor of a page sees it.

    Parameters
    ----------
    request : the page's
    """

    def __init__(self, request: Request, caller: Caller) -> None:
        self._request, self._caller = request, caller

    async def get(self, path: str, **query: object) -> ApiResponse:
        """Read; names of the query end in `_` where Python reserves the word."""
        requested = {name.rstrip("_"): value for name, value in query.items() if value is not None}
        return await self._send("GET", path, urlencode(requested))

    async def read(
        self, path: str, media_type: str, query: str = "", if_none_match: str | None = None
    ) -> ApiResponse:
        """Read what is not JSON; 304 where it is what `if_none_match` names."""
        known = {} if if_none_match is None else {"if-none-match": if_none_match}
        return await self._send("GET", path, query, headers={"accept": media_type, **known})

    async def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        """Change something."""
        return await self._send(method, path, "", body, headers or {})

    async def _send(
        self,
        method: str,
        path: str,
        query: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        content = b"" if body is None else orjson.dumps(body)
        scope = self._scope(method, path, query, content, headers or {})
        waiting: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if waiting:
                return waiting.pop()
            await (
                asyncio.Event().wait()
            )  # until the request is cancelled: a page does not disconnect
            raise AssertionError("not reached")

        async def send(message: Message) -> None:
            sent.append(message)

        await self._request.app(scope, receive, send)
        found = {name.lower(): value.decode() for name, value in sent[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in sent[1:])
        if "json" not in found.get(b"content-type", "json"):
            return ApiResponse(sent[0]["status"], {}, found.get(b"etag"), content)
        document = orjson.loads(content) if content else {}
        wait = found.get(b"retry-after")
        retry_after = None if wait is None else int(wait)
        return ApiResponse(sent[0]["status"], document, found.get(b"etag"), retry_after=retry_after)

    def _scope(
        self, method: str, path: str, query: str, content: bytes, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        outer = self._request.scope
        lines = {
            "accept": "application/json",
            "x-request-id": outer["request_id"],
            "traceparent": outer["traceparent"],
            **{
                name: self._request.headers[name]
                for name in PASSED_ON
                if name in self._request.headers
            },
            **headers,
        }
        if method != "GET":
            lines |= {"content-type": "application/json", "content-length": str(len(content))}
        return {
            "type": "http",
            "asgi": outer["asgi"],
            "http_version": "1.1",
            "method": method,
            "scheme": outer["scheme"],
            "path": path,
            "raw_path": quote(path, safe="/:@").encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
            "client": outer.get("client"),
            "server": outer.get("server"),
            SIGNED_IN: self._caller,
        }


async def together(**requested: Any) -> dict[str, ApiResponse]:
    """Await several requests at the same time; return their responses by name."""
    found = await asyncio.gather(*requested.values())
    return dict(zip(requested, found, strict=True))
