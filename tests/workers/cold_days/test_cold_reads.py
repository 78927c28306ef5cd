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
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.windows import Window
from tests.workers.cold_days.moving import (
    DAY_S,
    EVERY,
    FIRST,
    HORIZON,
    SITE_B,
    cold_days,
    content,
    items_of_files,
    move,
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
    first = cold_days(bench)[FIRST]
    found = items_of_files(root, first.names)
    samples = {DayItem(EVENT, "", FIRST), DayItem(SEALED, "", FIRST)}
    panes = {DayItem(PANE, slice_, FIRST): fields for slice_, fields in before.items()}
    assert found.keys() == panes.keys() | samples and all(panes.values())
    assert {item: found[item] for item in panes} == panes


def test_a_query_reads_what_it_needs_and_reads_it_once(bench, loop, root, monkeypatch):
    move(loop)
    names = []
    get = Directory.get
    monkeypatch.setattr(
        Directory, "get", lambda self, name: (names.append(name), get(self, name))[1]
    )
    day_file._opened.clear()
    panes = WindowPanes(Store(bench.settings), Numerics())
    day = Window(FIRST, FIRST + DAY_S)
    panes.merged(HORIZON, "site:A", day, ("counts",))
    assert names == [cold_days(bench)[FIRST].file_of("site:A")]
    # The slice is not read again by another reader of this process.
    WindowPanes(Store(bench.settings), Numerics()).merged(HORIZON, "site:A", day, ("counts",))
    assert len(names) == 1


def test_the_cache_is_bounded(bench, loop):
    move(loop)
    bench.settings = bench.settings.replace(cold_cache_bytes=100_000)
    content(bench)
    cache = Store(bench.settings).keys.files._cache._cache
    assert 0 < cache.currsize <= 100_000


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
