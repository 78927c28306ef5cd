"""Several queries in one document."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import orjson
import pytest

from calibrant_server.service.reads.service import ReadService


def test_one_query_is_computed_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a report is that of one query: workers never have several of its queries at once."""
    running: list[str] = []

    async def state(service, read_query, media_type):
        return SimpleNamespace(etag=f'"{read_query}"')

    async def result(service, read_query, state):
        assert state.etag == f'"{read_query}"'
        running.append(read_query)
        assert running == [read_query]
        await asyncio.sleep(0)
        running.remove(read_query)
        return SimpleNamespace(body=orjson.dumps({"of": read_query}), n_kept=0)

    monkeypatch.setattr(ReadService, "_state", state)
    monkeypatch.setattr(ReadService, "_of", result)
    service = ReadService(SimpleNamespace(inbox=None))  # type: ignore[arg-type]
    queries = {name: name for name in ("metrics", "drift", "subgroup")}
    request = SimpleNamespace(headers=SimpleNamespace(getlist=lambda name: []))
    response = asyncio.run(service.together(request, queries, lambda found: found))  # type: ignore[arg-type]
    assert orjson.loads(response.body) == {name: {"of": name} for name in queries}
