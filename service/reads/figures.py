"""Responses as numbers or figures: selection by the client, and the figure made of the numbers."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
from starlette.concurrency import run_in_threadpool

from calibrant.core.documents import Result
from calibrant.figures.images import image
from calibrant_server.service.openapi.schema import problems
from calibrant_server.service.reads.service import JSON, Render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Result], "Figure"]
# One figure is drawn at a time, since matplotlib's font code is shared.
DRAWING = threading.Lock()
IMAGES: dict[str, Any] = {
    "image/svg+xml": {"schema": {"type": "string"}},
    "image/png": {"schema": {"type": "string", "contentMediaType": "image/png"}},
}


def or_drawn(described: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a read that is also available as an image."""
    return or_unchanged({**described, "content": described["content"] | IMAGES})


def or_unchanged(described: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a read."""
    return {
        200: described,
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    }


def drawn(draw: Draw, media_type: str) -> Render | None:
    """Return the function that makes this media type of the numbers; none for JSON."""
    if media_type == JSON:
        return None

    async def render(body: bytes) -> bytes:
        return await run_in_threadpool(image_of, draw, orjson.loads(body), media_type)

    return render


def image_of(draw: Draw, result: Result, media_type: str) -> bytes:
    """Return the figure of a result as SVG or PNG."""
    with DRAWING:
        return image(draw(result), media_type)
