"""The API document and its interactive pages, which need nothing but this process."""

from importlib.resources import files

import orjson
from fastapi import APIRouter, Path, Request, Response

from calibrant_server.service.http.errors import PathUnknown
from calibrant_server.service.pages.documentation import CONTENT_POLICY, PAGE, START
from calibrant_server.service.pages.sample import sample_body

router = APIRouter(include_in_schema=False, default_response_class=Response)

ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
A_DAY = {"Cache-Control": "public, max-age=86400"}


@router.get("/openapi.json")
async def get_document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(orjson.dumps(request.app.openapi()), media_type="application/json")


@router.get("/sample.json")
async def get_sample() -> Response:
    """Return a body of predictions with labels, to try the service with."""
    return Response(sample_body(), headers=A_DAY, media_type="application/json")


@router.get("/docs")
async def get_documentation() -> Response:
    """Return the interactive documentation."""
    headers = {"Content-Security-Policy": CONTENT_POLICY}
    return Response(PAGE, headers=headers, media_type="text/html")


@router.get("/docs/start.js")
async def get_start() -> Response:
    """Return what starts the documentation."""
    return Response(START, headers=A_DAY, media_type="text/javascript")


@router.get("/docs/{asset}")
async def get_asset(asset: str = Path()) -> Response:
    """Return a file of the documentation."""
    if asset not in ASSETS:
        raise PathUnknown()
    data = files("fastapi_swagger").joinpath("resources", asset).read_bytes()
    return Response(data, headers=A_DAY, media_type=ASSETS[asset])
