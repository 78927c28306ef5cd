"""Results as CSV or Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool

from calibrant.results.tables import Kind, Table, Values
from calibrant_server.service.reads.service import Render
from calibrant_server.service.reads.table_formats import Row, written


def tabulated(media_type: str, table: Table) -> Render:
    """Return the function that makes a table of a JSON result."""

    def make(body: bytes) -> bytes:
        rows = table.rows(orjson.loads(body))
        return written(media_type, table.columns, (_row(each, table.columns) for each in rows))

    async def render(body: bytes) -> bytes:
        return await run_in_threadpool(make, body)

    return render


def _row(found: Values, columns: Mapping[str, Kind]) -> Row:
    return [_value(found.get(name), kind) for name, kind in columns.items()]


def _value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "time":
        return datetime.fromisoformat(value)
    return float(value) if kind == "number" else value
