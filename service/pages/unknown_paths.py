"""A page for a browser that asks for an address where nothing is; programs get the problem document."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from calibrant_server.service.http.errors import PathUnknown
from calibrant_server.service.http.problem_responses import problem_of, problem_response
from calibrant_server.service.pages.rendering import error_page

API = "/v1"


def install(app: FastAPI) -> None:
    """Respond to browsers outside the API with a page; this replaces the handlers of paths that no route serves."""

    async def respond(request: Request, error: Exception) -> Response:
        problem = problem_of(error, request)
        if problem.status == PathUnknown.status and _is_of_a_browser(request):
            return error_page(request, problem.status, problem.title, problem.detail)
        return problem_response(problem, request)

    for kind in (HTTPException, PathUnknown):
        app.add_exception_handler(kind, respond)


def _is_of_a_browser(request: Request) -> bool:
    """Whether the client asks for a page by name, outside the API: `*/*` alone is that of a program."""
    path = request.url.path
    in_api = path == API or path.startswith(f"{API}/")
    return not in_api and "text/html" in request.headers.get("accept", "").lower()
