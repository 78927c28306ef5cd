"""Cached panes: real bytes, one bound for the partitions of a process, and where its default comes from."""

from __future__ import annotations

import threading
import tracemalloc
from hashlib import blake2b

import numpy as np
import pytest

from calibrant import Batch
from calibrant_server.workers.ingest.cached_pane import CachedPane
from calibrant_server.workers.ingest.entries import PREDICTIONS
from calibrant_server.workers.ingest.inbox import IngestBatch
from calibrant_server.workers.ingest.pane_budget import BUSY_S, PaneBudget
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.memory import memory_limit_bytes
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from tests.workers.driving import SUMS, FreeLeases


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Cache:
    """A cache that only notes what is evicted."""

    def __init__(self):
        self.evicted = []

    def evict(self, key):
        self.evicted.append(key.start_s)


def key(number):
    return PaneKey("m", "g", "", number)


def used(*numbers, n_bytes=10):
    return {key(number): n_bytes for number in numbers}


def commit(budget, cache, *numbers, n_bytes=10):
    budget.begin(cache)
    budget.end(cache, used(*numbers, n_bytes=n_bytes))


@pytest.fixture
def clock():
    return Clock()


def test_the_least_recently_used_pane_of_any_partition_is_evicted(clock):
    budget, a, b = PaneBudget(40, clock), Cache(), Cache()
    commit(budget, a, 1, 2)
    commit(budget, b, 3, 4)
    commit(budget, a, 1)
    commit(budget, b, 5)
    assert (a.evicted, b.evicted) == ([2], [])
    commit(budget, b, 6)
    assert (a.evicted, b.evicted) == ([2], [3])
    assert budget.total_bytes == 40


def test_panes_of_a_run_are_evicted_by_no_user_else(clock):
    budget, a, b = PaneBudget(20, clock), Cache(), Cache()
    commit(budget, a, 1, 2)
    clock.now += 2 * BUSY_S
    budget.begin(a)
    commit(budget, b, 3, 4, 5)
    assert a.evicted == []
    assert b.evicted == [3, 4]
    budget.end(a, used(1))
    assert a.evicted == [2]
    assert budget.total_bytes == 20


def test_a_busy_partition_keeps_one_pane_and_an_idle_one_none(clock):
    budget, a, b = PaneBudget(0, clock), Cache(), Cache()
    commit(budget, a, 1, 2)
    commit(budget, b, 3, 4)
    assert (a.evicted, b.evicted) == ([1], [3])
    clock.now += BUSY_S
    commit(budget, b, 4)
    assert (a.evicted, b.evicted) == ([1, 2], [3])


def test_a_pane_that_grew_is_counted_at_its_new_size(clock):
    budget, a = PaneBudget(100, clock), Cache()
    commit(budget, a, 1)
    commit(budget, a, 1, n_bytes=70)
    assert budget.total_bytes == 70
    budget.drop(a, [key(1)])
    assert budget.total_bytes == 0


def batch_of(model, number, n=1):
    rows = np.random.default_rng(number).dirichlet(np.ones(10), n)
    columns = {"probabilities": rows.tolist(), "labels": [number % 10] * n}
    payload = Batch.from_columns(columns).batch.pack()
    return IngestBatch.of(
        model, f"b{number}", PREDICTIONS, payload, blake2b(payload, digest_size=16).digest(), n
    )


def models_of(store, partition, how_many):
    names = (f"m{number}" for number in range(10_000))
    models = (
        ModelConfig("default", name, "multiclass", 10, generation="g1", revision=1)
        for name in names
    )
    found = (model for model in models if store.keys.partition_of(model.key) == partition)
    return [next(found) for _ in range(how_many)]


def loops_of(bench, budget, numerics=SUMS):
    loops = []
    for partition in range(bench.settings.partitions):
        loop = PartitionLoop(
            bench.store, partition, numerics, FreeLeases(), threading.Event(), budget
        )
        loop._fencing.reload()
        loop._counted = True
        loops.append(loop)
    return loops


def send(bench, model, number, n=1):
    bench.put_model(model)
    bench.deliver(batch_of(model, number, n))


def test_the_bound_of_real_bytes_holds_over_models_and_partitions(bench):
    """Twelve new models; a bound in packed bytes would keep all their panes."""
    budget = PaneBudget(6 << 20)
    loops = loops_of(bench, budget)
    rounds = [models_of(bench.store, partition, 6) for partition in range(2)]
    for number in range(6):
        for partition, loop in enumerate(loops):
            send(bench, rounds[partition][number], number, n=400)
            loop.step()
            assert loop._cache._panes, "a busy partition caches a pane"
            held = [pane for each in loops for pane in each._cache._panes.values()]
            tails = [tail for each in loops for tail in each._cache._tails.values()]
            samples = [each for one in loops for each in one._cache._samples._cached.values()]
            real = sum(each.memory_bytes for each in (*held, *tails, *samples))
            assert real == budget.total_bytes
            largest = max(pane.memory_bytes for pane in held)
            assert real <= max(budget.limit_bytes, 2 * largest)
            assert largest > 10 * max(sum(map(len, pane.parts.values())) for pane in held)
    assert {model.key for model in rounds[0]} > {key.model for key in loops[0]._cache._panes}


