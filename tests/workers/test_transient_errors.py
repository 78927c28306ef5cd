"""An error of the store, the disk or memory decides nothing about an entry: it stays, and is merged later."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import redis
import zstandard
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ReadOnlyError, ResponseError

from calibrant import Batch, Pane
from calibrant.core import frames, packing
from calibrant.core.packing import PackingError
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest import attempts
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.record_store import RecordStore
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.key_names import PaneKey, PartitionKeys
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.transient_errors import is_transient
from calibrant_server.workers.store.watermarks import Watermarks, fields_of
from tests.workers.driving import MODEL, SUMS, Bench, delivery, eventually, stored_pane
from tests.workers.ledger import pane_of

HOUR_US = 3_600_000_000


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(attempts, "MAX_PAUSE_S", 0.001)


def with_ids(batch_id, *ids, **more):
    """Predictions that carry ids, so that filling them reads the store."""
    rows = {"probabilities": [[0.2, 0.5, 0.3]] * len(ids), "ids": list(ids), **more}
    batch = Batch.from_columns(rows).batch
    return IngestBatch.of(MODEL, batch_id, PREDICTIONS, batch.pack(), batch.digest(), batch.n)


# How a pane is stored: the numerics that store it so, what reads it back, and its key.
HELD_AS = {
    "sums": (SUMS, Pane, "from_parts", PartitionKeys.pane),
    "rows": (Numerics(), Rows, "unpack_pieces", PartitionKeys.tail),
}


def labels(batch_id, *ids):
    payload = pack_labels([LabelRow(each, {1: 1}, []) for each in ids])
    return IngestBatch.of(MODEL, batch_id, LABELS, payload, payload[-16:], len(ids))


def counts(bench):
    """Counts of a model's panes together."""
    total = Pane(MODEL.spec())
    for start in bench.starts():
        total.merge(stored_pane(bench, "", start))
    return total.counts


def once(function, error):
    """A function that raises at its first call."""
    raised = []

    def failing(*args, **kwargs):
        if not raised:
            raised.append(error)
            raise error
        return function(*args, **kwargs)

    return failing


def no_letters(bench):
    return (
        bench.dead_letters() == [] and not bench.run(bench.inbox.record(MODEL.key, "b1")).is_final
    )


REJECTIONS = [
    "READONLY",
    "MISCONF",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "OOM",
    "NOPERM",
]


class TestWhichErrorsAreTransient:
    @pytest.mark.parametrize("code", REJECTIONS)
    def test_states_of_the_store_are(self, code):
        from redis._parsers.base import BaseParser

        error = BaseParser.parse_error(f"{code} the store says why")
        assert is_transient(error)
        redis.client.Pipeline.annotate_exception(None, error, 1, ["HGETALL", "x"])
        assert is_transient(error)

    @pytest.mark.parametrize("error", [
        redis.ConnectionError("gone"), redis.TimeoutError("slow"), BusyLoadingError("loading"), ReadOnlyError("x"),
        OutOfMemoryError("x"), ConnectionResetError(), OSError(28, "no space"),
    ])  # fmt: skip
    def test_what_is_away_or_rejected_by_the_machine_is(self, error):
        assert is_transient(error)

    @pytest.mark.parametrize("error", [
        ResponseError("WRONGTYPE Operation"), ResponseError("the word OOM inside"), MemoryError(), ValueError(),
        ResponseError("Command # 1 (SET OOM) of pipeline caused error: WRONGTYPE x"),
    ])  # fmt: skip
    def test_the_rest_is_not(self, error):
        assert not is_transient(error)


@pytest.mark.parametrize("error", [
    redis.TimeoutError("Timeout reading from socket"), redis.ConnectionError("gone"), OSError(5, "input/output"),
    ResponseError("MISCONF Errors writing to the AOF file"), MemoryError(), ResponseError("WRONGTYPE once"),
])  # fmt: skip
@pytest.mark.parametrize("method", ["packed", "unit_members", "marks"])
def test_an_error_of_the_store_while_filling_leaves_the_entry(bench, method, error):
    bench.numerics = Numerics()
    bench.put_model()
    loop = bench.loop()
    setattr(loop._retained, method, once(getattr(loop._retained, method), error))
    bench.deliver(with_ids("b1", "i1", "i2", units=["u", "u"]))
    loop._step_or_reload()
    assert no_letters(bench) and bench.client.xlen(loop.keys.stream) == 1
    eventually(lambda: (loop._step_or_reload(), bench.client.xlen(loop.keys.stream) == 0)[1])
    assert bench.merged("b1").status == "merged"
    assert counts(bench)["n_predictions"] == 2


