"""Groups of appends: one script for what comes together, and a reply of its own for each batch."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest import append_groups
from calibrant_server.workers.ingest.append_groups import Append, AppendGroups
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.inbox_errors import (
    BacklogFullError,
    BatchConflictError,
    ModelMismatchError,
)
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, delivery


def commands(client, work) -> list[str]:
    """Return the commands that the store receives from clients while `work` runs; a script's own are left out."""
    with client.monitor() as monitor:
        client.echo("first")
        work()
        client.echo("last")
        found = []
        while (each := monitor.next_command())["command"].upper() != "ECHO LAST":
            if each["client_type"] != "lua":
                found.append(each["command"].split()[0].upper())
    return [name for name in found if name not in ("ECHO", "CLIENT")]  # CLIENT opens a connection


def settle(bench):
    """Let the inbox read what is used of the store's totals: it does so every five seconds, in the background."""

    async def reads():
        await asyncio.gather(*bench.inbox._appender._totals._tasks.values())

    bench.run(reads())


def test_batches_that_come_together_take_one_command(bench):
    bench.put_model()
    bench.deliver(delivery("warm"))
    settle(bench)

    def together():
        receipts = bench.deliver(*(delivery(f"b{i}", [i]) for i in range(40)))
        assert not any(receipt.duplicate for receipt in receipts)

    assert commands(bench.client, together) == ["EVALSHA"]
    assert bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 41


def test_a_posted_batch_of_a_known_model_takes_one_command(bench, tmp_path):
    """From the request to the receipt, with the model's configuration compared in the same step."""
    connection = Connection(bench.inbox, Registry(bench.inbox.client, bench.inbox.keys))
    app = create_app(Settings(data_dir=tmp_path, log_requests=False), connection)
    transport = httpx.ASGITransport(app=app)

    async def post(**more):
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"probabilities": [[0.7, 0.2, 0.1]], "labels": [0], **more}
            return await client.post("/v1/models/new/predictions", json=body)

    async def patch():
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            etag = (await client.get("/v1/models/new")).headers["etag"]
            body, headers = {"slices": {"site": ["a"]}}, {"If-Match": etag}
            headers["Content-Type"] = "application/merge-patch+json"
            return await client.patch("/v1/models/new", json=body, headers=headers)

    assert [bench.run(post()).status_code for _ in range(2)] == [202, 202]
    settle(bench)
    assert commands(bench.client, lambda: bench.run(post())) == ["EVALSHA"]
    assert bench.run(patch()).status_code == 200
    undeclared = bench.run(post(slices={"site": ["b"]}))
    assert undeclared.json()["errors"][0]["rule"] == "undeclared_slice"
    assert bench.run(post(slices={"site": ["a"]})).status_code == 202


def test_each_batch_of_a_group_is_accepted_or_rejected_alone(bench):
    bench.put_model()
    bench.deliver(delivery("b1", [1]))
    sent = (
        delivery("b1", [1]),
        delivery("b1", [2]),
        delivery("b2", [3]),
        delivery("b3", model=replace(MODEL, generation="gone")),
        replace(delivery("b4"), checked_revision=99),
        delivery("b5", [4]),
    )

    async def together():
        tasks = (bench.inbox.enqueue(each) for each in sent)
        return await asyncio.gather(*tasks, return_exceptions=True)

    repeated, other, new, gone, stale, last = bench.run(together())
    assert repeated.duplicate and isinstance(other, BatchConflictError)
    assert not new.duplicate and not last.duplicate
    assert isinstance(gone, ModelMismatchError) and isinstance(stale, ModelMismatchError)
    assert stale.current.generation == MODEL.generation
    assert bench.client.xlen(bench.store.keys.of_model(MODEL.key).stream) == 3


def test_the_bound_of_the_backlog_holds_inside_a_group(bench):
    bench.put_model()
    inbox = Inbox(bench.settings.replace(backlog_bytes=2000))
    size = delivery("b00").n_bytes

    async def fill():
        tasks = (inbox.enqueue(delivery(f"b{i:02}")) for i in range(50))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await inbox.close()
        return found

    found = bench.run(fill())
    n_accepted = sum(not isinstance(each, Exception) for each in found)
    assert n_accepted == 2000 // size
    assert all(isinstance(each, BacklogFullError) for each in found[n_accepted:])


async def _sent(groups, n, n_bytes=10, group=(0, False)):
    tasks = [asyncio.ensure_future(groups.append(group, Append((str(i),), (), n_bytes)))
             for i in range(n)]  # fmt: skip
    await asyncio.sleep(0)
    return tasks


class Sender:
    """Replies with the first key of each append; notes the groups, and waits until it may reply."""

    def __init__(self) -> None:
        self.groups: list[tuple] = []
        self.may_reply = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, group, appends):
        self.groups.append((group, len(appends)))
        await self.may_reply.wait()
        if self.error is not None:
            raise self.error
        return [each.keys[0] for each in appends]


@pytest.mark.anyio
async def test_what_comes_while_a_script_runs_is_the_next_group_and_partitions_do_not_wait():
    sender = Sender()
    groups = AppendGroups(sender)
    first = await _sent(groups, 3)
    await asyncio.sleep(0)
    second, other = await _sent(groups, 5), await _sent(groups, 2, group=(1, False))
    await asyncio.sleep(0)
    assert sender.groups == [((0, False), 3), ((1, False), 2)]
    sender.may_reply.set()
    assert await asyncio.gather(*first) == ["0", "1", "2"]
    assert await asyncio.gather(*second, *other) == ["0", "1", "2", "3", "4", "0", "1"]
    assert sender.groups[2:] == [((0, False), 5)]


@pytest.mark.anyio
async def test_a_script_is_bounded_by_batches_and_by_bytes():
    sender = Sender()
    sender.may_reply.set()
    await asyncio.gather(*await _sent(AppendGroups(sender), 150))
    assert [n for _, n in sender.groups] == [64, 64, 22]
    sender.groups.clear()
    await asyncio.gather(*await _sent(AppendGroups(sender), 5, append_groups.MAX_BYTES // 2))
    assert [n for _, n in sender.groups] == [2, 2, 1]
    sender.groups.clear()
    await asyncio.gather(*await _sent(AppendGroups(sender), 2, 2 * append_groups.MAX_BYTES))
    assert [n for _, n in sender.groups] == [1, 1]


@pytest.mark.anyio
async def test_a_cancelled_request_takes_no_other_with_it():
    sender = Sender()
    groups = AppendGroups(sender)
    running = await _sent(groups, 3)
    await asyncio.sleep(0)
    waiting = await _sent(groups, 3)
    running[1].cancel()
    waiting[1].cancel()
    await asyncio.sleep(0)
    sender.may_reply.set()
    found = await asyncio.gather(*running, *waiting, return_exceptions=True)
    assert [each for each in found if isinstance(each, str)] == ["0", "2", "0", "2"]
    assert [n for _, n in sender.groups] == [3, 2]


@pytest.mark.anyio
async def test_an_error_of_a_script_is_that_of_each_batch_and_of_no_later_one():
    sender = Sender()
    groups = AppendGroups(sender)
    sender.error = ConnectionError("gone")
    sender.may_reply.set()
    found = await asyncio.gather(*await _sent(groups, 3), return_exceptions=True)
    assert [type(each) for each in found] == 3 * [ConnectionError]
    sender.error = None
    assert await asyncio.gather(*await _sent(groups, 2)) == ["0", "1"]
