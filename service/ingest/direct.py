"""Fast path of posted batches: handled before the router, because routing and injection cost more than a small batch.

The function of the route is called with the defaults of its query. So key, limits, errors, audit and receipt are those of the
route. A request with a query, or with a model id that is not one, is routed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import get_args

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
from calibrant_server.service.ingest.service import IngestAccess
from calibrant_server.service.security.keys import needs

Take = Callable[[IngestAccess], Awaitable[Response]]
OPERATIONS = frozenset(("ingestPredictions", "ingestLabels", "ingestHistograms"))
_PREFIX = "/v1/models/"
_may_ingest = needs("ingest")


class DirectRoutes:
    """The operations `POST /v1/models/{model}/NAME` that need no router.

    Parameters
    ----------
    routes : of the app
    """

    def __init__(self, routes: Iterable[object]) -> None:
        self._served: dict[str, tuple[APIRoute, Take]] = {
            route.path.removeprefix(_PREFIX + "{model}/"): (route, _without_query(route))
            for route in routes
            if isinstance(route, APIRoute) and route.operation_id in OPERATIONS
        }

    def find(self, scope: Scope) -> ASGIApp | None:
        """Return what serves a request; None if it must be routed."""
        if scope["method"] != "POST" or scope["query_string"]:
            return None
        path: str = scope["path"]
        if not path.startswith(_PREFIX):
            return None
        model, _, name = path[len(_PREFIX) :].partition("/")
        found = self._served.get(name)
        if found is None or not IDENTIFIER.fullmatch(model):
            return None
        route, take = found
        scope["route"], scope["path_params"] = route, {"model": model}
        return _App(take)


def _without_query(route: APIRoute) -> Take:
    """Return the function of a route with the defaults of its query."""
    query, *_ = get_args(route.endpoint.__annotations__["query"])
    return partial(route.endpoint, query=query())


class _App:
    """One operation without its router."""

    def __init__(self, take: Take) -> None:
        self._take = take

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            caller = await _may_ingest(request)
            model = scope["path_params"]["model"]
            access = IngestAccess(scope["app"].state.ingest, request, caller, model)
            response = await self._take(access)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_LEFT)
        except FORESEEN as error:
            response = problem_response(problem_of(error, request), request)
        await response(scope, receive, send)
