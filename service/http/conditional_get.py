"""What has not changed is said before routes, dependencies and query models are gone through.

A client that watches a model asks the same question again and again with the ETag that it holds. Where the very same
request was in order before, one read of the store tells whether its answer is still that one. In every other case, and in
any trouble, the request goes its ordinary way.
"""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from calibrant_server.service.http.errors import Problem
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.ingest.inbox import StoreUnavailable

CONDITION, PREFERENCE = b"if-none-match", b"prefer"


class ConditionalGet:
    """Wraps the app."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        response = await _unchanged(scope) if _may_be(scope) else None
        await (self.app if response is None else response)(scope, receive, send)


def _may_be(scope: Scope) -> bool:
    """Tell whether the client holds an answer and would not wait for another."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    sent = {name for name, _ in scope["headers"]}
    return CONDITION in sent and PREFERENCE not in sent


async def _unchanged(scope: Scope) -> ASGIApp | None:
    reading: ReadService = scope["app"].state.reading
    try:
        return await reading.unchanged(Request(scope))
    except (Problem, StoreUnavailable):
        return None
