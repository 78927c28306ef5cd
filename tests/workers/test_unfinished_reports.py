"""What requests leave of a report: for one window, until it is archived, a prediction is deleted, or some minutes are over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibrant_server.workers.store.unfinished_reports import KEPT_S, UnfinishedReport
from calibrant_server.workers.store.watermarks import ERASED
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL

pytestmark = pytest.mark.one_server

WINDOW = Window(0, 3600)
LEFT = UnfinishedReport(WINDOW, 0, {"": "v1", "site:A": "v2"})


def read(bench: Any, window: Window = WINDOW) -> UnfinishedReport:
    found: UnfinishedReport = bench.run(bench.inbox.unfinished_reports.read(MODEL, "r", window))
    return found


def leave(bench: Any, report: UnfinishedReport, continues: bool) -> None:
    bench.run(bench.inbox.unfinished_reports.leave("r", report, continues))


def test_what_is_left_is_read_until_the_report_ends(bench: Any) -> None:
    assert read(bench) == UnfinishedReport(WINDOW)
    leave(bench, LEFT, continues=False)
    assert read(bench) == LEFT
    assert read(bench, Window(0, 7200)) == UnfinishedReport(Window(0, 7200))
    bench.run(bench.inbox.unfinished_reports.end("r"))
    assert read(bench) == UnfinishedReport(WINDOW)


def test_the_time_since_the_first_request_counts(bench: Any) -> None:
    name = bench.store.keys.unfinished_report("r")
    leave(bench, LEFT, continues=False)
    assert KEPT_S - 60 < bench.client.ttl(name) <= KEPT_S
    bench.client.expire(name, 100)
    more = replace(LEFT, versions={**LEFT.versions, "site:B": "v3"})
    leave(bench, more, continues=True)
    assert bench.client.ttl(name) <= 100 and read(bench) == more
    # One that has expired does not come back without a limit of time.
    bench.client.delete(name)
    leave(bench, more, continues=True)
    assert read(bench) == UnfinishedReport(WINDOW)


def test_after_a_deletion_nothing_older_is_read(bench: Any) -> None:
    leave(bench, LEFT, continues=False)
    marks = bench.store.keys.of_model(MODEL.key).marks(MODEL.key, MODEL.generation)
    bench.client.hset(marks, ERASED, 1)
    assert read(bench) == UnfinishedReport(WINDOW, 1)
    leave(bench, replace(LEFT, n_erased=1), continues=False)
    assert read(bench).versions == LEFT.versions
    bench.client.hset(marks, ERASED, 2)
    assert read(bench) == UnfinishedReport(WINDOW, 2)
