"""Archived reports and the deletion of their model: one decides about the other in one step of the store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from calibrant_server.workers.lifecycle.transfer import export_lines
from calibrant_server.workers.store.frozen_maps import NoSuchModel
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import HasReports, Registry
from calibrant_server.workers.store.report_archive import NewReport
from tests.workers.driving import Bench

CONFIG = ModelConfig("default", "kept", "binary", 2)


def report(number: int) -> NewReport:
    summary: Any = {"note": str(number)}
    return NewReport(f"report {number}", summary, b"<html>", b"{}")


async def created(bench: Bench) -> tuple[Registry, ModelConfig]:
    registry = Registry(bench.inbox.client, bench.store.keys)
    return registry, await registry.put(CONFIG, None)


def archives(bench: Bench) -> list[bytes]:
    return [name for name in bench.client.scan_iter(match="*:ra:*")]


def test_a_model_with_reports_is_deleted_only_with_them(bench: Bench):
    async def story():
        registry, config = await created(bench)
        assert await bench.inbox.reports.add(config, report(1), 10**6) == (1, True)
        assert await bench.inbox.reports.add(config, report(2), 10**6) == (2, True)
        with pytest.raises(HasReports) as rejected:
            await registry.delete(config, with_reports=False)
        assert rejected.value.n_reports == 2
        assert await registry.found("default", "kept") == config
        lines = [
            each async for each in export_lines(bench.inbox.client, bench.store.keys, config, False)
        ]
        assert lines[-1]["left_out"] == {"reports": 2}
        await registry.delete(config)
        assert await registry.found("default", "kept") is None

    bench.run(story())
    bench.loop(model=CONFIG).step()
    assert archives(bench) == []


def test_a_model_that_was_deleted_or_made_anew_takes_no_report_of_the_former(bench: Bench):
    async def story():
        registry, config = await created(bench)
        await registry.delete(config, with_reports=False)
        with pytest.raises(NoSuchModel):
            await bench.inbox.reports.add(config, report(1), 10**6)
        again = await registry.put(CONFIG, None)
        with pytest.raises(NoSuchModel):
            await bench.inbox.reports.add(config, report(1), 10**6)
        assert await bench.inbox.reports.listed(again) == []

    bench.run(story())
    assert archives(bench) == []


def test_reports_and_deletions_at_the_same_time_leave_no_archive_without_a_model(bench: Bench):
    """Of each pair, either the report is archived and the model stays, or the model goes and no report is archived."""

    async def pair(number: int) -> tuple[bool, bool]:
        registry, config = await created(bench)
        add = bench.inbox.reports.add(config, report(number), 10**6)
        delete = registry.delete(config, with_reports=False)

        async def second(first: asyncio.Task, call) -> object:
            """`call` some milliseconds after `first`; twice in eight pairs after its end, so that each wins."""
            await (asyncio.wait([first]) if number % 8 < 2 else asyncio.sleep(number % 8 / 1000))
            return await call

        calls = (add, delete) if number % 2 else (delete, add)
        first = asyncio.create_task(calls[0])
        found = await asyncio.gather(first, second(first, calls[1]), return_exceptions=True)
        added, deleted = found if number % 2 else reversed(found)
        is_there = await registry.found("default", "kept") is not None
        assert isinstance(added, NoSuchModel) == (not is_there), added
        assert isinstance(deleted, HasReports) == is_there, deleted
        if is_there:
            assert len(await bench.inbox.reports.listed(config)) == 1
            await registry.delete(config)
        return is_there, not is_there

    async def story():
        found = [await pair(number) for number in range(60)]
        assert any(kept for kept, _ in found) and any(gone for _, gone in found)

    bench.run(story())
    loop = bench.loop(model=CONFIG)
    for _ in range(100):
        if archives(bench):
            loop.step()
    assert archives(bench) == []
