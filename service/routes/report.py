"""The report of a model for a quality committee: one HTML page that prints and needs nothing from elsewhere."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from calibrant.quality_report import ReportContents, page
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.figures.base import RENDERING
from calibrant_server.service.http.parameters import negotiated
from calibrant_server.service.openapi.schema import problems
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.observe_mode import is_observed
from calibrant_server.service.reads.reports import (
    ReportParameters,
    contents_of,
    queries,
    subgroups,
)

router = APIRouter(tags=["metrics"], default_response_class=Response)
HTML = "text/html"
REPORT: dict[str, Any] = {
    "description": "The report",
    "content": {HTML: {"schema": {"type": "string"}}},
    "headers": {
        "ETag": {
            "description": "Changes with the state and the query.",
            "schema": {"type": "string"},
        }
    },
}


@router.get(
    "/v1/models/{model}/report",
    operation_id="getReport",
    responses={
        200: REPORT,
        304: {"description": "The state is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_report(read: TheReadAccess, query: Annotated[ReportParameters, Query()]) -> Response:
    """Return a report for a quality committee: data, verdict, measurements, figures, assumptions, versions."""
    media_type = negotiated(read.request, [HTML])
    config = await read.config()
    with engine_errors():
        current = await read.connection.inbox.maps.current(config.key)
        stored = await read.connection.inbox.slices(config)
    names, n_left_out = subgroups(query, config, stored)
    observed = is_observed(read.request.app.state.settings, config)
    shown = ("" if current is None else current.etag, str(query.tolerance), str(observed))
    active_map = None if current is None else orjson.loads(current.body)

    def written(results: dict[str, Any]) -> str:
        return drawn(contents_of(query, config, results, active_map, n_left_out, observed))

    async def render(body: bytes) -> bytes:
        return (await run_in_threadpool(written, orjson.loads(body))).encode()

    return await read.reads.together(
        read.request, queries(query, config, names, shown), lambda found: found, media_type, render
    )


def drawn(contents: ReportContents) -> str:
    """Return the page; figures are drawn one at a time."""
    with RENDERING:
        return page(contents)