@pytest.mark.parametrize(
    "error", [redis.TimeoutError("slow"), MemoryError(), OSError(12, "cannot allocate")]
)
@pytest.mark.parametrize("held_as", HELD_AS)
def test_an_error_while_a_pane_is_loaded_is_not_damage(bench, monkeypatch, error, held_as):
    bench.numerics, kind, reader, _ = HELD_AS[held_as]
    bench.put_model()
    bench.deliver(with_ids("b0", "i0", event_times=["2026-01-01T00:00:00Z"]))
    loop = bench.loop()
    loop.step()
    loop._cache.forget()
    bench.deliver(with_ids("b1", "i1", event_times=["2026-01-01T00:00:00Z"]))
    monkeypatch.setattr(kind, reader, once(getattr(kind, reader), error))
    loop._step_or_reload()
    assert no_letters(bench)
    loop._step_or_reload()
    assert counts(bench)["n_predictions"] == 2


def test_zstandard_without_memory_is_not_damage(monkeypatch):
    data = packing.pack({"a": np.arange(9)}, {})

    def without_memory(frame, largest):
        raise zstandard.ZstdError("decompression error: Allocation error : not enough memory")

    monkeypatch.setattr(frames, "decompressed", without_memory)
    with pytest.raises(MemoryError):
        packing.unpack(data)


@pytest.mark.parametrize("payload", [b'{"op":"an_op_of_a_later_version"}', b"no json", b"[]", b"null", b"\xff",
                                     b'{"op":"delete_model","only":"old panes"}', b"{}"])  # fmt: skip
def test_an_unknown_control_operation_changes_nothing(bench, payload):
    bench.put_model()
    bench.deliver(delivery("b1", [4]))
    loop = bench.loop()
    loop.step()
    before = {name: bench.client.dump(name) for name in bench.keys_of()}
    entry = {
        "i": "",
        "m": MODEL.key,
        "g": MODEL.generation,
        "k": "control",
        "h": "",
        "t": "1",
        "b": payload,
    }
    bench.client.xadd(loop.keys.stream, entry)
    bench.deliver(delivery("b2", [5], event_times=np.array([HOUR_US])))
    loop.step()
    [letter] = bench.dead_letters()
    assert letter[b"b"] == payload and b"control" in letter[b"why"]
    assert {name: bench.client.dump(name) for name in before} == before
    assert bench.deliver(delivery("b1", [4]))[0].duplicate
    loop.step()
    assert bench.pane().numbers == pane_of([4, 5]).numbers


@pytest.mark.parametrize("held_as", HELD_AS)
class TestSealing:
    """A cohort is sealed with all of its evidence, or not yet."""

    START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    SEALED = replace(MODEL, label_horizon_s=3600)

    @pytest.fixture
    def loop(self, bench, held_as):
        bench.numerics = HELD_AS[held_as][0]
        bench.put_model(self.SEALED)
        for hour in range(2):
            at = f"2026-01-01T0{hour}:00:00Z"
            rows = {"probabilities": [[0.2, 0.5, 0.3]] * 3, "event_times": [at] * 3, "labels": [[0, 1]] * 3,
                    "slices": {"site": ["A", "B", "B"]}}  # fmt: skip
            batch = Batch.from_columns(rows).batch
            bench.deliver(
                IngestBatch.of(
                    MODEL, f"b{hour}", PREDICTIONS, batch.pack(), batch.digest(), batch.n
                )
            )
        loop = bench.loop()
        loop._housekeeping.due_at = float("inf")
        while bench.client.xlen(loop.keys.stream):
            loop.step()
        return loop

    def pass_over(self, loop):
        loop._housekeeping.due_at = 0.0
        loop._step_or_reload()

    def sealed(self, bench, loop):
        marks = bench.client.hmget(loop.keys.marks(MODEL.key, MODEL.generation), fields_of(""))
        names = [
            loop.keys.pane(PaneKey(MODEL.key, MODEL.generation, sealed_slice(slice_), start))
            for slice_ in ("", "site:A", "site:B")
            for start in (self.START, self.START + 3600)
        ]
        return Watermarks.read(marks).sealed_to, bench.client.exists(*names)

    @pytest.mark.parametrize(
        "error", [MemoryError(), OSError(5, "input/output"), redis.TimeoutError("slow")]
    )
    @pytest.mark.parametrize("at", [1, 3])
    def test_a_transient_error_leaves_the_cohort_for_the_next_pass(
        self, bench, loop, monkeypatch, error, at, held_as
    ):
        _, kind, reader, _ = HELD_AS[held_as]
        read, calls = getattr(kind, reader), []

        def failing(*args, **kwargs):
            calls.append(1)
            if len(calls) == at:
                raise error
            return read(*args, **kwargs)

        monkeypatch.setattr(kind, reader, failing)
        self.pass_over(loop)
        assert self.sealed(bench, loop) == (0, 0)
        self.pass_over(loop)
        assert self.sealed(bench, loop) == (self.START + 7200, 6)
        name = loop.keys.pane(PaneKey(MODEL.key, MODEL.generation, sealed_slice(""), self.START))
        parts = {part.decode(): value for part, value in bench.client.hgetall(name).items()}
        assert Pane.from_parts(MODEL.spec(), parts).counts["n_labelled"] == 3

    def test_a_failing_pass_does_not_hold_up_entries(self, bench, loop, monkeypatch):
        def without_memory(*args, **kwargs):
            raise MemoryError

        monkeypatch.setattr(loop._housekeeping._sealing, "seal", without_memory)
        self.pass_over(loop)
        bench.deliver(with_ids("b2", "i2"))
        loop._step_or_reload()
        assert bench.merged("b2").status == "merged"

    def test_a_damaged_pane_leaves_it_unsealed_and_is_reported(self, bench, loop, held_as):
        key = PaneKey(MODEL.key, MODEL.generation, "site:B", self.START + 3600)
        name = HELD_AS[held_as][3](loop.keys, key)
        intact = bench.client.hgetall(name)
        part = sorted(intact)[0]
        bench.client.hset(name, part, b"damaged")
        for _ in range(2):
            self.pass_over(loop)
            assert self.sealed(bench, loop) == (self.START + 3600, 3)
            [why] = bench.client.hvals(loop.keys.unsealable)
            assert why.startswith(str(self.START + 3600).encode())
        bench.client.hset(name, part, intact[part])
        self.pass_over(loop)
        assert self.sealed(bench, loop) == (self.START + 7200, 6)
        assert not bench.client.exists(loop.keys.unsealable)

    def test_compaction_raises_what_is_not_damage(self, bench, loop, monkeypatch, held_as):
        self.pass_over(loop)
        _, kind, reader, _ = HELD_AS[held_as]
        monkeypatch.setattr(kind, reader, once(getattr(kind, reader), MemoryError()))
        merge_days = loop._housekeeping._compaction.merge_days
        with pytest.raises(MemoryError):
            merge_days(MODEL, self.START + 86_400)

    def test_reading_raises_packing_error_for_damage(self, bench, loop, held_as):
        name = HELD_AS[held_as][3](loop.keys, PaneKey(MODEL.key, MODEL.generation, "", self.START))
        bench.client.hset(name, sorted(bench.client.hkeys(name))[0], b"damaged")
        with pytest.raises(PackingError):
            loop._housekeeping._sealing._pane(self.SEALED, "", [self.START])


