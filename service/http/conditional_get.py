"""Conditional GET before routing: return 304 if the ETag of a repeated request still matches.

A client that watches a model repeats a request with the ETag that it has. If the same request was valid before, one read
of the store shows whether its response has changed. In every other case, and on any error, the request is routed.
"""

from starlette.requests import Request
from starlette.types import ASGIApp, Scope

from calibrant_server.service.http.errors import Problem
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.ingest.inbox import StoreUnavailable

CONDITION, PREFERENCE = b"if-none-match", b"prefer"


async def not_modified(scope: Scope) -> ASGIApp | None:
    """Return the 304 for a GET whose response is unchanged; None if it must be routed."""
    sent = {name for name, _ in scope["headers"]}
    if CONDITION not in sent or PREFERENCE in sent:
        return None
    reads: ReadService = scope["app"].state.reads
    try:
        return await reads.unchanged(Request(scope))
    except (Problem, StoreUnavailable):
        return None
