"""The panes of an archived report are bounded together: a report holds all of them in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from calibrant_server.service.http.errors import BodyTooLarge
from calibrant_server.service.reads import archived_reports
from calibrant_server.service.reads.archived_reports import (
    MAX_PANES_BYTES,
    ArchivedParameters,
)
from calibrant_server.workers.queries.ask import QueryResult
from calibrant_server.workers.store.unfinished_reports import UnfinishedReport
from calibrant_server.workers.store.windows import Window


def read(n_bytes: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Read the panes of a window and three subgroups, each of so many bytes; return what was read."""
    subgroups = ("site:A", "site:B", "site:C")
    asked: list[str] = []

    async def result(name: str, window: Window, version: str | None) -> QueryResult:
        asked.append(name)
        body = orjson.dumps({"work_ms": 1.0, "packed": ""})
        return QueryResult(body.ljust(n_bytes), "", window, "v")

    slices = {name: name for name in ("", *subgroups)}
    monkeypatch.setattr(archived_reports, "_slice_queries", lambda *given: slices)
    access: Any = SimpleNamespace(reads=SimpleNamespace(result=result))
    report: Any = SimpleNamespace(subgroups=subgroups, n_panes={})
    earlier = UnfinishedReport(Window(0, 1))
    asyncio.run(archived_reports._Slices(report, ArchivedParameters(), earlier).fill(access))
    return asked


def test_panes_within_the_bound_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(MAX_PANES_BYTES // 4, monkeypatch) == ["", "site:A", "site:B", "site:C"]


def test_reading_ends_where_panes_exceed_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BodyTooLarge, match=r"3 subgroups .* window and 1 do not.* subgroups"):
        read(MAX_PANES_BYTES // 4 * 3 // 2, monkeypatch)
