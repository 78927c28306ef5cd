"""Merges that queries leave in the store are used by later ones, and only while their panes have not changed."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant_server.workers.queries import window_panes
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.queries.window_state import WindowUnfinished, parts_of
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.merge_index import (
    drop_merges,
    drop_merges_of,
    drop_stale_merges,
)
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL, delivery

pytestmark = pytest.mark.one_server

HOUR_S, HOUR_US = 3600, 3_600_000_000
EVER = Window(0, 1 << 32)
WANTED = ("cells", "sums")


def fill(bench, batch_id, hours, number=1):
    times = np.asarray(hours) * HOUR_US
    bench.deliver(delivery(batch_id, [number] * len(hours), event_times=times))
    bench.merged(batch_id)


class Reader:
    """A query worker that has just started, with the number of panes that it reads."""

    def __init__(self, bench):
        self.panes = WindowPanes(Store(bench.settings), bench.numerics)
        self.n_read = 0
        decode = self.panes._reader.decode

        def counting(*given):
            self.n_read += 1
            return decode(*given)

        self.panes._reader.decode = counting

    def total(self, window=EVER):
        return self.panes.merged(MODEL, "", window, WANTED).merged.total


@pytest.fixture
def started(bench):
    bench.put_model()
    bench.engine()
    return bench


@pytest.fixture
def filled(started):
    fill(started, "many", list(range(100)))
    assert Reader(started).total() == 100
    return started


def test_a_new_worker_reads_a_handful_of_parts(filled):
    reader = Reader(filled)
    assert (reader.total(), reader.n_read) == (100, 1)
    assert len(parts_of({hour * HOUR_S: b"v" for hour in range(100)})) <= 5


def test_a_delayed_change_is_never_missed(filled):
    fill(filled, "late", [7, 30])
    reader = Reader(filled)
    assert (reader.total(), reader.n_read) == (102, 1 + 24 + 24)
    again = Reader(filled)
    assert (again.total(), again.n_read) == (102, 1)


def test_a_window_that_begins_within_a_day_has_merges_of_its_own(filled):
    window = Window(10 * HOUR_S, 1 << 32)
    assert Reader(filled).total(window) == Reader(filled).total(window) == 90
    reader = Reader(filled)
    assert (reader.total(window), reader.n_read) == (90, 1)
    complete = Reader(filled)
    assert (complete.total(), complete.n_read) == (100, 1)


def test_a_late_writer_cannot_make_a_result_wrong(filled):
    """The merge of a former state replaces a newer one in the store: it is not used."""
    keys = filled.store.keys.of_model(MODEL.key)
    names = filled.client.keys(f"{keys.tag}:g:*")
    former = {name: filled.client.hgetall(name) for name in names}
    fill(filled, "late", [7])
    assert Reader(filled).total() == 101
    for name, fields in former.items():
        filled.client.hset(name, mapping=fields)
    assert Reader(filled).total() == 101


def test_a_damaged_merge_is_made_again(filled):
    keys = filled.store.keys.of_model(MODEL.key)
    for name in filled.client.keys(f"{keys.tag}:g:*"):
        value = filled.client.hget(name, "sums")
        filled.client.hset(name, "sums", value[:16] + b"damaged")
    assert Reader(filled).total() == 100


def test_bytes_are_bounded_and_counted(filled):
    keys = filled.store.keys.of_model(MODEL.key)
    held = {name.decode(): int(n) for name, n in filled.client.hgetall(keys.merge_bytes).items()}
    total = held.pop("")
    assert (
        total
        == sum(held.values())
        == sum(
            len(value)
            for name in filled.client.keys(f"{keys.tag}:g:*")
            for value in filled.client.hvals(name)
        )
    )
    assert {each.decode() for each in filled.client.zrange(keys.merge_times, 0, -1)} == held.keys()
    some = sorted(held)[:2]
    left = drop_merges(filled.store.node(0), keys, some)
    assert left == total - sum(held[name] for name in some)
    assert not any(filled.client.exists(keys.merge(name)) for name in some)


def test_without_room_nothing_is_stored(started):
    started.settings = started.settings.replace(stored_merges_bytes=8)
    fill(started, "many", list(range(100)))
    assert Reader(started).total() == 100
    keys = started.store.keys.of_model(MODEL.key)
    assert not started.client.keys(f"{keys.tag}:g:*")


@pytest.fixture
def few(monkeypatch):
    """Let a query read and merge 48 panes, where the next one can continue."""
    monkeypatch.setattr(window_panes, "MAX_KEPT", 48)


@pytest.mark.usefixtures("few")
def test_a_query_merges_at_most_so_many_panes_and_the_next_continues(started):
    fill(started, "many", list(range(150)))
    n_read = []
    for _ in range(10):
        reader = Reader(started)
        try:
            assert reader.total() == 150
        except WindowUnfinished:
            n_read.append(reader.n_read)
            continue
        break
    assert n_read and all(24 < each <= 64 for each in n_read)
    assert reader.n_read + sum(n_read) < 150 + 48 * len(n_read)
    again = Reader(started)
    assert (again.total(), again.n_read) == (150, 1)


@pytest.mark.usefixtures("few")
def test_where_no_merge_can_be_stored_a_query_reads_all_panes(started):
    """Otherwise no query would ever have a result."""
    started.settings = started.settings.replace(stored_merges_bytes=8)
    fill(started, "many", list(range(150)))
    reader = Reader(started)
    assert (reader.total(), reader.n_read) == (150, 150)


@pytest.mark.usefixtures("few")
def test_where_merges_displace_each_other_a_query_reads_all_panes(started):
    fill(started, "many", list(range(150)))
    started.settings = started.settings.replace(stored_merges_bytes=64)
    reader = Reader(started)
    assert (reader.total(), reader.n_read) == (150, 150)


def test_a_result_has_the_number_of_panes_that_need_not_be_read_again(started):
    fill(started, "many", list(range(100)))
    first, second = (Reader(started).panes.merged(MODEL, "", EVER, WANTED).n_kept for _ in range(2))
    assert 96 <= first <= 100 and second == 0


def merges(bench):
    """Bytes of the merges of the model's partition, from the oldest."""
    keys = bench.store.keys.of_model(MODEL.key)
    members = bench.client.zrange(keys.merge_times, 0, -1)
    return [int(bench.client.hget(keys.merge_bytes, member)) for member in members]


