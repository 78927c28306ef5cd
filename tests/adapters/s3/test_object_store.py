"""Old days of models in an object store: a real server of the interface of S3, which is killed, emptied and damaged."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the server is installed by `make test-adapters`")

import numpy as np
import s3fs

import calibrant as cal
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle import cold_moves
from calibrant_server.workers.lifecycle.levels import DAYS
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.queries.window_state import PanesDamaged
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store import day_file, file_store
from calibrant_server.workers.store.cold_days import ColdDay
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.file_store import MARKER, FilesUnavailable, ObjectStore
from calibrant_server.workers.store.windows import Window
from tests.ports import reserved_port
from tests.workers.driving import MODEL, Bench

FIRST, DAY_S = 1_767_225_600, 86_400
EVER = Window(0, 1 << 33)
SLICES = ("", "site:A", "site:B")
KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class ObjectServer:
    """moto's server on a port of its own; what it stores is in its memory."""

    def __init__(self) -> None:
        self.port = reserved_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 120
        while True:
            try:
                self.files().mkdir("days")
                return
            except Exception:
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)

    def files(self) -> s3fs.S3FileSystem:
        return s3fs.S3FileSystem(
            endpoint_url=self.url, skip_instance_cache=True, use_listings_cache=False
        )

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    server = ObjectServer()
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    server.start()
    yield server
    server.resume()
    server.kill()


@pytest.fixture
def bench(tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cold_moves, "REST_S", 0)
    day_file._opened.clear()  # of the server of another test
    with EmbeddedServer(tmp_path / "store") as url:
        settings = EngineSettings(
            redis_url=url, data_dir=tmp_path, namespace="s3", partitions=1, compact_after_s=3600, housekeeping_s=0.0,
            cold_url="s3://days/one/two", cold_after_s=3600, socket_timeout_s=60.0,
        ).replace(cold_keep_s=0)  # fmt: skip
        with Bench(settings) as bench:
            bench.numerics = Numerics()
            bench.put_model()
            yield bench


def filled(bench: Bench):
    for at in range(6):
        rng = np.random.default_rng(at)
        columns = {
            "probabilities": rng.dirichlet(np.ones(3), 20).tolist(),
            "labels": rng.integers(0, 3, 20).tolist(),
            "ids": [f"{at}.{i}" for i in range(20)],
            "event_times": [f"2026-01-0{1 + at // 2}T{6 * (at % 2):02d}:10:00Z"] * 20,
            "slices": {"site": ["AB"[i % 2] for i in range(20)]},
        }
        batch = cal.Batch.from_columns(columns).batch
        bench.deliver(
            IngestBatch.of(MODEL, f"p{at}", PREDICTIONS, batch.pack(), batch.digest(), 20)
        )
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    drain(bench, loop)
    loop._housekeeping.apply(DAYS)
    loop._cache.forget()
    return loop


def drain(bench: Bench, loop) -> None:
    while bench.client.xlen(loop.keys.stream):
        loop.step()


def move(loop) -> None:
    moves = loop._housekeeping._cold
    loop.keys.files.place._rests_to = 0.0
    moves.move_days(MODEL)
    loop._cache.forget()
    moves._sweep_at = 0.0
    moves.sweep()


def content(bench: Bench):
    day_file._opened.clear()
    panes = WindowPanes(Store(bench.settings), Numerics())
    found = {}
    for slice_ in SLICES:
        state = panes.each(MODEL, slice_, EVER, None)
        found[slice_] = [(each.start_s, each.pane.pack()) for each in state.panes], state.version
    return found


def cold_days(bench: Bench, loop) -> dict[int, ColdDay]:
    found = bench.client.hgetall(loop.keys.cold_days(MODEL.key, MODEL.generation))
    return {int(name): ColdDay.read(text) for name, text in found.items()}


def named(bench: Bench, loop) -> list[str]:
    return sorted(
        f"days/one/two/{name}" for day in cold_days(bench, loop).values() for name in day.names
    )


def objects(server: ObjectServer) -> list[str]:
    return sorted(name for name in server.files().find("days") if not name.endswith(MARKER))


def hot(bench: Bench) -> list[bytes]:
    return list(bench.client.scan_iter(match="*:s:*"))


