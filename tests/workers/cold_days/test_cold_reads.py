"""Files of old days: their content, and what a query reads of them."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleKey
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store import cold_files
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import EVENT, SEALED
from calibrant_server.workers.store.day_file import PANE as PANES_OF_FILE
from calibrant_server.workers.store.file_store import Directory
from calibrant_server.workers.store.windows import Window
from tests.workers.cold_days.moving import (
    DAY_S,
    EVERY,
    FIRST,
    HORIZON,
    SITE_B,
    cold_days,
    content,
    move,
    named,
)

pytestmark = pytest.mark.one_server


def test_a_file_is_a_table_with_versions(bench, loop, root):
    move(loop)
    keys = bench.store.keys.of(HORIZON)
    table = pq.read_table(root / named(bench)[0])
    rows = {(row["kind"], row["slice"]): row for row in table.to_pylist()}
    assert rows.keys() == {(PANES_OF_FILE, slice_) for slice_ in (*EVERY, *SITE_B)} | {
        (EVENT, ""),
        (SEALED, ""),
    }
    for slice_ in EVERY:
        version = bench.client.hget(keys.versions(HORIZON.key, HORIZON.generation, slice_), FIRST)
        row = rows[PANES_OF_FILE, slice_]
        assert row["version"] == version
        assert (row["to"] - row["from"]).total_seconds() == DAY_S
    pane = content(bench)[""][0][3]
    assert {n.removeprefix("part_"): v for n, v in rows[PANES_OF_FILE, ""].items() if n.startswith("part_") and v} == {
        name: data for name, data in pane.items() if name != "sample"
    }  # fmt: skip


def test_a_query_reads_what_it_needs_and_reads_it_once(bench, loop, root, monkeypatch):
    """Of a file of six slices, one accumulator of one slice is a small part."""
    monkeypatch.setattr("calibrant_server.workers.store.day_file.GROUP_BYTES", 1)
    monkeypatch.setattr("calibrant_server.workers.store.day_file._GAP_BYTES", 0)
    move(loop)
    ranges = []
    read = Directory.read

    def noted(self, name, start=0, end=None):
        found = read(self, name, start, end)
        ranges.append((start, len(found)))
        return found

    monkeypatch.setattr(Directory, "read", noted)
    cold_files._opened.clear()
    panes = WindowPanes(Store(bench.settings), Numerics())
    day = Window(FIRST, FIRST + DAY_S)
    panes.merged(HORIZON, "site:A", day, ("counts",))
    size = (root / named(bench)[0]).stat().st_size
    footer = cold_days(bench)[FIRST].files[0].footer_bytes
    assert len(ranges) == 2 and ranges[0][1] == footer
    assert ranges[1][1] < size / 20
    # Neither the footer nor the column is read again by another reader of this process.
    WindowPanes(Store(bench.settings), Numerics()).merged(HORIZON, "site:A", day, ("counts",))
    assert len(ranges) == 2


def test_the_cache_is_bounded(bench, loop):
    move(loop)
    bench.settings = bench.settings.replace(cold_cache_bytes=20_000)
    content(bench)
    cache = Store(bench.settings).keys.files._cache
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
