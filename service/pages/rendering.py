"""Templates of pages, their headers, and pages instead of problem documents; files of the documentation site, which wheels contain and
`make docs` builds in a clone."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException

from calibrant.core.statuses import NOT_COMPUTED, STATUS_TEXTS
from calibrant.figures.numbers import by_whom, counted, plain_number
from calibrant.quality_report.page import load_report_template
from calibrant_server.service.http.problem_responses import FORESEEN, problem_of, problem_response
from calibrant_server.service.http.problems import PathUnknown
from calibrant_server.service.pages import numbers
from calibrant_server.service.pages.visitors import (
    SignInNeeded,
    StaleForm,
    Visitor,
    sign_in_path,
    with_cookie,
)
from calibrant_server.service.version import API_VERSION

# In a clone, the package is reached through a link.
SERVICE = Path(__file__).resolve().parents[1]
# In a wheel, and in a clone.
PLACES = (SERVICE / "help", SERVICE.parent / "build" / "docs-site")
# The site's page for unknown addresses, which expects the site at the root. The service has one of its own.
UNUSED = "404.html"


@cache
def help_files() -> dict[str, Path]:
    """Return the files of the site by their paths in it; none if there is no site. Nothing else is ever read."""
    for place in PLACES:
        if (place / "index.html").is_file():
            return {
                file.relative_to(place).as_posix(): file
                for file in place.rglob("*")
                if file.is_file() and file.relative_to(place).as_posix() != UNUSED
            }
    return {}


TEMPLATES = Path(__file__).parent / "templates"
# No inline script or style, nothing from another site.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cache-Control": "no-store",
    "Vary": "Cookie",
    # With `no-referrer`, a browser would hide from the service that its forms come from its own pages.
    "Referrer-Policy": "same-origin",
}
# The report is one file: its styles and figures are inside.
REPORT_HEADERS = HEADERS | {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
}
# A figure has its own styles; the browser asks whether it is still the same.
FIGURE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "private, no-cache",
    "Vary": "Cookie",
}
STALE = (
    "The form is older than your session, or came from another site. Nothing was changed. "
    "Reload the page and send it again."
)


@cache
def templates() -> Environment:
    """Return the templates; every value is escaped, and a missing one is an error."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for name in (
        "number",
        "sentence",
        "aligned",
        "interval",
        "temperature",
        "per_cent",
        "reason",
        "moment",
        "ago",
        "day",
        "setting",
        "unbroken",
        "with_code",
    ):
        found.filters[name] = getattr(numbers, name)
    for shared in (by_whom, counted, plain_number):
        found.filters[shared.__name__] = shared
    found.globals["status_texts"] = STATUS_TEXTS
    found.globals["not_computed"] = NOT_COMPUTED
    return found


def actions(app: FastAPI) -> dict[str, str]:
    """Return what each operation does, by its id: the first clause of its description."""
    routes = [each for each in app.routes if isinstance(each, APIRoute)]
    return {
        each.operation_id: re.split(r"[;:(.]|, (?!or )", each.description)[0].strip()
        for each in routes
        if each.operation_id
    }


@cache
def asset(name: str) -> bytes:
    """Return a file that pages use."""
    return (Path(__file__).parent / "assets" / name).read_bytes()


def load_templates() -> None:
    """Compile every template and load what reports need, so that no view waits for it; 300 ms of CPU for all."""
    for name in templates().list_templates():
        templates().get_template(name)
    load_report_template()
    # The first report need not wait for the import of its figures either.
    import_module("calibrant.quality_report.figures")


def page(
    name: str, visitor: Visitor | None, values: Mapping[str, Any], status: int = 200
) -> Response:
    """Return a page.

    Parameters
    ----------
    name : the template
    visitor : None on pages that need no session
    """
    common = {
        "visitor": visitor,
        "version": API_VERSION,
        "page": name.partition(".")[0],
        "has_help": bool(help_files()),
    }
    text = templates().get_template(name).render({**common, **values})
    return Response(text, status, HEADERS, "text/html; charset=utf-8")


def moved(path: str) -> Response:
    """Return the response after a form: the browser reads that page, and reloading it repeats nothing."""
    return Response(status_code=303, headers={**HEADERS, "Location": path})


class PageRoute(APIRoute):
    """Route of a page: errors are pages too, and a visitor without a session is led to the page to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except SignInNeeded:
                return with_cookie(moved(sign_in_path(request)), request, None)
            except StaleForm:
                return error_page(request, 403, "The form was not accepted", STALE)
            except FORESEEN as error:
                problem = problem_of(error, request)
                found = error_page(request, problem.status, problem.title, problem.detail)
                found.headers.update(problem.headers)
                return found

        return handled


def error_page(
    request: Request,
    status: int,
    title: str,
    detail: str,
    reload_after: int | None = None,
) -> Response:
    """Return the page of an error.

    Parameters
    ----------
    reload_after : it loads again by itself after so many seconds
    """
    request_id = request.scope.get("request_id")
    values = {
        "title": title,
        "detail": detail,
        "status": status,
        "request_id": request_id,
        "reload_after": reload_after,
        "has_keys": not request.app.state.keyring.is_open,
    }
    found = page("error.html", None, values, status)
    if reload_after is not None:
        found.headers["Retry-After"] = str(reload_after)
    return found


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
