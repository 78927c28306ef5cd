"""Reports of a model for a quality committee: one HTML page, and archived ones, written once with their results."""

from typing import Any

import orjson
from fastapi import Response
from starlette.concurrency import run_in_threadpool

from calibrant.quality_report import page
from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.parameters import (
    entity_tags,
    names,
    negotiated,
)
from calibrant_server.service.http.problems import NotAcceptable
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.archived_reports import (
    ArchivedParameters,
    ArchivedReport,
    ReportNumber,
    ReportsResponse,
    archived,
)
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.frozen_maps import who_is
from calibrant_server.service.reads.operations import (
    Access,
    Admin,
    Created,
    Operations,
    Page,
    Reader,
)
from calibrant_server.service.reads.report_pages import prepared
from calibrant_server.service.reads.reports import ReportParameters

router = Operations("metrics")
HTML, PDF = "text/html", "application/pdf"
RESULTS = "application/vnd.calibrant.results+json"
NO_PDF = f"Received Accept: {PDF}, which was removed. Accept text/html and print the page: a browser saves it as PDF."
ONE = success(ArchivedReport, "The report: its summary, its page, or its results", ETag="A report never changes.")  # fmt: skip
ONE["content"] |= {
    HTML: {"schema": {"type": "string"}},
    RESULTS: {"schema": {"type": "object"}},
}


REPORTS = Collection(
    router,
    "/v1/models/{model}/reports",
    "reports",
    ArchivedReport,
    Reader,
    "A page of reports",
    page=ReportsResponse,
)


@REPORTS.creates(
    ArchivedParameters,
    "The report to archive",
    Admin,
    {
        200: success(ArchivedReport, "The same report was archived before", Location="The report."),
        201: success(ArchivedReport, "The report, archived", Location="The report."),
    },
    409,
)
async def create_report(access: Access) -> Created:
    """Archive the report of a window immutably, with its results.

    Retention does not remove it. The same report of the same state is archived once.
    """
    shown, is_new = await archived(access, access.body, who_is(access.caller))
    return Created(shown, f"/v1/models/{access.model}/reports/{shown['report']}", is_new)


@REPORTS.lists()
async def list_reports(access: Access) -> Page:
    """List the archived reports of a model, oldest first."""
    config = await access.config()
    found = await access.connection.inbox.reports.listed(config)
    page, following = REPORTS.paged(access, found, lambda each: [each["report"]])
    return {"model": config.model, **page}, following


@router.operation(
    "GET /v1/models/{model}/reports/{report}",
    Reader,
    ONE,
    406,
    id=("report", ReportNumber),
    headers=("if_none_match",),
)
async def get_archived_report(access: Access) -> Response:
    """Return an archived report by `Accept`: its summary, the page (HTML), or its results."""
    request, report, archive = access.request, access.id, access.inbox.reports
    if request.headers.get("accept", "").strip().lower() == PDF:
        raise NotAcceptable(NO_PDF)
    media_type = negotiated(request, [JSON, HTML, RESULTS])
    config = await access.config()
    shown = await archive.summary(config, report)
    headers = {
        "ETag": f'"{shown["sha256"][:32]}.{report}.{media_type.rpartition("/")[2]}"',
        "Cache-Control": "private, max-age=3600",
        "Vary": "Accept, Authorization",
    }
    if names(entity_tags(request, "if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    read = {HTML: archive.page, RESULTS: archive.results}.get(media_type)
    body = orjson.dumps(shown) if read is None else await read(config, report)
    return Response(body, 200, headers, media_type)


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


@router.operation(
    "GET /v1/models/{model}/report",
    Reader,
    REPORT,
    406,
    query=ReportParameters,
    headers=("if_none_match", "prefer"),
)
async def get_report(access: Access) -> Response:
    """Return a report for a quality committee: data, verdict, measurements, figures, assumptions, versions."""
    media_type = negotiated(access.request, [HTML])
    report = await prepared(access, access.query)

    async def render(body: bytes) -> bytes:
        found = orjson.loads(body)
        return (await run_in_threadpool(lambda: page(report.contents(found)))).encode()

    return await access.reads.together(
        access.request, report.queries, lambda found: found, media_type, render
    )
