"""Batches served before the router: routing and injection cost more than a small batch.

The function of the operation is called with the defaults of its query. So key, limits, errors, audit and receipt are those of the
route. A request with a query, or with a model id that is not one, is routed.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from calibrant.input.names import IDENTIFIER
from calibrant_server.service.http.problem_responses import (
    CLIENT_LEFT,
    FORESEEN,
    problem_of,
    problem_response,
)
from calibrant_server.service.reads.operations import Access, Endpoint, response_of
from calibrant_server.service.security.keys import needs

_MODEL = "/v1/models/{model}/"
OPERATIONS = frozenset(_MODEL + each for each in ("predictions", "labels", "histograms"))
_PREFIX = _MODEL.partition("{")[0]
_may_ingest = needs("ingest")


class DirectRoutes:
    """The operations `POST /v1/models/{model}/NAME` that need no router.

    Parameters
    ----------
    routes : of the app
    """

    def __init__(self, routes: Iterable[object]) -> None:
        self._served = {
            route.path.removeprefix(_MODEL): _App(route)
            for route in routes
            if isinstance(route, APIRoute) and route.path in OPERATIONS
        }

    def find(self, scope: Scope) -> ASGIApp | None:
        """Return what serves a request; None if it must be routed."""
        path: str = scope["path"]
        if scope["method"] != "POST" or scope["query_string"] or not path.startswith(_PREFIX):
            return None
        model, _, name = path[len(_PREFIX) :].partition("/")
        found = self._served.get(name)
        if found is None or not IDENTIFIER.fullmatch(model):
            return None
        scope["route"], scope["path_params"] = found.route, {"model": model}
        return found


class _App:
    """One operation without its router."""

    def __init__(self, route: APIRoute) -> None:
        endpoint = route.endpoint
        assert isinstance(endpoint, Endpoint)
        assert endpoint.query is not None
        self.route, self._function, self._query = route, endpoint.function, endpoint.query()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            caller = await _may_ingest(request)
            access = Access(request, caller, self._query)
            response = response_of(request, await self._function(access))
        except ClientDisconnect:
            response = Response(status_code=CLIENT_LEFT)
        except FORESEEN as error:
            response = problem_response(problem_of(error, request), request)
        await response(scope, receive, send)