def test_the_budget_counts_what_the_allocator_does(bench):
    budget = PaneBudget(1 << 30)
    loop = loops_of(bench, budget)[0]
    models = models_of(bench.store, 0, 5)
    send(bench, models[0], 0, n=50)
    loop.step()
    tracemalloc.start()
    try:
        before, counted = tracemalloc.get_traced_memory()[0], budget.total_bytes
        for number, model in enumerate(models[1:], start=1):
            send(bench, model, number, n=50)
            loop.step()
        real = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert budget.total_bytes - counted == pytest.approx(real, rel=0.1, abs=200_000)


@pytest.mark.parametrize("numerics", [SUMS, Numerics()])
def test_24_cached_panes_are_read_once(bench, monkeypatch, numerics):
    """The default bound holds them on a machine with 1 GB: no commit reads a pane or a tail again."""
    loop = loops_of(bench, PaneBudget((1 << 30) // 4), numerics)[0]
    models = models_of(bench.store, 0, 24)
    read = []
    owner, name = (CachedPane, "read") if numerics is SUMS else (loop._cache, "_read_tail")
    find = getattr(owner, name)
    counted = staticmethod(lambda key, *rest: read.append(key) or find(key, *rest))
    monkeypatch.setattr(owner, name, counted)
    for number in range(3):
        for model in models:
            bench.put_model(model)
            bench.deliver(batch_of(model, number, n=5))
        while bench.client.xlen(loop.keys.stream):
            loop.step()
    assert len(read) == len(set(read)) == 24


def test_tails_are_counted_and_evicted_like_panes(bench):
    budget = PaneBudget(10_000)
    loop = loops_of(bench, budget, Numerics())[0]
    models = models_of(bench.store, 0, 12)
    for number, model in enumerate(models):
        send(bench, model, number, n=10)
        loop.step()
        tails = loop._cache._tails.values()
        assert budget.total_bytes == sum(tail.memory_bytes + tail.unpacked_bytes for tail in tails)
        assert budget.total_bytes <= budget.limit_bytes
    assert 0 < len(loop._cache._tails) < len(models) and not loop._cache._panes


def test_nothing_is_counted_once_a_partition_is_given_up(bench):
    budget = PaneBudget(1 << 30)
    loop = loops_of(bench, budget)[0]
    send(bench, models_of(bench.store, 0, 1)[0], 1)
    loop.step()
    assert budget.total_bytes > 0
    loop._cache.forget()
    assert budget.total_bytes == 0


def test_all_partitions_of_a_process_share_one_budget(bench):
    crew = bench.engine()
    loops = crew._partitions.loops
    budgets = {id(loop._cache._budget) for loop in loops}
    assert len(loops) == 2
    assert len(budgets) == 1


MACHINE = 8 << 30
CASES = {
    "no cgroup files": ({}, "", MACHINE),
    "v2 in a container": ({"memory.max": "536870912"}, "0::/\n", 512 << 20),
    "v2 without a limit": ({"memory.max": "max"}, "0::/\n", MACHINE),
    "v2 throttled": ({"memory.max": "max", "memory.high": "1073741824"}, "0::/\n", 1 << 30),
    "v2 of a service": (
        {"system.slice/c.service/memory.max": "1073741824", "system.slice/memory.max": "max"},
        "0::/system.slice/c.service\n",
        1 << 30,
    ),
    "v2 of a parent": (
        {"a/memory.max": "268435456", "a/b/memory.max": "1073741824", "z/memory.max": "1"},
        "0::/a/b\n",
        256 << 20,
    ),
    "v1 in a container": (
        {"memory/memory.limit_in_bytes": "536870912"},
        "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
        512 << 20,
    ),
    "v1 on the host": ({"memory/a/memory.limit_in_bytes": "134217728"}, "4:memory:/a\n", 128 << 20),
    "v1 without a limit": ({"memory/memory.limit_in_bytes": "9223372036854771712"}, "4:memory:/\n", MACHINE),
    "both": (
        {"memory/memory.limit_in_bytes": "536870912", "unified/memory.max": "max"},
        "4:memory:/\n0::/\n",
        512 << 20,
    ),
    "damaged": ({"memory.max": "?"}, "nonsense\n0::/\n", MACHINE),
}  # fmt: skip


@pytest.mark.parametrize(("files", "own", "expected"), CASES.values(), ids=CASES)
def test_the_memory_limit_is_the_smallest_of_the_cgroups(tmp_path, files, own, expected):
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    (tmp_path / "own").write_text(own)
    (tmp_path / "meminfo").write_text(f"MemTotal:  {MACHINE >> 10} kB\nMemFree: 1 kB\n")
    found = memory_limit_bytes(tmp_path / "cgroup", tmp_path / "own", tmp_path / "meminfo")
    assert found == expected


def test_the_default_bound_is_a_quarter_of_the_memory_limit(monkeypatch):
    settings = EngineSettings()
    assert PaneBudget.of(settings).limit_bytes == memory_limit_bytes() // 4
    assert PaneBudget.of(settings.replace(held_panes_bytes=123)).limit_bytes == 123
    monkeypatch.setenv("CALIBRANT_HELD_PANES_BYTES", "0")
    assert PaneBudget.of(EngineSettings()).limit_bytes == 0
