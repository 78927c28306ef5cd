"""The report of a model for a quality committee: one HTML page that prints and needs nothing from elsewhere."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from calibrant.quality_report import page
from calibrant_server.service.http.parameters import negotiated
from calibrant_server.service.openapi.schema import problems
from calibrant_server.service.reads.dependencies import TheReadAccess
from calibrant_server.service.reads.report_pages import prepared
from calibrant_server.service.reads.reports import ReportParameters

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
    report = await prepared(read, query)

    async def render(body: bytes) -> bytes:
        found = orjson.loads(body)
        return (await run_in_threadpool(lambda: page(report.contents(found)))).encode()

    return await read.reads.together(
        read.request, report.queries, lambda found: found, media_type, render
    )
