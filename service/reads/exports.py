"""Exports of a complete model: lines that an import reads, or a table of its panes that other programs read."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from calibrant.results.tables import Kind
from calibrant_server.service.reads.tables import writer
from calibrant_server.workers.alarm.message_formats import PAGERDUTY
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.lifecycle.pane_table import StoredPane, stored_panes
from calibrant_server.workers.lifecycle.transfer import MODEL, export_lines
from calibrant_server.workers.store.model_config import ModelConfig

PANES: Mapping[str, Kind] = {
    "model": "text", "slice": "text", "from": "time", "to": "time", "n_predictions": "integer",
    "n_labelled": "integer", "n_ratings": "integer", "n_units": "integer", "pane": "bytes",
}  # fmt: skip


class ExportLine(BaseModel):
    """One line; `type` names its content. The first is the `model`, the last the `end`."""

    model_config = ConfigDict(extra="allow")

    type: str


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
