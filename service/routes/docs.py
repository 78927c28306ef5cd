"""The API document, its interactive pages, a sample of data, and the documentation site at `/help`; they need nothing but this process."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from mimetypes import guess_type

import numpy as np
import orjson
import scipy
from fastapi import APIRouter, Path, Request, Response
from starlette.responses import FileResponse, RedirectResponse

from calibrant_server.service.http.problems import PathUnknown
from calibrant_server.service.pages.rendering import asset, help_files

router = APIRouter(include_in_schema=False, default_response_class=Response)

ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
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
    return Response(asset("api.html"), headers=headers, media_type="text/html")


@router.get("/docs/start.js")
async def get_start() -> Response:
    """Return what starts the documentation."""
    return Response(asset("api.js"), headers=A_DAY, media_type="text/javascript")


@router.get("/docs/{asset}")
async def get_asset(asset: str = Path()) -> Response:
    """Return a file of the documentation."""
    if asset not in ASSETS:
        raise PathUnknown()
    data = files("fastapi_swagger").joinpath("resources", asset).read_bytes()
    return Response(data, headers=A_DAY, media_type=ASSETS[asset])


NOT_BUILT = "The documentation site is not part of this installation. Wheels contain it; in a clone, `make docs` builds it."
# The theme starts with inline scripts and styles. The site is ours, shows no input, and loads nothing from other places.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "public, max-age=3600"}


@router.get("/help")
async def get_help() -> Response:
    """Lead to the first page, whose links are relative to the folder."""
    return RedirectResponse("/help/index.html")


@router.get("/help/{page:path}")
async def get_help_page(page: str = Path()) -> Response:
    """Return a page or a file of the site."""
    found = help_files()
    if not found:
        raise PathUnknown(NOT_BUILT)
    file = found.get(page or "index.html")
    if file is None:
        raise PathUnknown(f"The documentation has no page {page!r}; /help/index.html lists all.")
    return FileResponse(file, headers=HEADERS, media_type=guess_type(file.name)[0])


N_ROWS, N_CLASSES, SPREAD, TEMPERATURE = 2000, 3, 2.0, 1.6


@lru_cache(maxsize=1)
def sample_body() -> bytes:
    """Return JSON columns for `POST predictions`; the labels follow the probabilities of logits divided by 1.6."""
    rng = np.random.default_rng(7)
    logits = SPREAD * rng.normal(size=(N_ROWS, N_CLASSES))
    shares = scipy.special.softmax(logits / TEMPERATURE, axis=1)
    labels = (shares.cumsum(axis=1) < rng.random((N_ROWS, 1))).sum(axis=1)
    columns = {
        "batch_id": "sample",
        "probabilities": scipy.special.softmax(logits, axis=1).round(4).tolist(),
        "labels": labels.clip(0, N_CLASSES - 1).tolist(),
    }
    return orjson.dumps(columns)