def test_only_the_oldest_are_dropped_and_a_partition_may_have_what_others_leave(started):
    """One of two partitions has all merges of the store: it keeps more than half of the bound."""
    fill(started, "many", list(range(200)))
    Reader(started).total()
    sizes = merges(started)
    assert len(sizes) > 3
    other = Window(10 * HOUR_S, 1 << 32)
    started.settings = started.settings.replace(stored_merges_bytes=sum(sizes))
    assert Reader(started).total(other) == 190
    left = merges(started)
    assert sum(left) <= sum(sizes) < sum(left) + max(sizes)
    reader = Reader(started)
    assert reader.total(other) == 190 and reader.n_read <= 2


def test_housekeeping_drops_what_has_changed(filled):
    keys, node = filled.store.keys.of_model(MODEL.key), filled.store.node(0)
    held = {each.decode() for each in filled.client.zrange(keys.merge_times, 0, -1)}
    assert drop_stale_merges(node, keys) == 0
    fill(filled, "late", [7])
    assert drop_stale_merges(node, keys) == 2
    left = {each.decode() for each in filled.client.zrange(keys.merge_times, 0, -1)}
    assert len(held - left) == 2 and left < held
    drop_merges_of(node, keys, "default/another", MODEL.generation)
    assert filled.client.zcard(keys.merge_times) == len(left)
    drop_merges_of(node, keys, MODEL.key, MODEL.generation)
    assert not filled.client.keys(f"{keys.tag}:g*")[2:]
    assert filled.client.hgetall(keys.merge_bytes) == {b"": b"0"}


def test_merges_of_few_panes_of_a_slice_are_not_stored(started):
    """They take as long to write as their panes to read; those of all rows serve the queries of a report."""
    site = {"slices": {"site": np.array(["A"] * 40, object)}}
    times = np.arange(40) * HOUR_US
    started.deliver(delivery("sites", [1] * 40, event_times=times, **site))
    started.merged("sites")
    for slice_, hours, is_stored in (("", 20, True), ("site:A", 20, False), ("site:A", 40, True)):
        panes = WindowPanes(Store(started.settings), started.numerics)
        written = []
        store = panes._merges._stored.write

        def noting(*given, write=store, noted=written):
            stored = write(*given)
            noted.append(len(given[4].panes) if stored else 0)
            return stored

        panes._merges._stored.write = noting
        window = Window(0, hours * HOUR_S)
        assert panes.merged(MODEL, slice_, window, WANTED).merged.total == hours
        assert any(written) == is_stored, slice_
        assert not slice_ or all(not n or n >= 24 for n in written)
