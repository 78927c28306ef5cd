"""Moves of old days that are killed, overtaken, or met by a change: nothing is lost, and no file is left over."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle import cold_moves
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store import day_file
from calibrant_server.workers.store.commit import FencingToken, StaleTokenError
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.file_store import Directory, FileStore
from calibrant_server.workers.store.slice_names import sealed_slice
from tests.workers.cold_days.moving import (
    DAY_S,
    EVER,
    FIRST,
    HORIZON,
    cold_days,
    content,
    files,
    hot,
    move,
    named,
)
from tests.workers.test_tails import drained, sent

pytestmark = pytest.mark.one_server


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
        day_file._opened.clear()  # threads of the parent, which a fork does not have
        for name in ("put", "get", "delete"):
            stepwise(Directory, name)
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
    """Before each write, read, removal and commit: of a first move, of one after a change, and of the removal of old files."""
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
        assert seen(bench) == before and len(cold_days(bench)[FIRST].files) == 3

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
    assert files(root) == named(bench) and len(files(root)) == 3
    assert bench.client.hgetall(loop.keys.spare_files) == {}
    kills = Counter(log.read_text().split())
    assert kills.keys() == {"put", "get", "delete", "send"} and kills["send"] >= 5, kills


def test_a_worker_that_was_overtaken_names_no_file(bench, loop, root, monkeypatch):
    """Its files are removed as spare ones by the next worker before it sends its commit."""
    monkeypatch.setattr(cold_moves, "SPARE_S", -1)
    before = content(bench)
    at_once, overtaken = FileStore.at_once, []

    def written_late(self, work, several):
        found = at_once(self, work, several)
        if not overtaken:
            overtaken.append(bench.loop(model=HORIZON))
            overtaken[0]._housekeeping._cold.sweep()
        return found

    monkeypatch.setattr(FileStore, "at_once", written_late)
    moves = loop._housekeeping._cold
    with pytest.raises(StaleTokenError):
        moves.move_days(HORIZON)
    assert files(root) == [] and cold_days(bench) == {}
    assert content(bench) == before
    loop._fencing.reload()
    moves.move_days(HORIZON)
    assert content(bench) == before and set(named(bench)) <= set(files(root))
    assert hot(bench) == []


@pytest.mark.timeout(60)
def test_a_folder_that_cannot_be_removed_does_not_hold_up_moves(bench, loop, root):
    """A worker was killed before it marked an empty place: nothing is removed there until a move has marked it."""
    bench.client.hset(loop.keys.spare_files, "a/b", "1")
    before = content(bench)
    move(loop)
    assert hot(bench) == [] and content(bench) == before and files(root) == named(bench)
    assert bench.client.hlen(loop.keys.spare_files) == 0
