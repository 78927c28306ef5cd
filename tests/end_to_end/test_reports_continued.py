"""A report that reads more panes than one request may is archived by several: each continues where the last one stopped."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis

import calibrant as cal
from calibrant_server.service.http.errors import AnswerLate
from calibrant_server.service.reads import report_work
from calibrant_server.service.reads.report_work import MAX_WORK, OF_A_RESULT, ReportWork
from calibrant_server.service.reads.service import ReadQuery, ReadService
from calibrant_server.workers.queries.ask import QueryResult
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.store.report_archive import ReportArchive
from calibrant_server.workers.store.windows import Window
from tests.tracing import one_process

URL = "/v1/models/large"
BODY = {"window": "P1D", "tolerance": 0.1}
PANES = "application/vnd.calibrant.panes+json"


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


async def created(client: httpx.AsyncClient) -> None:
    """Create the model and fill it."""
    model = {"task": "binary", "slices": {"site": ["A", "B"]}}
    assert (await client.put(URL, json=model)).status_code == 201
    await fill(client, 1)


async def archived(client: httpx.AsyncClient, most: int = 10) -> tuple[int, dict[str, Any]]:
    """Send the request until the report is archived; return how often, and the report."""
    for n in range(1, most + 1):
        made = await client.post(f"{URL}/reports", json=BODY)
        if made.status_code != 503:
            assert made.status_code in (200, 201), made.text
            found: dict[str, Any] = made.json()
            return n, found
        assert made.headers["retry-after"] == "2"
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
        await created(client)
        monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
        n, found = await archived(client)
        # The window, two subgroups, and what is left.
        assert n == 4
        assert len(computed) == len(set(computed))
        assert [slice_ for kind, slice_ in computed if kind == "slice_report"] == ["", "site:A", "site:B"]  # fmt: skip
        monkeypatch.undo()
        again, same = await archived(client)
        assert (again, same) == (1, found)


def panes_of(report: dict[str, Any]) -> dict[str, str]:
    return {each["slice"]: each["digest"] for each in report["panes"]}


@pytest.mark.anyio
async def test_where_data_arrive_meanwhile_the_next_request_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[tuple[str, str]]
) -> None:
    """Each slice is of one state: pane and results. What was computed is not computed again."""
    async with one_process(tmp_path) as client:
        await created(client)
        _, before = await archived(client)
        await fill(client, 2)
        monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
        for n in range(3):
            computed.clear()
            assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503
            assert computed == [("slice_report", ["", "site:A", "site:B"][n])]
            await fill(client, 3 + n)
        n, found = await archived(client)
        assert n == 1
        monkeypatch.undo()
        _, after = await archived(client)
        panes = [panes_of(each) for each in (before, found, after)]
        for slice_ in ("", "site:A", "site:B"):
            assert len({each[slice_] for each in panes}) == 3
        stored = await client.get(f"{URL}/reports/{found['report']}", headers={"Accept": PANES})
        n_labelled = {}
        for each in stored.json()["panes"]:
            pane = cal.Pane.from_bytes(b64decode(each["pane"]))
            assert pane.digest() == panes[1][each["slice"]]
            n_labelled[each["slice"]] = pane.counts["n_labelled"]
        # 40 more rows came before each further request: all rows were read first, then each site.
        assert n_labelled == {"": 80, "site:A": 60, "site:B": 80}
        page = (await client.get(f"{URL}/reports/{found['report']}", headers={"Accept": "text/html"})).text  # fmt: skip
        text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
        assert re.search(r"site:A [^a-z]*\b60\b", text) and re.search(r"site:B [^a-z]*\b80\b", text)


@pytest.mark.anyio
async def test_what_was_computed_before_a_slice_was_late_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[tuple[str, str]]
) -> None:
    result = ReadService.result

    async def late(self: ReadService, query: ReadQuery, *more: Any) -> QueryResult:
        if query.slice == "site:B":
            raise AnswerLate()
        return await result(self, query, *more)

    async with one_process(tmp_path) as client:
        await created(client)
        monkeypatch.setattr(ReadService, "result", late)
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503
        monkeypatch.setattr(ReadService, "result", result)
        await fill(client, 2)
        computed.clear()
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 201
        assert computed == [("slice_report", "site:B"), ("drift", "")]


async def settled(client: httpx.AsyncClient) -> None:
    """Create the model, fill it, and leave a report of it after its first slice."""
    await created(client)
    assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503


@pytest.mark.anyio
@pytest.mark.parametrize("change", ["note", "window", "parameters", "deletion", "moved on"])
async def test_what_was_left_of_another_report_is_not_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    computed: list[tuple[str, str]],
    change: str,
) -> None:
    """New data give the window a new state, which a report computes unless it continues."""
    monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
    async with one_process(tmp_path) as client:
        await settled(client)
        wait = {"Prefer": "wait=60"}
        rows = {"probabilities": [[0.3, 0.7]], "labels": [1], "ids": ["secret"], "slices": {"site": ["A"]}}  # fmt: skip
        sent = await client.post(f"{URL}/predictions", json=rows, headers=wait)
        assert sent.json()["status"] == "merged"
        body = BODY | {
            "note": {"note": "another"},
            "window": {"window": "P2D"},
            "parameters": {"bins": 10},
        }.get(change, {})
        if change == "deletion":
            gone = await client.delete(f"{URL}/predictions/secret", headers=wait)
            assert gone.status_code in (200, 202, 204), gone.text
        if change == "moved on":
            monkeypatch.setattr(ReadService, "window", later(ReadService.window))
        computed.clear()
        assert (await client.post(f"{URL}/reports", json=body)).status_code == 503
        assert computed == [("slice_report", "")]


def later(window: Any) -> Any:
    """Return the method with its windows an hour later."""

    async def moved(self: ReadService, query: ReadQuery) -> Window:
        found = await window(self, query)
        return Window(found.from_s + 3600, found.to_s + 3600)

    return moved


@pytest.mark.anyio
async def test_a_deleted_prediction_is_in_no_report_that_is_archived_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_process(tmp_path) as client:
        await created(client)
        wait = {"Prefer": "wait=60"}
        rows = {"probabilities": [[0.3, 0.7]], "labels": [1], "ids": ["secret"], "slices": {"site": ["A"]}}  # fmt: skip
        await client.post(f"{URL}/predictions", json=rows, headers=wait)
        monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503
        await client.delete(f"{URL}/predictions/secret", headers=wait)
        monkeypatch.undo()
        _, found = await archived(client)
        stored = await client.get(f"{URL}/reports/{found['report']}", headers={"Accept": PANES})
        panes = [cal.Pane.from_bytes(b64decode(each["pane"])) for each in stored.json()["panes"]]
        assert [each.counts["n_labelled"] for each in panes] == [40, 20, 20]


@pytest.mark.anyio
async def test_a_prediction_that_is_deleted_while_its_report_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ReadService.result
    wait = {"Prefer": "wait=60"}
    async with one_process(tmp_path) as client:
        model = {"task": "binary", "slices": {"site": ["A", "B"]}}
        assert (await client.put(URL, json=model)).status_code == 201
        rows = {"probabilities": [[0.3, 0.7]] * 2, "labels": [1, 0], "ids": ["secret", "other"], "slices": {"site": ["A", "B"]}}  # fmt: skip
        await client.post(f"{URL}/predictions", json=rows, headers=wait)

        async def deletes(self: ReadService, query: ReadQuery, *more: Any) -> QueryResult:
            if query.slice == "site:B":
                await client.delete(f"{URL}/predictions/secret", headers=wait)
            return await result(self, query, *more)

        monkeypatch.setattr(ReadService, "result", deletes)
        late = await client.post(f"{URL}/reports", json=BODY)
        assert (late.status_code, late.headers["retry-after"]) == (503, "2")
        assert "was deleted" in late.json()["detail"]
        monkeypatch.setattr(ReadService, "result", result)
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 201


@pytest.mark.anyio
async def test_all_slices_have_the_window_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the hour ends while it is computed."""
    result, asked = ReadService.result, []

    async def noted(
        self: ReadService,
        query: ReadQuery,
        window: Window | None = None,
        version: str | None = None,
    ) -> QueryResult:
        found = await result(self, query, window, version)
        asked.append(found.window)
        monkeypatch.setattr(ReadService, "window", later(ReadService.window))
        return found

    async with one_process(tmp_path) as client:
        await created(client)
        monkeypatch.setattr(ReadService, "result", noted)
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 201
        assert len(asked) == 4 and len(set(asked)) == 1


