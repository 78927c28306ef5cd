"""A report that reads more panes than one request may is archived by several: each continues where the last one stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from calibrant_server.service.reads import archived_reports, report_work
from calibrant_server.service.reads.archived_reports import ATTEMPTS
from calibrant_server.service.reads.report_work import ReportWork, UnfinishedReports
from calibrant_server.workers.queries.ask import QueryResult
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.store.windows import Window
from tests.tracing import one_process

URL = "/v1/models/large"
BODY = {"window": "P1D", "tolerance": 0.1}


async def fill(client: httpx.AsyncClient, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(2), 40)
    columns = {
        "probabilities": p.tolist(),
        "labels": [int(rng.choice(2, p=row)) for row in p],
        "slices": {"site": ["AB"[i % 2] for i in range(40)]},
    }
    wait = {"Prefer": "wait=60"}
    sent = await client.post(f"{URL}/predictions", json=columns, headers=wait)
    assert sent.status_code in (200, 201), sent.text


async def archived(client: httpx.AsyncClient, most: int = 10) -> tuple[int, dict[str, Any]]:
    """Send the request until the report is archived; return how often, and the report."""
    for n in range(1, most + 1):
        made = await client.post(f"{URL}/reports", json=BODY)
        if made.status_code != 503:
            assert made.status_code in (200, 201), made.text
            found: dict[str, Any] = made.json()
            return n, found
        assert made.headers["retry-after"] == "1"
        assert "send the same request again" in made.json()["detail"]
    raise AssertionError("the report is never finished")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Kind and slice of the queries that were computed."""
    found: list[tuple[str, str]] = []
    reply = Compute.reply

    def noted(self: Compute, request: Any) -> Any:
        found.append((request.kind, request.side.slice))
        return reply(self, request)

    monkeypatch.setattr(Compute, "reply", noted)
    return found


@pytest.mark.anyio
async def test_each_request_does_a_part_and_computes_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[tuple[str, str]]
) -> None:
    async with one_process(tmp_path) as client:
        model = {"task": "binary", "slices": {"site": ["A", "B"]}}
        assert (await client.put(URL, json=model)).status_code == 201
        await fill(client, 1)
        monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
        n, found = await archived(client)
        # The window, two subgroups, and what is left.
        assert n == 4
        assert len(computed) == len(set(computed))
        assert [slice_ for kind, slice_ in computed if kind == "window_pane"] == ["", "site:A", "site:B"]  # fmt: skip
        monkeypatch.undo()
        again, same = await archived(client)
        assert (again, same) == (1, found)


@pytest.mark.anyio
async def test_where_data_arrive_meanwhile_the_next_request_does_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_process(tmp_path) as client:
        model = {"task": "binary", "slices": {"site": ["A", "B"]}}
        assert (await client.put(URL, json=model)).status_code == 201
        await fill(client, 1)
        monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
        first = await client.post(f"{URL}/reports", json=BODY)
        assert first.status_code == 503
        await fill(client, 2)
        n, _ = await archived(client)
        assert n == 1
        # The bound holds for the next report.
        await fill(client, 3)
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503


@pytest.mark.anyio
@pytest.mark.parametrize(("max_work", "n_attempts"), [(700.0, ATTEMPTS), (80.0, 1)])
async def test_a_state_that_changes_again_and_again_costs_no_more_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_work: float, n_attempts: int
) -> None:
    async with one_process(tmp_path) as client:
        model = {"task": "binary", "slices": {"site": ["A", "B"]}}
        assert (await client.put(URL, json=model)).status_code == 201
        await fill(client, 1)
        # The window and two subgroups take 73.8 units.
        monkeypatch.setattr(report_work, "MAX_WORK", max_work)
        versions: list[int] = []

        def another_state(*_: object) -> int:
            versions.append(len(versions))
            return versions[-1]

        monkeypatch.setattr(archived_reports, "_states", another_state)
        found = await client.post(f"{URL}/reports", json=BODY)
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        assert "The model's state changed" in found.json()["detail"]
        # The results of the panes and of the report have one each.
        assert len(versions) == 2 * n_attempts


@pytest.mark.anyio
async def test_results_that_are_not_cached_are_not_left_to_another_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_process(tmp_path) as client:
        model = {"task": "binary", "slices": {"site": ["A", "B"]}}
        assert (await client.put(URL, json=model)).status_code == 201
        await fill(client, 1)
        monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
        monkeypatch.setattr(report_work, "MAX_CACHED_BYTES", 0)
        n, _ = await archived(client)
        assert n == 1


def result(is_new: bool) -> QueryResult:
    return QueryResult(b"{}", "", Window(0, 1), "", is_new=is_new)


def test_the_first_work_of_a_request_is_always_done() -> None:
    work = ReportWork()
    assert work.has_room(10 * report_work.MAX_WORK)
    work.charge(result(is_new=False), report_work.MAX_WORK)
    assert work.has_room(10 * report_work.MAX_WORK)
    work.charge(result(is_new=True), 1.0)
    assert work.has_room(report_work.MAX_WORK - 1.0)
    assert not work.has_room(report_work.MAX_WORK)


def test_a_report_may_be_left_until_its_state_has_changed() -> None:
    unfinished = UnfinishedReports()
    assert unfinished.continues(b"a", "1")
    unfinished.leave(b"a", "1")
    assert unfinished.continues(b"a", "1")
    unfinished.leave(b"a", "1")
    assert unfinished.continues(b"b", "2") and not unfinished.continues(b"a", "2")
    assert unfinished.continues(b"a", "2")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
