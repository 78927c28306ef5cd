"""Cached state: real bytes, one bound for the partitions of a process, and where its default comes from."""

from __future__ import annotations

import threading
import tracemalloc
from hashlib import blake2b

import numpy as np
import pytest

from calibrant import Batch
from calibrant_server.workers.ingest.cached_pane import CachedPane
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.state_cache import StateCache, TailKey
from calibrant_server.workers.memory import memory_limit_bytes
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from tests.workers.driving import SUMS, FreeLeases


class Value:
    """A value of a number of bytes."""

    def __init__(self, n_bytes=10):
        self.memory_bytes = n_bytes


def put(cache, partition, *keys, n_bytes=10):
    cache.put(partition, {key: Value(n_bytes) for key in keys})


def test_what_was_used_longest_ago_in_any_partition_is_dropped():
    cache = StateCache(40)
    put(cache, 0, 1, 2)
    put(cache, 1, 3, 4)
    put(cache, 0, 1)
    put(cache, 1, 5)
    assert (cache.keys(0), cache.keys(1)) == ([1], [3, 4, 5])
    put(cache, 1, 6)
    assert (cache.keys(0), cache.keys(1)) == ([1], [4, 5, 6])
    assert cache.total_bytes == 40


def test_a_value_in_use_is_neither_counted_nor_dropped():
    cache = StateCache(20)
    put(cache, 0, 1, 2)
    taken = cache.take(0, 1)
    assert cache.take(0, 1) is None and cache.total_bytes == 10
    put(cache, 1, 3, 4, 5)
    assert cache.keys(0) == [] and cache.keys(1) == [4, 5]
    cache.put(0, {1: taken})
    assert cache.get(0, 1) is taken and cache.keys(1) == [5]


def test_a_value_that_grew_is_counted_at_its_new_size():
    cache = StateCache(100)
    put(cache, 0, 1)
    put(cache, 0, 1, n_bytes=70)
    assert cache.total_bytes == 70
    put(cache, 1, 1, n_bytes=20)
    cache.forget(0)
    assert cache.total_bytes == 20 and cache.keys(0) == []
    put(cache, 1, 2, n_bytes=101)
    assert cache.total_bytes == 0


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


def loops_of(bench, cache, numerics=SUMS):
    loops = []
    for partition in range(bench.settings.partitions):
        loop = PartitionLoop(
            bench.store, partition, numerics, FreeLeases(), threading.Event(), cache
        )
        loop._fencing.reload()
        loop._counted = True
        loops.append(loop)
    return loops


def send(bench, model, number, n=1):
    bench.put_model(model)
    bench.deliver(batch_of(model, number, n))


def values_of(cache):
    """Every value of the two partitions of a bench."""
    return [cache.get(number, key) for number in range(2) for key in cache.keys(number)]


def test_the_bound_of_real_bytes_holds_over_models_and_partitions(bench):
    """Twelve new models; a bound in packed bytes would keep all their panes."""
    cache = StateCache(6 << 20)
    loops = loops_of(bench, cache)
    rounds = [models_of(bench.store, partition, 6) for partition in range(2)]
    for number in range(6):
        for partition, loop in enumerate(loops):
            send(bench, rounds[partition][number], number, n=400)
            loop.step()
            values = values_of(cache)
            real = sum(each.memory_bytes for each in values)
            assert real == cache.total_bytes <= cache.limit_bytes
            panes = [each for each in values if isinstance(each, CachedPane)]
            largest = max(pane.memory_bytes for pane in panes)
            assert largest > 10 * max(sum(map(len, pane.parts.values())) for pane in panes)
    held = {key.model for key in cache.keys(0) if isinstance(key, PaneKey)}
    assert held and {model.key for model in rounds[0]} > held


def test_the_cache_counts_what_the_allocator_does(bench):
    cache = StateCache(1 << 30)
    loop = loops_of(bench, cache)[0]
    models = models_of(bench.store, 0, 5)
    send(bench, models[0], 0, n=50)
    loop.step()
    tracemalloc.start()
    try:
        before, counted = tracemalloc.get_traced_memory()[0], cache.total_bytes
        for number, model in enumerate(models[1:], start=1):
            send(bench, model, number, n=50)
            loop.step()
        real = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert cache.total_bytes - counted == pytest.approx(real, rel=0.1, abs=200_000)


@pytest.mark.parametrize("numerics", [SUMS, Numerics()])
def test_24_cached_panes_are_read_once(bench, monkeypatch, numerics):
    """The default bound holds them on a machine with 1 GB: no commit reads a pane or a tail again."""
    loop = loops_of(bench, StateCache((1 << 30) // 4), numerics)[0]
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


def test_tails_are_counted_and_dropped_like_panes(bench):
    cache = StateCache(10_000)
    loop = loops_of(bench, cache, Numerics())[0]
    models = models_of(bench.store, 0, 12)
    for number, model in enumerate(models):
        send(bench, model, number, n=10)
        loop.step()
        assert cache.total_bytes == sum(each.memory_bytes for each in values_of(cache))
        assert cache.total_bytes <= cache.limit_bytes
    held = cache.keys(0)
    assert 0 < len(held) < len(models) and all(isinstance(key, TailKey) for key in held)


def test_nothing_is_counted_once_a_partition_is_given_up(bench):
    cache = StateCache(1 << 30)
    loop = loops_of(bench, cache)[0]
    send(bench, models_of(bench.store, 0, 1)[0], 1)
    loop.step()
    assert cache.total_bytes > 0
    loop._cache.forget()
    assert cache.total_bytes == 0


def test_all_partitions_of_a_process_share_one_cache(bench):
    loops = bench.engine()._partitions.loops
    assert len(loops) == 2
    assert len({id(loop._cache._shared) for loop in loops}) == 1


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
    assert StateCache.of(settings).limit_bytes == memory_limit_bytes() // 4
    assert StateCache.of(settings.replace(held_panes_bytes=123)).limit_bytes == 123
    monkeypatch.setenv("CALIBRANT_HELD_PANES_BYTES", "0")
    assert StateCache.of(EngineSettings()).limit_bytes == 0
