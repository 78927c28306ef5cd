"""Export of a complete model: lines for another service, or its panes as a table."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from calibrant.results.tables import Kind
from calibrant_server.service.http.bodies import NDJSON
from calibrant_server.service.http.parameters import negotiated
from calibrant_server.service.reads.model_documents import ExportLine
from calibrant_server.service.reads.operations import Access, Admin, Operations
from calibrant_server.service.reads.representations import CONTENT, TABLES, writer, written_type
from calibrant_server.service.security.audit import audit_of
from calibrant_server.workers.alarm.deliveries import PAGERDUTY
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.lifecycle.transfer import (
    MODEL,
    StoredPane,
    export_lines,
    stored_panes,
)
from calibrant_server.workers.store.model_config import ModelConfig

PANES: Mapping[str, Kind] = {
    "model": "text", "slice": "text", "from": "time", "to": "time", "n_predictions": "integer",
    "n_labelled": "integer", "n_ratings": "integer", "n_units": "integer", "pane": "bytes",
}  # fmt: skip


async def lines_of(
    inbox: Inbox,
    config: ModelConfig,
    *,
    with_records: bool,
    with_secrets: bool,
    with_reports: bool,
) -> AsyncIterator[bytes]:
    """Yield the lines of an export."""
    lines = export_lines(inbox.client, inbox.keys, config, with_records, with_reports=with_reports)
    async for line in lines:
        yield orjson.dumps(line if with_secrets else without_secrets(line)) + b"\n"


def without_secrets(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of an export without the secrets of webhooks, and without receivers that a secret alone names."""
    alarm = line.get("configuration", {}).get("alarm", {})
    if line["type"] != MODEL or not alarm.get("webhooks"):
        return line
    receivers = [
        {name: text for name, text in each.items() if name != "secret"}
        for each in alarm["webhooks"]
        if each.get("format") != PAGERDUTY
    ]
    configuration = {**line["configuration"], "alarm": {**alarm, "webhooks": receivers}}
    return {**line, "configuration": configuration}


async def pane_table(inbox: Inbox, config: ModelConfig, media_type: str) -> AsyncIterator[bytes]:
    """Yield the table of a model's panes piece by piece: one pane is in memory at a time."""
    table = writer(media_type, PANES)
    async for each in stored_panes(inbox.client, inbox.keys, config):
        yield await run_in_threadpool(table.write, [_row(config, each)])
    yield table.close()


def _row(config: ModelConfig, each: StoredPane) -> list[Any]:
    ends = [datetime.fromtimestamp(at, UTC) for at in (each.from_s, each.to_s)]
    counts = [each.counts[name] for name in PANES if name.startswith("n_")]
    return [config.model, each.slice, *ends, *counts, each.pane]


router = Operations("models")


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


@router.operation(
    "GET /v1/models/{model}/export",
    Admin,
    {
        "description": "Lines of NDJSON; `end` reports whether all describe one state, and the number of archived reports that are left out",
        "content": {NDJSON: {"schema": ExportLine.model_json_schema()}, **CONTENT},
    },
    406,
    query=ExportQuery,
)
async def export_model(access: Access) -> Response:
    """Stream a model: its configuration, panes, baselines and, on request, retained records.

    As CSV or Arrow: a table of the panes of every slice, each packed as `calibrant.Pane.from_bytes` reads it.
    """
    media_type = written_type(negotiated(access.request, [NDJSON, *TABLES]))
    config, inbox, query = await access.config(), access.inbox, access.query
    await inbox.check_files(config)
    audit = audit_of(access.request)
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