def pause_storm(settings, server_binary, directory, monkeypatch, n_stops, stop_s, n_batches):
    """Stop a real server for longer than the socket time-out, each time just as an entry is filled, while clients post."""
    server = EmbeddedServer(directory, "everysec", binary=server_binary)
    quick = settings.replace(redis_url=server.start(), socket_timeout_s=stop_s / 2)
    packed, calls, timers = RecordStore.packed, [], []

    def stopping(*args):
        calls.append(1)
        if len(calls) > 1 and len(timers) < n_stops:
            pid = server._process.pid
            os.kill(pid, signal.SIGSTOP)
            timers.append(threading.Timer(stop_s, os.kill, (pid, signal.SIGCONT)))
            timers[-1].start()
        return packed(*args)

    monkeypatch.setattr(RecordStore, "packed", stopping)
    try:
        with Bench(
            quick.replace(socket_timeout_s=stop_s + 10), ingest_deadline_s=4 * stop_s + 20
        ) as bench:
            bench.numerics = Numerics()
            bench.put_model()
            bench.settings = quick
            bench.engine()
            for at in range(0, n_batches, 5):
                run = range(at, at + 5)
                bench.deliver(*(with_ids(f"p{i}", f"i{i}", f"j{i}") for i in run))
                bench.deliver(*(labels(f"l{i}", f"i{i}", f"j{i}") for i in run))
                # Otherwise a slow machine may fill all of them in one commit.
                bench.merged(f"l{run[-1]}")
            statuses = {
                bench.merged(f"{kind}{i}").status for kind in "pl" for i in range(n_batches)
            }
            assert statuses == {"merged"} and bench.dead_letters() == [] and len(timers) == n_stops
            found = counts(bench)
            assert (found["n_predictions"], found["n_labelled"]) == (2 * n_batches, 2 * n_batches)
    finally:
        for timer in timers:
            timer.join()
        server.stop()


def test_a_stopped_store_decides_nothing(settings, server_binary, tmp_path, monkeypatch):
    pause_storm(
        settings, server_binary, tmp_path / "own", monkeypatch, n_stops=2, stop_s=0.5, n_batches=20
    )


@pytest.mark.slow
def test_a_store_stopped_for_long_and_often_decides_nothing(
    settings, server_binary, tmp_path, monkeypatch
):
    pause_storm(
        settings, server_binary, tmp_path / "own", monkeypatch, n_stops=6, stop_s=4.0, n_batches=300
    )
