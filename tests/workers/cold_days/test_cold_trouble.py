"""Files of old days that are damaged, unreachable, or of another store."""

from __future__ import annotations

import json
import threading

import pytest

from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.levels import DAYS, SEALED
from calibrant_server.workers.queries.ask import UNAVAILABLE, QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.queries.window_state import PanesDamaged
from calibrant_server.workers.store import day_file, file_store
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.file_store import MARKER, Directory, FilesUnavailable
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.windows import Window
from tests.workers.cold_days.moving import (
    DAY_S,
    EVER,
    FIRST,
    HORIZON,
    cold_days,
    files,
    hot,
    move,
    named,
)
from tests.workers.test_tails import drained, predictions, sent

pytestmark = pytest.mark.one_server


def damaged(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["content", "digest", "short", "missing"])
def test_a_damaged_file_is_named_and_entries_for_it_are_parked(bench, loop, root, how):
    move(loop)
    path = root / cold_days(bench)[FIRST].file_of("")
    intact = path.read_bytes()
    if how == "content":
        damaged(path, len(intact) // 2)
    elif how == "digest":
        damaged(path, 3)
    elif how == "short":
        path.write_bytes(intact[:-1])
    else:
        path.unlink()
    day_file._opened.clear()
    panes = WindowPanes(Store(bench.settings), Numerics())
    with pytest.raises(PanesDamaged) as error:
        panes.merged(HORIZON, "", EVER, None)
    [pane] = error.value.panes
    assert (pane["from"], pane["to"]) == ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert "file" in pane["error"]
    assert (
        panes.merged(HORIZON, "", Window(FIRST + DAY_S, FIRST + 2 * DAY_S), None).merged.counts[
            "n_predictions"
        ]
        == 12
    )
    loop = bench.loop(model=HORIZON)
    loop._housekeeping.due_at = float("inf")
    payload = pack_labels([LabelRow("q0.0", {1: 1}, [])])
    other = pack_labels([LabelRow("q3.0", {1: 1}, [])])
    bench.deliver(sent(HORIZON, "late", LABELS, payload), sent(HORIZON, "fine", LABELS, other))
    drained(bench, loop)
    assert bench.merged("fine", HORIZON).status == "merged"
    assert bench.client.xlen(loop.keys.parked) == 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(intact)
    day_file._opened.clear()
    assert WindowPanes(Store(bench.settings), Numerics()).merged(HORIZON, "", EVER, None)


def test_a_lack_of_memory_is_no_damage(bench, loop, monkeypatch):
    """It says nothing about the file."""
    move(loop)
    day_file._opened.clear()
    files, name = Store(bench.settings).keys.files, named(bench)[0]

    def lacks_memory(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Directory, "get", lacks_memory)
        with pytest.raises(MemoryError):
            files.read(name)
    assert files.read(name)


@pytest.fixture
def away(monkeypatch):
    """Switch of the store of files."""
    monkeypatch.setattr(file_store, "_REST_S", 0.0)
    real, is_away = Directory.get, threading.Event()

    def get(self, *args):
        if is_away.is_set():
            raise OSError("no route to host")
        return real(self, *args)

    monkeypatch.setattr(Directory, "get", get)
    return is_away


def counts_query():
    return QueryRequest(
        "digest", "metrics", {}, Side(HORIZON.key, "", (0, EVER.to_s)), "reply", 1.0
    )


def test_files_that_are_away_decide_nothing(bench, loop, root, away, monkeypatch):
    move(loop)
    compute = Compute(Store(bench.settings), Numerics())
    away.set()
    found = compute.reply(counts_query())
    assert found.status == UNAVAILABLE and b"no route to host" in found.body
    # An entry waits as long as it may be a moment, and the entries after it do, too.
    bench.deliver(sent(HORIZON, "late", LABELS, pack_labels([LabelRow("q0.0", {1: 1}, [])])))
    monkeypatch.setattr(file_store, "LASTING_S", 1e9)
    with pytest.raises(FilesUnavailable):
        loop.step()
    loop._step_or_reload()
    assert bench.client.xlen(loop.keys.stream) == 1 and bench.client.xlen(loop.keys.parked) == 0
    away.clear()
    drained(bench, loop)
    assert bench.merged("late", HORIZON).status == "merged"
    assert compute.reply(counts_query()).status == "ok"


def test_files_that_are_away_for_long_park_only_entries_that_need_them(
    bench, loop, root, away, monkeypatch
):
    away.set()
    n_hot = len(hot(bench))
    move(loop)
    # What is old stays in the store meanwhile.
    assert len(hot(bench)) == n_hot and loop.keys.files.place.rest_s > 0
    away.clear()
    loop.keys.files.place._rests_to = 0.0
    move(loop)
    assert hot(bench) == []
    monkeypatch.setattr(file_store, "LASTING_S", -1.0)
    away.set()
    open_day = {"probabilities": [[0.2, 0.3, 0.5]], "event_times": ["2026-01-09T05:00:00Z"]}
    bench.deliver(
        sent(HORIZON, "late", LABELS, pack_labels([LabelRow("q0.0", {1: 1}, [])])),
        predictions(HORIZON, "now", open_day),
    )
    drained(bench, loop)
    assert bench.merged("now", HORIZON).status == "merged"
    assert bench.client.xlen(loop.keys.parked) == 1


def test_a_place_that_is_not_mounted_is_no_lost_file(bench, loop, root, tmp_path):
    move(loop)
    root.rename(tmp_path / "elsewhere")
    root.mkdir()
    day_file._opened.clear()
    with pytest.raises(FilesUnavailable, match="not mounted"):
        WindowPanes(Store(bench.settings), Numerics()).merged(HORIZON, "", EVER, None)
    bench.deliver(
        predictions(
            HORIZON,
            "more",
            {"probabilities": [[0.2, 0.3, 0.5]], "event_times": ["2026-01-05T05:00:00Z"]},
        )
    )
    loop = bench.loop(model=HORIZON)
    drained(bench, loop)
    loop._housekeeping.apply(SEALED)
    loop._housekeeping.apply(DAYS)
    move(loop)
    # Nothing is written into the empty place, and nothing leaves the store.
    assert list(root.iterdir()) == [] and FIRST + 4 * DAY_S not in cold_days(bench)


def test_a_store_does_not_write_among_the_files_of_another(bench, loop, root):
    root.mkdir()
    (root / MARKER).write_text(json.dumps({"store": "of another"}))
    move(loop)
    assert cold_days(bench) == {} and files(root) == []


def test_a_process_without_the_setting_does_not_start(bench, loop):
    move(loop)
    store = Store(bench.settings.replace(cold_url=None))
    with pytest.raises(StoreMismatch, match="CALIBRANT_COLD_URL"):
        store.check_properties()
