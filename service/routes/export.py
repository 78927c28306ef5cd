"""Export of a complete model: lines for another service, or its panes as a table."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse

from calibrant_server.service.engine import engine_errors, model_of
from calibrant_server.service.http.bodies import NDJSON
from calibrant_server.service.http.dependencies import Admin, TheConnection
from calibrant_server.service.http.parameters import ModelId, negotiated
from calibrant_server.service.openapi.schema import problems
from calibrant_server.service.reads.exports import ExportLine, lines_of, pane_table
from calibrant_server.service.reads.tables import CONTENT, TABLES, written_type
from calibrant_server.service.security.audit import audit_of

router = APIRouter(tags=["models"], default_response_class=Response)


class ExportQuery(BaseModel):
    """What an export holds."""

    model_config = ConfigDict(extra="forbid")

    records: bool = Field(
        False,
        description="Also the records retained by id, without which later labels find no prediction.",
    )
    reports: bool = Field(
        False,
        description="Also the archived reports: their pages and results.",
    )
    secrets: bool = Field(
        False,
        description="Also the secrets that sign messages to webhooks. Without them the import creates new ones. "
        "The complete addresses of webhooks are exported in both cases.",
    )


@router.get(
    "/v1/models/{model}/export",
    operation_id="exportModel",
    responses={
        200: {
            "description": "Lines of NDJSON; `end` reports whether all describe one state, and the number of archived reports that are left out",
            "content": {NDJSON: {"schema": ExportLine.model_json_schema()}, **CONTENT},
        },
        **problems(406, 422),
    },
)
async def export_model(
    model: ModelId,
    request: Request,
    caller: Admin,
    query: Annotated[ExportQuery, Query()],
    connection: TheConnection,
) -> Response:
    """Stream a model: its configuration, panes, baselines and, on request, retained records.

    As CSV or Arrow: a table of the panes of every slice, each packed as `calibrant.Pane.from_bytes` reads it.
    """
    media_type = written_type(negotiated(request, [NDJSON, *TABLES]))
    config = await model_of(connection, caller, model)
    inbox, audit = connection.inbox, audit_of(request)
    with engine_errors():
        await inbox.check_files(config)
    audit.is_due, audit.details = True, query.model_dump()
    lines = (
        lines_of(
            inbox,
            config,
            with_records=query.records,
            with_secrets=query.secrets,
            with_reports=query.reports,
        )
        if media_type == NDJSON
        else pane_table(inbox, config, media_type)
    )
    headers = {"Cache-Control": "no-store", "Vary": "Accept, Authorization"}
    return StreamingResponse(lines, media_type=media_type, headers=headers)
