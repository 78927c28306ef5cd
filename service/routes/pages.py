"""Pages for people: all models, one model, its raters and cases, and the files that they use."""

from functools import cache
from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from calibrant_server.service.http.errors import PathUnknown, ScopeMissing
from calibrant_server.service.http.parameters import ModelId
from calibrant_server.service.pages import rendering
from calibrant_server.service.pages.api import ApiResponse
from calibrant_server.service.pages.model_page import ModelPageQuery, model_page, raters_page
from calibrant_server.service.pages.models_page import ModelsPageQuery, models_page
from calibrant_server.service.pages.rendering import PageRoute, page
from calibrant_server.service.pages.visitors import Visitor, visitor_of
from calibrant_server.service.reads.archived_reports import ReportNumber

router = APIRouter(include_in_schema=False, default_response_class=Response, route_class=PageRoute)

ASSETS = {
    "pages.css": "text/css",
    "pages.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "htmx.LICENSE": "text/plain",
    "uplot.min.js": "text/javascript",
    "uplot.min.css": "text/css",
    "uplot.LICENSE": "text/plain",
    "icon.svg": "image/svg+xml",
}
# Reads of the API whose figures pages show.
FIGURES = ("drift", "metrics", "reliability", "temperature")
# A new version of the service has other files under the same names.
AN_HOUR = {"Cache-Control": "public, max-age=3600"}


async def _reader(request: Request) -> Visitor:
    visitor = await visitor_of(request)
    if not visitor.may_read:
        raise ScopeMissing("Your key has no scope `read`. Sign out, and sign in with another key.")
    return visitor


Reader = Annotated[Visitor, Depends(_reader)]


@router.get("/")
async def get_models_page(
    request: Request, visitor: Reader, query: Annotated[ModelsPageQuery, Query()]
) -> Response:
    """Show all models; without one, how to post the first predictions."""
    found = await models_page(request, visitor, query)
    if not found.n_models:
        address = str(request.base_url).rstrip("/")
        guide = {"address": address, "needs_key": bool(visitor.session)}
        return page("first_post.html", visitor, guide)
    return page("models.html", visitor, {"found": found, "query": query})


@router.get("/models/{model}")
async def get_model_page(
    model: ModelId, visitor: Reader, query: Annotated[ModelPageQuery, Query()]
) -> Response:
    """Show one model."""
    return _model_page("model.html", visitor, await model_page(visitor.api, model, query))


@router.get("/models/{model}/figures/{name}")
async def get_page_figure(model: ModelId, name: str, request: Request, visitor: Reader) -> Response:
    """Return a figure of the API as SVG, under its ETag; the query is that of the read."""
    if name not in FIGURES:
        raise PathUnknown("There is no such figure.")
    known = request.headers.get("if-none-match")
    path, query = f"/v1/models/{model}/{name}", str(request.url.query)
    found = await visitor.api.read(path, "image/svg+xml", query, known)
    headers = rendering.FIGURE_HEADERS | ({"ETag": found.etag} if found.etag else {})
    if not found.is_ok:
        return Response(found.problem, found.status, headers, "text/plain")
    return Response(found.content, found.status, headers, "image/svg+xml")


@router.get("/models/{model}/raters")
async def get_raters_page(
    model: ModelId, visitor: Reader, query: Annotated[ModelPageQuery, Query()]
) -> Response:
    """Show raters and cases of one model."""
    return _model_page("raters.html", visitor, await raters_page(visitor.api, model, query))


@router.get("/models/{model}/report")
async def get_report_page(model: ModelId, visitor: Reader) -> Response:
    """Return the report of a model, which also `GET /v1/models/{model}/report` returns."""
    return await _report(visitor, f"/v1/models/{model}/report")


@router.get("/models/{model}/reports/{report}")
async def get_archived_report_page(
    model: ModelId, report: ReportNumber, visitor: Reader
) -> Response:
    """Return an archived report, which also `GET /v1/models/{model}/reports/{report}` returns."""
    return await _report(visitor, f"/v1/models/{model}/reports/{report}")


async def _report(visitor: Visitor, path: str) -> Response:
    found = await visitor.api.read(path, "text/html")
    if not found.is_ok:
        # The first report of many panes is read by several requests.
        wait = found.retry_after if found.status == 503 else None
        title = found.document["title"]
        return rendering.error_page(visitor.request, found.status, title, found.problem, wait)
    return Response(found.content, headers=rendering.REPORT_HEADERS, media_type="text/html")


def _model_page(name: str, visitor: Visitor, values: dict[str, Any]) -> Response:
    settings: ApiResponse = values["settings"]
    if not settings.is_ok:
        return rendering.error_page(
            visitor.request, settings.status, settings.document["title"], settings.problem
        )
    return page(name, visitor, values)


@router.get("/assets/{asset}")
async def get_page_asset(asset: str = Path()) -> Response:
    """Return a file that pages use."""
    if asset not in ASSETS:
        raise PathUnknown("There is no such file.")
    return Response(_asset(asset), headers=AN_HOUR, media_type=ASSETS[asset])


@router.get("/favicon.ico")
async def get_page_icon() -> Response:
    """Return the icon, which a browser asks for beside documents that name none, such as reports."""
    return await get_page_asset("icon.svg")


@cache
def _asset(name: str) -> bytes:
    return (File(rendering.__file__).parent / "assets" / name).read_bytes()
