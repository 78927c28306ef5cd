"""Files of old days: their content, and what a query reads of them."""

from __future__ import annotations

import pytest

from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleKey
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store import day_file
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import EVENT, PANE, SEALED, DayItem
from calibrant_server.workers.store.file_store import Directory
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.windows import Window
from tests.workers.cold_days.moving import (
    DAY_S,
    EVERY,
    FIRST,
    HORIZON,
    SITE_B,
    cold_days,
    content,
    items_of_file,
    move,
    named,
)

pytestmark = pytest.mark.one_server


def test_a_file_has_the_hashes_of_the_store(bench, loop, root):
    keys = bench.store.keys.of(HORIZON)
    names = {
        slice_: keys.pane(PaneKey(HORIZON.key, HORIZON.generation, slice_, FIRST))
        for slice_ in (*EVERY, *SITE_B)
    }
    before = {slice_: bench.client.hgetall(name) for slice_, name in names.items()}
    move(loop)
    found = items_of_file(root / named(bench)[0])
    samples = {DayItem(EVENT, "", FIRST), DayItem(SEALED, "", FIRST)}
    panes = {DayItem(PANE, slice_, FIRST): fields for slice_, fields in before.items()}
    assert found.keys() == panes.keys() | samples and all(panes.values())
    assert {item: found[item] for item in panes} == panes


def test_a_query_reads_what_it_needs_and_reads_it_once(bench, loop, root, monkeypatch):
    """Of a file of six slices, the head and one slice."""
    move(loop)
    ranges = []
    get = Directory.get

    def noted(self, name, start=0, end=None):
        found = get(self, name, start, end)
        ranges.append((start, len(found)))
        return found

    monkeypatch.setattr(Directory, "get", noted)
    day_file._opened.clear()
    panes = WindowPanes(Store(bench.settings), Numerics())
    day = Window(FIRST, FIRST + DAY_S)
    panes.merged(HORIZON, "site:A", day, ("counts",))
    size = (root / named(bench)[0]).stat().st_size
    assert len(ranges) == 2 and ranges[0] == (0, cold_days(bench)[FIRST].files[0].head_bytes)
    assert ranges[1][1] < size / 4
    # Neither the head nor the slice is read again by another reader of this process.
    WindowPanes(Store(bench.settings), Numerics()).merged(HORIZON, "site:A", day, ("counts",))
    assert len(ranges) == 2


def test_the_cache_is_bounded(bench, loop):
    move(loop)
    bench.settings = bench.settings.replace(cold_cache_bytes=20_000)
    content(bench)
    cache = Store(bench.settings).keys.files._cache._cache
    assert 0 < cache.currsize <= 20_000


def test_samples_are_found_by_their_day(bench, loop):
    """A sample of a file is the one that the store had."""
    keys = loop.keys
    key = SampleKey(HORIZON.key, HORIZON.generation, FIRST)
    stored = bench.client.hgetall(key.name(keys))
    assert stored
    move(loop)
    assert loop._cache._samples._read(key).halvings == int(stored[b"h"])
    assert {str(n).encode(): data for n, data in loop._cache._samples._read(key).data.items()} == {
        name: data for name, data in stored.items() if name.isdigit()
    }
