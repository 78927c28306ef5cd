"""Old days in files: the same results to the bit, whatever is moved, changed, deleted or killed, and whenever."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.capacity import COLD_DAY_BYTES, VERSION_BYTES
from calibrant import Batch, Pane
from calibrant.core.hashing import hash_names
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PANE, REMOVAL
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_labels, pack_updates
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleKey, stored_rows
from calibrant_server.workers.lifecycle import cold_moves, day_state
from calibrant_server.workers.lifecycle.pane_table import stored_panes
from calibrant_server.workers.lifecycle.transfer import export_lines
from calibrant_server.workers.queries.ask import UNAVAILABLE, QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.queries.window_state import PanesDamaged
from calibrant_server.workers.store import cold_files
from calibrant_server.workers.store.cold_days import ColdDay
from calibrant_server.workers.store.cold_files import MARKER
from calibrant_server.workers.store.commit import FencingToken, StaleTokenError
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import EVENT, SEALED
from calibrant_server.workers.store.day_file import PANE as PANES_OF_FILE
from calibrant_server.workers.store.file_store import Directory, FilesUnavailable
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL
from tests.workers.test_tails import drained, predictions, sent

pytestmark = pytest.mark.one_server

DAY_S = 86_400
FIRST = 1_767_225_600  # 2026-01-01
EVER = Window(0, 1 << 33)
N_DAYS = 2
EVERY = ("", "site:A", sealed_slice(""), sealed_slice("site:A"))
SITE_B = ("site:B", sealed_slice("site:B"))
HORIZON = replace(MODEL, label_horizon_s=3600)
TWIN = replace(HORIZON, model="twin")


@pytest.fixture
def settings(settings, tmp_path):
    """Everything is old at once, and nothing rests."""
    return settings.replace(
        cold_url=str(tmp_path / "days"), cold_after_s=3600, cold_keep_s=0, compact_after_s=3600, housekeeping_s=0.0, sample_bytes=20_000
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _restless(monkeypatch):
    monkeypatch.setattr(cold_moves, "REST_S", 0)


@pytest.fixture
def root(settings) -> Path:
    return Path(settings.cold_url)


def batches(model=HORIZON, n=6):
    """Batches of each half of the days, with ids and units; some rows are labelled. One of the next day, which stays open."""
    found = []
    for half in range(2 * N_DAYS + 1):
        rng = np.random.default_rng(half)
        day, at = divmod(half, 2)
        columns = {
            "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
            "ids": [f"q{half}.{i}" for i in range(n)],
            "units": [f"u{i}" for i in rng.integers(0, 20, n)],
            "labels": [int(c) if i % 3 else None for i, c in enumerate(rng.integers(0, 3, n))],
            "event_times": [f"2026-01-0{1 + day}T{6 * at:02d}:10:00Z"] * n,
            "slices": {"site": ["AB"[half % 2]] * n},
        }
        found.append(predictions(model, f"p{half}", columns))
    return found


_stored: dict[str, list[tuple[bytes, bytes]]] = {}


def filled(bench, *models):
    """A loop with sealed and merged days of each model, and nothing moved yet. They are made once, and restored for other tests."""
    bench.numerics = Numerics()
    loops = []
    for model in models:
        tag = bench.store.keys.of(model).tag.encode()
        for name, dump in _stored.get(model.model, ()):
            bench.client.restore(tag + name, 0, dump, replace=True)
        loop = bench.loop(model=model)
        loop._housekeeping.due_at = float("inf")
        if model.model not in _stored:
            bench.put_model(model)
            bench.deliver(*batches(model))
            drained(bench, loop)
            loop._housekeeping.seal()
            loop._housekeeping.merge_days()
            loop._cache.forget()
            names = [
                name
                for name in bench.client.scan_iter(match=tag + b":*")
                if not name.endswith(b":o")
            ]
            _stored[model.model] = [
                (name.removeprefix(tag), bench.client.dump(name)) for name in names
            ]
        loops.append(loop)
    return loops


@pytest.fixture
def loop(bench):
    return filled(bench, HORIZON)[0]


def move(loop, model=HORIZON):
    """Move whatever is to be moved, and remove what is to be removed."""
    moves = loop._housekeeping._cold
    moves.examine([model])
    moves._sweep_at = 0.0
    if moves.finish_all():
        loop._cache.forget()
    moves._sweep_at = 0.0
    moves.finish_all()


def hot(bench, model=HORIZON):
    """Keys of panes, samples and rows of old days in the store."""
    tag = bench.store.keys.of(model).tag
    return [
        name
        for kind in "syt"
        for name in bench.client.scan_iter(match=f"{tag}:{kind}:{model.key}|*")
        if int(name.rpartition(b"|")[2]) < FIRST + N_DAYS * DAY_S
    ]


def cold_days(bench, model=HORIZON):
    keys = bench.store.keys.of(model)
    found = bench.client.hgetall(keys.cold_days(model.key, model.generation))
    return {int(name): ColdDay.read(text) for name, text in found.items()}


def files(root):
    """Files of days, as relative names."""
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and path.name != MARKER
    )  # fmt: skip


def named(bench, *models):
    """Files that days name."""
    return sorted(
        file.name for model in models or (HORIZON,) for day in cold_days(bench, model).values() for file in day.files
    )  # fmt: skip


def content(bench, model=HORIZON):
    """Everything that queries read of a model, to the bit, with the names of the states, by fresh readers."""
    panes = WindowPanes(Store(bench.settings), Numerics())
    found = {}
    for slice_ in EVERY:
        state = panes.each(model, slice_, EVER, None)
        found[slice_] = [
            (each.start_s, each.length_s, each.pane.pack(), each.pane.parts())
            for each in state.panes
        ]
        merged = panes.merged(model, slice_, EVER, ("counts", "cells"))
        found[slice_, "merged"] = merged.version, merged.spans, merged.merged.parts()
        some = panes.merged(model, slice_, Window(FIRST, FIRST + DAY_S), ("counts", "sample"))
        found[slice_, "sample"] = some.version, some.merged.parts(), some.merged.digest()
    return found


def lines(bench, model=HORIZON):
    """An export, and the table of panes, of the inbox."""

    async def read():
        exported = [
            each async for each in export_lines(bench.inbox.client, bench.inbox.keys, model, True)
        ]
        table = [each async for each in stored_panes(bench.inbox.client, bench.inbox.keys, model)]
        return exported, table

    return bench.run(read())


def test_results_are_the_same_to_the_bit_and_the_store_is_empty(bench, loop, root):
    before, exported = content(bench), lines(bench)
    assert len(hot(bench)) == N_DAYS * (6 + 2)
    move(loop)
    assert hot(bench) == []
    assert sorted(cold_days(bench)) == [FIRST + DAY_S * day for day in range(N_DAYS)]
    assert files(root) == named(bench) and len(named(bench)) == N_DAYS
    assert content(bench) == before
    assert lines(bench) == exported
    # Nothing is left to do.
    token = bench.cursor(HORIZON)["tok"]
    move(loop)
    assert bench.cursor(HORIZON)["tok"] == token


def test_a_file_is_a_table_with_versions(bench, loop, root):
    move(loop)
    keys = bench.store.keys.of_model(HORIZON.key)
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


def steps(model, at):
    """Changes of old days: delayed labels, corrections, posted panes, deletions, new slices, and rows without ids."""
    rng = np.random.default_rng(at)
    columns = {"probabilities": rng.dirichlet(np.ones(3), 4), "labels": rng.integers(0, 3, 4)}
    pane = Pane(model.spec(), sample_bytes=4000)
    pane.fill_batch(Batch.from_columns(columns).batch)
    label = pack_labels(
        [LabelRow(f"q{at}.0", {}, [("r", 1, 1), ("s", 2, 1)]), LabelRow(f"q{at}.3", {2: 1}, [])]
    )
    posted = pack_updates(
        [PackedUpdate(pane.pack(), event_time_us=FIRST * 1_000_000, slices={"site": "A"})]
    )
    later = {
        "probabilities": [[0.2, 0.3, 0.5]],
        "labels": [1],
        "event_times": ["2026-01-02T05:00:00Z"],
        "slices": {"site": ["C"]},
    }
    return [
        sent(model, f"l{at}", LABELS, label, 2),
        sent(model, f"d{at}", REMOVAL, json.dumps({"id": f"q{at}.4"}).encode()),
        sent(model, f"a{at}", PANE, posted),
        predictions(model, f"n{at}", later),
    ]


def test_changes_of_a_cold_day_are_those_of_a_day_that_was_never_moved(bench, root):
    loop, twin = filled(bench, HORIZON, TWIN)
    for at in range(2):
        move(loop)
        for mine, other in zip(steps(HORIZON, at), steps(TWIN, at), strict=True):
            bench.deliver(mine, other)
            drained(bench, loop)
            drained(bench, twin)
            if at == 1:
                move(loop)
        for each in (loop, twin):
            each._housekeeping.merge_days()
            each._cache.forget()
        assert contents_agree(bench)
    move(loop)
    assert hot(bench) == []
    assert contents_agree(bench)


def contents_agree(bench):
    """Whether both models have the same content; versions are random."""

    def plain(model):
        found = {}
        for name, value in content(bench, model).items():
            found[name] = value[-1] if isinstance(name, tuple) else [each[2:] for each in value]
        return found

    mine, other = plain(HORIZON), plain(TWIN)
    return {name for name in mine if mine[name] != other[name]} == set()


def test_one_label_brings_back_what_it_changes_and_renews_no_other_version(bench, loop):
    move(loop)
    before = content(bench)
    payload = pack_labels([LabelRow("q0.0", {1: 1}, [])])
    bench.deliver(sent(HORIZON, "late", LABELS, payload))
    drained(bench, loop)
    back = {item[:2] for item in cold_days(bench)[FIRST].back}
    assert back == {(PANES_OF_FILE, ""), (PANES_OF_FILE, "site:A"), (EVENT, "")}
    assert len(hot(bench)) == len(back)
    after = content(bench)
    for slice_ in EVERY:
        assert (after[slice_] == before[slice_]) == (slice_ not in ("", "site:A")), slice_
        assert (after[slice_, "merged"] == before[slice_, "merged"]) == (
            slice_ not in ("", "site:A")
        )
    old = named(bench)
    move(loop)
    assert hot(bench) == [] and content(bench) == after
    assert len(set(old) & set(named(bench))) == N_DAYS - 1
    assert files(Path(bench.settings.cold_url)) == named(bench)


def test_a_file_that_was_replaced_stays_for_its_readers_and_older_copies_of_the_store(bench, root):
    bench.settings = bench.settings.replace(cold_keep_s=3600)
    loop = filled(bench, HORIZON)[0]
    move(loop)
    old = named(bench)
    bench.deliver(sent(HORIZON, "late", LABELS, pack_labels([LabelRow("q0.0", {1: 1}, [])])))
    drained(bench, loop)
    move(loop)
    assert set(files(root)) == set(old) | set(named(bench)) > set(named(bench))


def ids_in_files(root):
    """Hashes of the ids whose rows files have."""
    found = set()
    for name in files(root):
        for row in pq.read_table(root / name).to_pylist():
            if row["kind"] in (EVENT, SEALED):
                rows = stored_rows({n.encode(): value for n, value in row["fields"]})
                found |= set() if rows is None else set(rows.rows.ids.tolist())
    return found


def test_a_deleted_id_leaves_the_files_at_once(bench, loop, root, monkeypatch):
    monkeypatch.setattr(cold_moves, "REST_S", 1 << 30)
    move(loop)
    [erased] = hash_names(["q0.4"]).tolist()
    assert erased in ids_in_files(root)
    bench.deliver(sent(HORIZON, "d", REMOVAL, json.dumps({"id": "q0.4"}).encode()))
    drained(bench, loop)
    counts = (
        WindowPanes(Store(bench.settings), Numerics()).merged(HORIZON, "", EVER, None).merged.counts
    )
    sealed = (
        WindowPanes(Store(bench.settings), Numerics())
        .merged(HORIZON, sealed_slice(""), EVER, None)
        .merged.counts
    )
    # The cohort is still what it was at its seal, and differs from the live panes by the deletion.
    assert sealed["n_predictions"] - counts["n_predictions"] == 1
    move(loop)
    assert hot(bench) == [] and files(root) == named(bench)
    assert erased not in ids_in_files(root)
    assert not cold_days(bench)[FIRST].erased


@pytest.mark.parametrize("deleted", [True, False])
def test_files_go_with_their_model_and_their_retention(bench, loop, root, monkeypatch, deleted):
    move(loop)
    assert files(root)
    if deleted:
        bench.run(Registry(bench.inbox.client, bench.store.keys).delete(HORIZON))
        drained(bench, loop)
        assert bench.keys_of(HORIZON) == []
    else:
        short = bench.put_model(replace(HORIZON, retention_s=DAY_S))
        loop._housekeeping.drop_old_panes(configs=[short])
        assert cold_days(bench) == {} and hot(bench) == []
    move(loop)
    assert files(root) == []
    assert bench.client.hgetall(loop.keys.spare_files) == {}
    assert sorted(path.name for path in root.iterdir()) == [MARKER]


def killed_at(number, work, log):
    """Do work in a process that is killed before its step `number`, which it notes; tell whether it came to its end before."""
    child = os.fork()
    if child:
        return os.WIFEXITED(os.waitpid(child, 0)[1])
    steps = iter(range(1_000_000))

    def stepwise(owner, name):
        do = getattr(owner, name)

        def wrapped(*args, **kwargs):
            if next(steps) == number:
                with log.open("a") as file:
                    file.write(f"{name}\n")
                os.kill(os.getpid(), signal.SIGKILL)
            return do(*args, **kwargs)

        setattr(owner, name, wrapped)

    try:
        for name in ("write", "read", "remove"):
            stepwise(Directory, name)
        stepwise(Path, "rename")
        stepwise(FencingToken, "send")
        work()
    finally:
        os._exit(0)


def seen(bench):
    """The state of two slices with the sample, and its content."""
    panes = WindowPanes(Store(bench.settings), Numerics())
    found = [
        panes.merged(HORIZON, slice_, EVER, ("counts", "cells", "sample"))
        for slice_ in ("", sealed_slice(""))
    ]
    return [(each.version, each.merged.parts()) for each in found]


def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing(
    bench, loop, root, tmp_path, monkeypatch
):
    """Before each write, rename, read, removal and commit: of a first move, of one after a change, and of the removal of old files."""
    log = tmp_path / "kills"
    marks = loop.keys.marks(HORIZON.key, HORIZON.generation)
    bench.client.hset(marks, "sealed_to", FIRST + DAY_S)  # the second day stays

    def work():
        move(bench.loop(model=HORIZON))

    def killed_everywhere():
        before = seen(bench)
        number = 0
        while not killed_at(number, work, log):
            assert seen(bench) == before, f"killed before step {number}"
            assert set(named(bench)) <= set(files(root))
            number += 1
            assert number < 100
        assert seen(bench) == before and not cold_days(bench)[FIRST].back

    killed_everywhere()
    bench.deliver(sent(HORIZON, "late", LABELS, pack_labels([LabelRow("q0.0", {1: 1}, [])])))
    loop = bench.loop(model=HORIZON)
    loop._housekeeping.due_at = float("inf")
    drained(bench, loop)
    killed_everywhere()
    assert set(files(root)) > set(named(bench))
    # The time of the files that no day names comes.
    spare = bench.client.hkeys(loop.keys.spare_files)
    bench.client.hset(loop.keys.spare_files, mapping=dict.fromkeys(spare, 1))
    killed_everywhere()
    assert files(root) == named(bench) and len(files(root)) == 1
    assert bench.client.hgetall(loop.keys.spare_files) == {}
    kills = Counter(log.read_text().split())
    assert kills.keys() == {"write", "read", "remove", "rename", "send"} and kills["send"] >= 6, (
        kills
    )


def test_a_day_that_changes_on_its_way_stays(bench, loop, root):
    """Between the reading of the day and the commit, a label arrives."""
    write = Directory.write
    arrived, merged = threading.Event(), threading.Event()

    def waiting(self, name, data):
        write(self, name, data)
        if name.endswith(".parquet") and "2026-01-01" in name:
            arrived.set()
            assert merged.wait(60)

    before = content(bench)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Directory, "write", waiting)
        moves = loop._housekeeping._cold
        moves.examine([HORIZON])
        moves.step()
        assert arrived.wait(60)
        bench.deliver(sent(HORIZON, "late", LABELS, pack_labels([LabelRow("q0.0", {1: 1}, [])])))
        drained(bench, loop)
        merged.set()
        for each in moves._moves:
            each.future.result()
        moves._finish()
    assert list(cold_days(bench)) == [FIRST + DAY_S]
    after = content(bench)
    assert after[""][0] != before[""][0] and after[""][1] == before[""][1]
    for name, at in bench.client.hgetall(loop.keys.spare_files).items():
        assert name.decode() in files(root) and int(at) > 0
    loop._cache.forget()
    move(loop)
    assert hot(bench) == [] and content(bench) == after


def test_a_worker_that_was_overtaken_names_no_file(bench, loop, root, monkeypatch):
    """Its file is removed as a spare one by the next worker before it sends its commit."""
    monkeypatch.setattr(cold_moves, "SPARE_S", -1)
    monkeypatch.setattr(cold_moves, "MAX_MOVES", 1)
    before = content(bench)
    moves = loop._housekeeping._cold
    moves.examine([HORIZON])
    moves.step()
    moves._moves[0].future.result()
    sweeping = bench.loop(model=HORIZON)._housekeeping._cold
    sweeping._sweep_at = 0.0
    sweeping.step()
    sweeping._removal[1].result()
    # The file is gone, and its name is still in the store.
    assert files(root) == [] and moves._moves[0].name.encode() in bench.client.hgetall(
        loop.keys.spare_files
    )
    with pytest.raises(StaleTokenError):
        moves.finish_all()
    loop._fencing.reload()
    moves.finish_all()
    assert content(bench) == before and set(named(bench)) <= set(files(root))


def damaged(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["pane", "footer", "short", "missing"])
def test_a_damaged_file_is_named_and_entries_for_it_are_parked(bench, loop, root, how):
    move(loop)
    path = root / named(bench)[0]
    size = path.stat().st_size
    intact = path.read_bytes()
    if how == "pane":
        # The largest column of all rows.
        metadata = pq.ParquetFile(path).metadata
        chunks = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
        chunk = max(chunks, key=lambda each: each.total_compressed_size)
        damaged(path, chunk.data_page_offset + chunk.total_compressed_size // 2)
    elif how == "footer":
        damaged(path, size - 100)
    elif how == "short":
        path.write_bytes(intact[: size // 2])
    else:
        path.unlink()
    cold_files._opened.clear()
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
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(intact)
    cold_files._opened.clear()
    assert WindowPanes(Store(bench.settings), Numerics()).merged(HORIZON, "", EVER, None)


@pytest.fixture
def away(monkeypatch):
    """Switch of the store of files."""
    monkeypatch.setattr(cold_files, "_REST_S", 0.0)
    real, is_away = Directory.read, threading.Event()

    def read(self, *args):
        if is_away.is_set():
            raise OSError("no route to host")
        return real(self, *args)

    monkeypatch.setattr(Directory, "read", read)
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
    monkeypatch.setattr(cold_files, "LASTING_S", 1e9)
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
    assert len(hot(bench)) == n_hot and loop._housekeeping._cold._paused_to > 0
    away.clear()
    loop._housekeeping._cold._paused_to = 0.0
    move(loop)
    assert hot(bench) == []
    monkeypatch.setattr(cold_files, "LASTING_S", -1.0)
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
    cold_files._opened.clear()
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
    loop._housekeeping.seal()
    loop._housekeeping.merge_days()
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


def test_a_model_without_days_of_hours_is_moved_with_its_rows(bench, root):
    """Panes of a day or a week have rows until they are moved; later rows are sums at once."""
    for number, pane_s in enumerate((DAY_S, 7 * DAY_S)):
        model = replace(MODEL, model=f"long{number}", pane_s=pane_s)
        bench.numerics = Numerics()
        bench.put_model(model)
        bench.deliver(*batches(model))
        loop = bench.loop(model=model)
        loop._housekeeping.due_at = float("inf")
        drained(bench, loop)
        assert any(b":t:" in name for name in hot(bench, model))
        panes = WindowPanes(Store(bench.settings), Numerics())
        before = panes.merged(model, "", EVER, None)
        move(loop, model)
        assert hot(bench, model) == []
        after = WindowPanes(Store(bench.settings), Numerics()).merged(model, "", EVER, None)
        assert after.version == before.version
        assert (
            after.merged.counts == before.merged.counts
            and after.merged.digest() == before.merged.digest()
        )
        bench.deliver(
            predictions(
                model,
                "late",
                {"probabilities": [[0.2, 0.3, 0.5]], "event_times": ["2026-01-02T05:00:00Z"]},
            )
        )
        drained(bench, loop)
        assert not any(b":t:" in name for name in hot(bench, model))
        later = WindowPanes(Store(bench.settings), Numerics()).merged(model, "", EVER, None)
        assert later.merged.counts["n_predictions"] == before.merged.counts["n_predictions"] + 1


def test_a_large_day_takes_several_files(bench, loop, root, monkeypatch):
    monkeypatch.setattr(cold_moves, "FILE_BYTES", 30_000)
    monkeypatch.setattr(day_state, "_ITEMS_A_READ", 1)
    before = content(bench)
    move(loop)
    assert hot(bench) == [] and content(bench) == before
    assert all(len(day.files) > 1 for day in cold_days(bench).values())
    bench.deliver(sent(HORIZON, "late", LABELS, pack_labels([LabelRow("q0.0", {1: 1}, [])])))
    drained(bench, loop)
    after = content(bench)
    move(loop)
    assert hot(bench) == [] and content(bench) == after and files(root) == named(bench)


def test_a_day_waits_for_its_age_its_seal_and_its_merge(bench, settings):
    bench.settings = settings.replace(cold_after_s=1 << 30)
    loop = filled(bench, HORIZON)[0]
    move(loop)
    assert cold_days(bench) == {}
    bench.settings = settings
    bench.client.hset(loop.keys.marks(HORIZON.key, HORIZON.generation), "sealed_to", FIRST + DAY_S)
    bench.client.hset(loop.keys.marks(HORIZON.key, HORIZON.generation), "d|site:B", FIRST)
    move(bench.loop(model=HORIZON))
    assert cold_days(bench) == {}
    bench.client.hset(loop.keys.marks(HORIZON.key, HORIZON.generation), "d|site:B", FIRST + DAY_S)
    move(bench.loop(model=HORIZON))
    assert list(cold_days(bench)) == [FIRST]


def test_samples_are_found_by_their_day(bench, loop):
    """A sample of a file is the one that the store had."""
    keys = loop.keys
    key = SampleKey(HORIZON.key, HORIZON.generation, FIRST)
    stored = bench.client.hgetall(key.name(keys))
    assert stored
    move(loop)
    assert loop._cache._samples._read(key).halvings == int(stored[b"h"])
    assert {str(n).encode(): p.data for n, p in loop._cache._samples._read(key).pieces.items()} == {
        name: data for name, data in stored.items() if name.isdigit()
    }


def test_the_store_has_as_little_of_a_cold_day_as_the_capacity_page_states(bench, loop):
    move(loop)
    names = bench.client.memory_usage(loop.keys.cold_days(HORIZON.key, HORIZON.generation))
    assert names / N_DAYS < COLD_DAY_BYTES
    versions = bench.client.memory_usage(loop.keys.versions(HORIZON.key, HORIZON.generation, ""))
    assert versions / (N_DAYS + 2) < VERSION_BYTES  # of its panes, one of today and the last change
