"""Faults at any moment: nothing that was acknowledged is lost, nothing counts twice, to the bit.

Clients repeat with the same id until they have an answer. Afterwards every acknowledged id has to be merged, the
state has to be the sum over exactly those, and there must be no dead letters. The same schedules with a mutant (no
token check; no memory of ids) must be noticed, or the tests would prove nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.inbox_errors import SaturatedError, StoreUnavailableError
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.store.embedded import EmbeddedServer
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, Bench, delivery, eventually
from tests.workers.ledger import pane_of
from tests.workers.processes import ForgetfulLoop, WorkerProcess, without_token_check

HOUR_US = 3_600_000_000


class Storm:
    """Clients, workers and a server, and somebody who kills or stops them."""

    def __init__(self, settings, server, seed, mode="", n_workers=2):
        self.settings = settings
        self.server = server
        self.chance = random.Random(seed)
        self.workers = [WorkerProcess(settings, mode) for _ in range(n_workers)]
        self.acknowledged = {}
        self.killing = threading.Event()
        self.n_faults = 0

    def numbers(self, i):
        return [i, i * 7 % 1000, i % 13]

    async def _client(self, inbox, numbers, until):
        chance = random.Random(next(numbers))
        # On a slow machine, as long as it takes to mean something.
        while time.monotonic() < until or (
            len(self.acknowledged) < 60 and time.monotonic() < until + PATIENCE_S
        ):
            i = next(numbers)
            times = np.array([chance.randrange(3) * HOUR_US for _ in range(3)])
            sent = delivery(f"b{i}", self.numbers(i), event_times=times)
            await self._until_acknowledged(inbox, sent)
            self.acknowledged[i] = sent
            if chance.random() < 0.2:
                # A client that did not see the answer repeats.
                await self._until_acknowledged(
                    inbox, self.acknowledged[chance.choice(list(self.acknowledged))]
                )

    async def _until_acknowledged(self, inbox, sent):
        while True:
            try:
                return await inbox.enqueue(sent)
            except (StoreUnavailableError, SaturatedError):
                await asyncio.sleep(0.02)

    async def _clients(self, seconds):
        inbox = Inbox(self.settings, ingest_deadline_s=1.0)
        numbers = iter(range(10**9))
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._client(inbox, numbers, until) for _ in range(8)))
        await inbox.close()

    def _kill_things(self, faults):
        while not self.killing.wait(self.chance.uniform(0.1, 0.5)):
            fault = self.chance.choice(faults)
            with contextlib.suppress(OSError, AttributeError):
                fault(self)
                self.n_faults += 1

    def kill_worker(self):
        self.chance.choice(self.workers).kill_and_start()

    def stop_worker(self):
        worker = self.chance.choice(self.workers)
        worker.signal(signal.SIGSTOP)
        time.sleep(self.settings.lease_s * 1.3)
        worker.signal(signal.SIGCONT)

    def kill_server(self):
        os.kill(self.server._process.pid, signal.SIGKILL)

    def stop_server(self):
        pid = self.server._process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.settings.socket_timeout_s * 1.5)
        os.kill(pid, signal.SIGCONT)

    def rage(self, seconds, faults):
        """Let everything run for a while under faults."""
        for worker in self.workers:
            worker.start()
        killer = threading.Thread(target=self._kill_things, args=(faults,))
        killer.start()
        try:
            asyncio.run(self._clients(seconds))
        finally:
            self.killing.set()
            killer.join()

    def end(self):
        for worker in self.workers:
            worker.__exit__()

    def check(self, bench):
        """Drain, then: nothing lost, nothing twice, nothing dead-lettered."""
        keys = bench.store.keys.of_model(MODEL.key)
        eventually(lambda: bench.client.ping() and bench.client.xlen(keys.stream) == 0)

        async def records():
            return [await bench.inbox.record(MODEL.key, f"b{i}") for i in self.acknowledged]

        statuses = {record and record.status for record in bench.run(records())}
        truth = pane_of(number for i in self.acknowledged for number in self.numbers(i))
        assert statuses == {"merged"}
        assert bench.pane().numbers == truth.numbers
        assert bench.cursor()["n"] == str(len(self.acknowledged))
        assert bench.dead_letters() == []
        assert self.n_faults >= 2 and len(self.acknowledged) > 20


STORMS = {
    "workers killed": ("", [Storm.kill_worker]),
    "workers and server killed, no leases": (
        "no-lease",
        [Storm.kill_worker, Storm.kill_worker, Storm.kill_server],
    ),
    "workers stopped past their lease": ("", [Storm.stop_worker]),
    "server stopped past the clients' patience": ("", [Storm.stop_server, Storm.kill_worker]),
}


def storm(settings, server_binary, tmp_path, name, seed, seconds):
    mode, faults = STORMS[name]
    server = EmbeddedServer(tmp_path / "own", "fsync", binary=server_binary)
    quick = settings.replace(
        redis_url=server.start(), durability="fsync", socket_timeout_s=0.4, lease_s=0.6
    )
    raging = Storm(quick, server, seed, mode)
    try:
        # Who checks is patient: only the clients and workers of the storm are not.
        with Bench(quick.replace(socket_timeout_s=PATIENCE_S)) as bench:
            bench.put_model()
            raging.rage(seconds, faults)
            raging.check(bench)
    finally:
        raging.end()
        server.stop()


@pytest.mark.parametrize("name", STORMS)
def test_storm(settings, server_binary, tmp_path, name):
    storm(settings, server_binary, tmp_path, name, seed=1, seconds=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", STORMS)
def test_long_storm(settings, server_binary, tmp_path, name, seed):
    storm(settings, server_binary, tmp_path, name, seed, seconds=15)


def overtaken_in_the_middle(bench, loop_kind, texts):
    """A worker stalls between filling and commit; another one commits the same entries and more; the first wakes."""
    slow, quick = (bench.loop(loop_kind, scripts=texts) for _ in range(2))
    bench.deliver(delivery("b1", [1]))
    send = slow._fencing.send

    def late(*args, **kwargs):
        quick.step()
        bench.deliver(delivery("b2", [2]))
        quick.step()
        return send(*args, **kwargs)

    slow._fencing.send = late
    slow._step_or_reload()
    slow._fencing.send = send
    return slow, [1, 2]


def stale_state_in_memory(bench, loop_kind, texts):
    """A worker that slept through commits of others goes on with what it holds."""
    asleep, other = (bench.loop(loop_kind, scripts=texts) for _ in range(2))
    bench.deliver(delivery("b1", [1]))
    asleep.step()
    bench.deliver(delivery("b2", [2]))
    other._fencing.reload()
    other.step()
    bench.deliver(delivery("b3", [3]))
    return asleep, [1, 2, 3]


def two_copies_in_one_run(bench, loop_kind, texts):
    loop = bench.loop(loop_kind, scripts=texts)
    bench.deliver(delivery("b1", [4]))
    ((_, fields),) = bench.client.xrange(loop.keys.stream)
    bench.client.xadd(loop.keys.stream, fields)
    return loop, [4]


def two_copies_in_two_runs(bench, loop_kind, texts):
    loop = bench.loop(loop_kind, scripts=texts)
    bench.deliver(delivery("b1", [4]))
    ((_, fields),) = bench.client.xrange(loop.keys.stream)
    loop.step()
    bench.client.xadd(loop.keys.stream, fields)
    return loop, [4]


SCHEDULES = [
    overtaken_in_the_middle,
    stale_state_in_memory,
    two_copies_in_one_run,
    two_copies_in_two_runs,
]
MUTANTS = {
    "none": (PartitionLoop, None, set()),
    "no token check": (
        PartitionLoop,
        without_token_check,
        {"overtaken_in_the_middle", "stale_state_in_memory"},
    ),
    "no memory of ids": (ForgetfulLoop, None, {"two_copies_in_two_runs"}),
}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_are_exact_and_notice_mutants(bench, schedule, mutant):
    loop_kind, texts, noticed_by = MUTANTS[mutant]
    bench.put_model()
    loop, truth = schedule(bench, loop_kind, texts() if texts else None)
    for _ in range(20):
        loop._step_or_reload()
        if not bench.client.xlen(loop.keys.stream):
            break
    exact = bench.pane().numbers == pane_of(truth).numbers
    assert exact == (schedule.__name__ not in noticed_by)


def test_a_worker_ends_in_good_order(bench):
    """SIGTERM: the commit at hand is finished, leases are given back at once."""
    bench.put_model()
    bench.deliver(*(delivery(f"b{i}", [i]) for i in range(30)))
    with WorkerProcess(bench.settings) as worker:
        bench.merged("b0")
        assert worker.terminate() == 0
    keys = [bench.store.keys.partition(p).lease for p in range(bench.settings.partitions)]
    assert bench.client.exists(*keys) == 0
    assert bench.client.zcard(bench.store.keys.workers) == 0


def test_partitions_are_shared_and_taken_over(bench):
    first = bench.engine()
    eventually(lambda: len(first.partitions) == 2)
    second = bench.engine()
    eventually(lambda: len(first.partitions) == len(second.partitions) == 1)
    bench.engines.remove(second)
    second.stop()
    eventually(lambda: len(first.partitions) == 2)
    eventually(lambda: first.is_alive)
