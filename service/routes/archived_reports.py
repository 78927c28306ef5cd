"""Archived reports of a model: written once with their results, beyond the model's retention."""

import orjson
from fastapi import APIRouter, Request, Response

from calibrant_server.service.engine import engine_errors, model_of
from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.dependencies import (
    Admin,
    Reader,
    TheConnection,
    TheIngestService,
)
from calibrant_server.service.http.errors import NotAcceptable
from calibrant_server.service.http.parameters import (
    IfNoneMatch,
    ModelId,
    entity_tags,
    names,
    negotiated,
)
from calibrant_server.service.http.validation_errors import validated
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.reads.archived_reports import (
    ArchivedParameters,
    ArchivedReport,
    ReportNumber,
    ReportsResponse,
    archived,
    report_errors,
)
from calibrant_server.service.reads.collection import Collection, CollectionAccess, Page
from calibrant_server.service.reads.dependencies import ReadAccess
from calibrant_server.service.reads.frozen_maps import document, who_is

router = APIRouter(tags=["metrics"], default_response_class=Response)
HTML, PDF = "text/html", "application/pdf"
RESULTS = "application/vnd.calibrant.results+json"
NO_PDF = f"Received Accept: {PDF}, which was removed. Accept text/html and print the page: a browser saves it as PDF."
ONE = success(ArchivedReport, "The report: its summary, its page, or its results", ETag="A report never changes.")  # fmt: skip
ONE["content"] |= {
    HTML: {"schema": {"type": "string"}},
    RESULTS: {"schema": {"type": "object"}},
}


@router.post(
    "/v1/models/{model}/reports",
    operation_id="createReport",
    responses={
        200: success(ArchivedReport, "The same report was archived before", Location="The report."),
        201: success(ArchivedReport, "The report, archived", Location="The report."),
        **problems(408, 409, 413, 415, 422),
    },
    openapi_extra=takes("The report to archive", json=ArchivedParameters),
)
async def create_report(
    model: ModelId,
    request: Request,
    caller: Admin,
    ingest: TheIngestService,
) -> Response:
    """Archive the report of a window immutably, with its results.

    Retention does not remove it. The same report of the same state is archived once.
    """
    wanted = validated(ArchivedParameters, await document(request, ingest))
    read = ReadAccess(model, request, caller)
    return await archived(read, wanted, who_is(caller))


REPORTS = Collection(
    router,
    "/v1/models/{model}/reports",
    "reports",
    ArchivedReport,
    Reader,
    "A page of reports",
    page=ReportsResponse,
)


@REPORTS.lists("listReports")
async def list_reports(access: CollectionAccess) -> Page:
    """List the archived reports of a model, oldest first."""
    config = await access.config()
    found = await access.connection.inbox.reports.listed(config)
    page, following = REPORTS.paged(access, found, lambda each: [each["report"]])
    return {"model": config.model, **page}, following


@router.get(
    "/v1/models/{model}/reports/{report}",
    operation_id="getArchivedReport",
    responses={
        200: ONE,
        304: {"description": "The report is the one that If-None-Match names"},
        **problems(406, 422),
    },
)
async def get_archived_report(
    model: ModelId,
    report: ReportNumber,
    request: Request,
    caller: Reader,
    connection: TheConnection,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return an archived report by `Accept`: its summary, the page (HTML), or its results."""
    if request.headers.get("accept", "").strip().lower() == PDF:
        raise NotAcceptable(NO_PDF)
    media_type = negotiated(request, [JSON, HTML, RESULTS])
    config = await model_of(connection, caller, model)
    archive = connection.inbox.reports
    with engine_errors(), report_errors():
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