def late(bench: Bench, name: str, prediction: str) -> None:
    payload = pack_labels([LabelRow(prediction, {1: 1}, [])])
    bench.deliver(IngestBatch.of(MODEL, name, LABELS, payload, payload[-16:], 1))


def test_days_move_come_back_and_go(bench, server) -> None:
    loop = filled(bench)
    before = content(bench)
    move(loop)
    assert hot(bench) == [] and content(bench) == before
    assert objects(server) == named(bench, loop) and len(named(bench, loop)) == 3 * 3
    late(bench, "l", "0.3")
    drain(bench, loop)
    after = content(bench)
    assert after[""][0][0] != before[""][0][0] and after[""][0][1:] == before[""][0][1:]
    move(loop)
    assert hot(bench) == [] and content(bench) == after
    assert objects(server) == named(bench, loop)
    from calibrant_server.workers.store.registry import Registry

    bench.run(Registry(bench.inbox.client, bench.store.keys).delete(MODEL))
    drain(bench, loop)
    move(loop)
    assert objects(server) == []


def test_a_worker_killed_on_the_way_leaves_nothing_behind(bench, server, monkeypatch) -> None:
    """Killed before each request to the object store, in a process of its own.

    It is a new process, not a fork: one shares the selector of the parent's loop, and removes the parent's sockets from it.
    """
    monkeypatch.setattr(cold_moves, "SPARE_S", 0)
    filled(bench)
    before = content(bench)
    children = multiprocessing.get_context("spawn")
    exits = []
    while 0 not in exits:
        child = children.Process(target=moving_and_dying, args=(bench.settings, len(exits)))
        child.start()
        child.join()
        exits.append(child.exitcode)
        assert content(bench) == before
    # Marker, then each of three days; those who died late had moved a day before.
    assert exits[:-1] == [-signal.SIGKILL] * (len(exits) - 1) and len(exits) > 6
    loop = bench.loop()
    move(loop)
    assert hot(bench) == [] and content(bench) == before and objects(server) == named(bench, loop)


def moving_and_dying(settings: EngineSettings, number: int) -> None:
    """Move days in this process, which is killed at the request of this number."""
    cold_moves.REST_S = cold_moves.SPARE_S = 0
    calls = iter(range(10_000))
    for name in ("put", "get"):
        dying(name, calls, number)
    with Bench(settings) as bench:
        bench.numerics = Numerics()
        move(bench.loop())


def dying(name, calls, number) -> None:
    do = getattr(ObjectStore, name)

    def wrapped(*args, **kwargs):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return do(*args, **kwargs)

    setattr(ObjectStore, name, wrapped)


def test_a_server_that_is_away_or_lost_an_object(bench, server, monkeypatch) -> None:
    loop = filled(bench)
    before = content(bench)
    move(loop)
    [first, *_] = named(bench, loop)
    data = server.files().cat_file(first)
    # Damaged, then missing: the day is named.
    for break_it in (
        lambda: server.files().pipe_file(
            first, data[:-200] + bytes([data[-200] ^ 1]) + data[-199:]
        ),
        lambda: server.files().rm_file(first),
    ):
        break_it()
        with pytest.raises(PanesDamaged) as error:
            content(bench)
        assert error.value.panes[0]["from"] == "2026-01-01T00:00:00Z"
    server.files().pipe_file(first, data)
    assert content(bench) == before
    # A bucket that is gone, and a server that is: nothing is decided.
    monkeypatch.setattr(file_store, "LASTING_S", -1.0)
    server.kill()
    with pytest.raises(FilesUnavailable):
        content(bench)
    late(bench, "l", "0.3")
    drain(bench, loop)
    assert bench.client.xlen(loop.keys.parked) == 1
    server.start()
    with pytest.raises(FilesUnavailable, match="not mounted"):
        content(bench)


def test_an_inbox_reports_it(bench, server) -> None:
    loop = filled(bench)
    move(loop)

    async def troubles() -> bool:
        async with Inbox(bench.settings) as inbox:
            return (await inbox.troubles()).files_unavailable

    assert not bench.run(troubles())
    server.pause()
    assert bench.run(troubles())