@pytest.mark.anyio
async def test_what_is_computed_stays_until_the_report_is_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[tuple[str, str]]
) -> None:
    add = ReportArchive.add

    async def fails(*given: Any) -> Any:
        raise redis.ConnectionError("the store restarts")

    async with one_process(tmp_path) as client:
        await created(client)
        monkeypatch.setattr(ReportArchive, "add", fails)
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503
        monkeypatch.setattr(ReportArchive, "add", add)
        await fill(client, 2)
        computed.clear()
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 201
        assert computed == [("drift", "")]


@pytest.mark.anyio
async def test_a_report_of_other_settings_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[tuple[str, str]]
) -> None:
    async with one_process(tmp_path) as client:
        await created(client)
        monkeypatch.setattr(report_work, "MAX_WORK", 1.0)
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503
        changed = await client.patch(URL, json={"retention": "P30D"}, headers={"If-Match": "*"})
        assert changed.status_code == 200
        assert (await client.post(f"{URL}/reports", json=BODY)).status_code == 503
        assert computed == [("slice_report", ""), ("slice_report", "")]


def test_the_first_work_of_a_request_is_always_done() -> None:
    work = ReportWork()
    assert work.has_room(10 * MAX_WORK)
    work.add(1.0, is_subgroup=False)
    assert work.has_room(MAX_WORK - 1.0 - OF_A_RESULT)
    assert not work.has_room(MAX_WORK - OF_A_RESULT)


def test_a_subgroup_is_expected_to_take_as_long_as_the_largest_before_it() -> None:
    work = ReportWork()
    work.add(MAX_WORK / 2, is_subgroup=False)
    assert work.has_room_for_a_subgroup(1)
    work.add(MAX_WORK / 4, is_subgroup=True)
    assert work.has_room(MAX_WORK / 4 - 2 * OF_A_RESULT)
    assert not work.has_room_for_a_subgroup(1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
