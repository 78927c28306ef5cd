"""Faults of the store's machine: its clock, its disk, its restart. The state is exact afterwards, and health is truthful."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from calibrant_server.workers.health import Health, read_health
from calibrant_server.workers.ingest.inbox_errors import StoreRejectedError, StoreUnavailableError
from calibrant_server.workers.store.connection import Store
from tests.stores import StoreServer
from tests.waiting import PATIENCE_S, eventually
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.ledger import pane_of
from tests.workers.processes import WorkerProcess

pytestmark = pytest.mark.one_server
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
MODELS = [replace(MODEL, model=f"m{number}", generation=f"g{number}") for number in range(6)]
HOST = os.uname().nodename


class Sent:
    """Batches sent to every model, and what is expected of them."""

    def __init__(self, bench):
        self.bench = bench
        self.numbers = []
        for model in MODELS:
            bench.put_model(model)

    def send(self, *numbers):
        """Send numbers to every model, repeating under the same id until each is acknowledged."""
        for number in numbers:
            self.numbers.append(number)
            for model in MODELS:
                self._until_taken(delivery(f"b{number}", [number], model=model))

    def _until_taken(self, sent):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.bench.deliver(sent)
            except StoreUnavailableError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def check(self):
        """Everything is merged once, nothing is dead-lettered."""
        for model in MODELS:
            for number in self.numbers:
                assert self.bench.merged(f"b{number}", model).status == "merged"
            assert self.bench.pane(model=model).numbers == pane_of(self.numbers).numbers
            assert self.bench.dead_letters(model) == []


def health_of(settings) -> Health | None:
    """What the health command reads now; None if the store rejects or does not respond, which is red too."""
    try:
        with closing(Store(settings)) as store:
            return read_health(store, HOST)
    except RedisError:
        return None


def is_green(settings):
    found = health_of(settings)
    return found is not None and not found.is_red


class Clock:
    """The clock of a server, which a file sets."""

    def __init__(self, directory):
        self.file = directory / "clock"
        self.set(0)

    def set(self, hours):
        self.file.write_text(f"{hours * 3600:+d}\n")

    @property
    def environment(self):
        return {
            "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed here")
@pytest.mark.parametrize(("before", "after"), [(0, 2), (0, -2), (2, 0)])
def test_the_stores_clock_moves_two_hours_while_a_worker_dies(
    settings, server_binary, tmp_path, before, after
):
    clock = Clock(tmp_path)
    clock.set(before)
    server = StoreServer(server_binary, tmp_path / "store", appendfsync="always")
    server.environment = clock.environment
    server.start()
    settings = settings.replace(redis_url=server.url, namespace="clock", partitions=4)
    workers = [WorkerProcess(settings) for _ in range(2)]
    try:
        with Bench(settings) as bench:
            seconds = bench.client.time()[0]
            assert abs(seconds - time.time() - before * 3600) < 60, "the clock is not faked"
            for each in workers:
                each.start()
            sent = Sent(bench)
            sent.send(1, 2)
            sent.check()
            eventually(lambda: health_of(settings).workers == 2 and is_green(settings))
            clock.set(after)
            workers[0]._process.kill()
            workers[0]._process.wait()
            sent.send(3, 4)
            sent.check()
            eventually(lambda: health_of(settings).workers == 1 and is_green(settings))

            # Without any worker a backlog is reported, whatever the clock does.
            workers[1]._process.kill()
            workers[1]._process.wait()
            sent.send(5)
            clock.set(before)
            eventually(lambda: (health_of(settings).stalled_partitions or 0) > 0)
            assert not is_green(settings)
            workers[1].start()
            sent.check()
            eventually(lambda: is_green(settings))
    finally:
        for each in workers:
            each._process.kill()
            each._process.wait()
        server.close()


def fill_up(file):
    """Write to a file for as long as the disk has space."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(out, b"x" * 4096)
    finally:
        os.close(out)


