"""The documentation site at `/help`, for places without internet: the wheel contains it, and `make docs` builds it in a clone."""

from mimetypes import guess_type

from fastapi import APIRouter, Path, Response
from starlette.responses import FileResponse, RedirectResponse

from calibrant_server.service.http.errors import PathUnknown
from calibrant_server.service.pages import help_site

router = APIRouter(include_in_schema=False, default_response_class=Response)

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
    found = help_site.files()
    if not found:
        raise PathUnknown(NOT_BUILT)
    file = found.get(page or "index.html")
    if file is None:
        raise PathUnknown(f"The documentation has no page {page!r}; /help/index.html lists all.")
    return FileResponse(file, headers=HEADERS, media_type=guess_type(file.name)[0])
