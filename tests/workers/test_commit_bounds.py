"""A commit writes a bounded number of retained records: the store serves no other request meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrant_server.workers.store import commit
from tests.workers.driving import MODEL
from tests.workers.test_tails import drained, loop_of_rows, predictions, rows_at


@pytest.fixture
def loop(bench):
    return loop_of_rows(bench)


def send(bench, number, n):
    columns = rows_at(n=n, sites="A" * n, ids=[f"{number}.{i}" for i in range(n)])
    bench.deliver(replace(predictions(MODEL, f"b{number}", columns), n_records=n))


def n_waiting(bench, loop):
    return bench.client.xlen(loop.keys.stream)


def test_entries_beyond_the_bound_wait_for_the_next_commit(bench, loop, monkeypatch):
    monkeypatch.setattr(commit, "COMMIT_RECORDS", 5)
    for number, n in enumerate([2, 2, 2, 9, 1, 1]):
        send(bench, number, n)
    left = []
    while n_waiting(bench, loop):
        loop.step()
        left.append(n_waiting(bench, loop))
    assert left == [3, 2, 0], "an entry above the bound is committed alone"
    assert len(bench.client.keys(loop.keys.record(MODEL.key, MODEL.generation, "*"))) == 6


def test_the_next_read_is_as_small_as_the_commit(bench, loop):
    send(bench, 0, 3)
    drained(bench, loop)
    assert loop._reader.count > 100
    for number in range(1, 3):
        send(bench, number, commit.COMMIT_RECORDS // 4)
    drained(bench, loop)
    assert loop._reader.count == 4