@contextmanager
def small_disk(directory: Path, size: str):
    """A file system of its own, as a container's volume."""
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_the_stores_disk_fills_and_has_space_again(settings, server_binary, tmp_path):
    with small_disk(tmp_path / "disk", "4m") as disk:
        server = StoreServer(server_binary, disk / "store")
        server.start()
        settings = settings.replace(redis_url=server.url, namespace="disk")
        worker = WorkerProcess(settings)
        try:
            with Bench(settings, ingest_deadline_s=0.2) as bench:
                worker.start()
                sent = Sent(bench)
                sent.send(1, 2)
                sent.check()
                assert is_green(settings)
                fill = disk / "fill"
                with pytest.raises(OSError, match="space"):
                    fill_up(fill)

                def rejected():
                    try:
                        bench.run(bench.inbox.check_writable())
                        bench.client.set("probe", "x" * 1000)
                    except (StoreRejectedError, RedisError) as error:
                        return str(error)
                    return ""

                reason = eventually(rejected)
                assert "MISCONF" in reason
                with pytest.raises(StoreRejectedError, match="MISCONF"):
                    bench.deliver(delivery("refused", [9], model=MODELS[0]))
                assert not is_green(settings)
                fill.unlink()
                sent.send(3, 4)
                sent.check()
                eventually(lambda: is_green(settings))
        finally:
            worker._process.kill()
            worker._process.wait()
            server.close()


@pytest.mark.slow
def test_the_store_loads_its_file_for_long(settings, server_binary, tmp_path):
    server = StoreServer(server_binary, tmp_path / "store", appendfsync="always")
    server.start()
    settings = settings.replace(redis_url=server.url, namespace="loading")
    worker = WorkerProcess(settings)
    try:
        with Bench(settings, ingest_deadline_s=0.2) as bench:
            worker.start()
            sent = Sent(bench)
            sent.send(1, 2)
            sent.check()
            with bench.client.pipeline(transaction=False) as pipe:
                for number in range(3000):
                    pipe.set(f"ballast{number}", number)
                pipe.execute()
            bench.client.bgrewriteaof()
            eventually(lambda: not bench.client.info("persistence")["aof_rewrite_in_progress"])
            # Each key takes a millisecond to load.
            server.options |= {
                "key-load-delay": "1000",
                "loading-process-events-interval-bytes": "1024",
            }
            server.kill()
            start_only(server)

            def reason():
                try:
                    bench.run(bench.inbox.check_writable())
                except StoreUnavailableError as error:
                    return str(error)
                return ""

            eventually(lambda: "LOADING" in reason(), pause_s=0.001)
            with pytest.raises(StoreUnavailableError):
                bench.deliver(delivery("early", [9], model=MODELS[0]))
            assert not is_green(settings)
            sent.send(3, 4)
            sent.check()
            eventually(lambda: is_green(settings))
            assert bench.run(bench.inbox.record(MODELS[0].key, "early")) is None
    finally:
        worker._process.kill()
        worker._process.wait()
        server.close()


def start_only(server):
    """Start a server without waiting until it has loaded."""
    answers = server._responds
    server._responds = lambda: True
    server.start()
    server._responds = answers


def test_the_stores_file_has_a_torn_tail(settings, server_binary, tmp_path):
    """What the file lost is sent again under its id, and everything counts once."""
    server = StoreServer(server_binary, tmp_path / "store", appendfsync="always")
    server.start()
    settings = settings.replace(redis_url=server.url, namespace="torn")
    worker = WorkerProcess(settings)
    try:
        with Bench(settings) as bench:
            worker.start()
            sent = Sent(bench)
            for cut in (3, 700, 5000):
                sent.send(*range(len(sent.numbers), len(sent.numbers) + 3))
                sent.check()
                server.kill()
                [tail] = (tmp_path / "store" / "appendonlydir").glob("*.incr.aof")
                kept = shutil.copy(tail, tmp_path / "tail")
                os.truncate(tail, max(0, Path(kept).stat().st_size - cut))
                server.start()
                again, sent.numbers = sent.numbers, []
                for model in MODELS:
                    bench.put_model(model)
                sent.send(*again)
                sent.check()
            eventually(lambda: is_green(settings))
    finally:
        worker._process.kill()
        worker._process.wait()
        server.close()


@pytest.mark.slow
def test_another_worker_takes_over_within_the_documented_time(settings, tmp_path):
    """`CALIBRANT_LEASE`, 4 s by default: with half a lease for a busy machine."""
    settings = settings.replace(lease_s=4.0, namespace="takeover", partitions=4)
    workers = [WorkerProcess(settings) for _ in range(2)]
    try:
        with Bench(settings) as bench:
            for each in workers:
                each.start()
            sent = Sent(bench)
            sent.send(1)
            sent.check()
            leases = [bench.store.keys.partition(number).lease for number in range(4)]
            # Each serves its share.
            eventually(lambda: len({*map(bench.client.get, leases)}) == 2, pause_s=0.1)
            time.sleep(1.0)
            killed = time.monotonic()
            workers[0]._process.kill()
            workers[0]._process.wait()
            sent.send(2)
            sent.check()
            assert time.monotonic() - killed < 1.5 * settings.lease_s
    finally:
        for each in workers:
            each._process.kill()
            each._process.wait()
