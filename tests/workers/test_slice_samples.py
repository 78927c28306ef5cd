"""Samples of slices that are parts of those of all rows: the same to the bit, without a read of their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import SampleSource
from calibrant_server.workers.lifecycle.tail_folding import TailFolding
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.watermarks import Watermarks
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL
from tests.workers.test_tails import (
    EVER,
    SLICES,
    START,
    drained,
    loop_of_rows,
    predictions,
    rows_at,
    steps,
    versions,
)

WANTED = ("counts", "sample")
UNKNOWN = "site:C"


@pytest.fixture
def loop(bench):
    return loop_of_rows(bench)


@pytest.fixture
def days_read(monkeypatch):
    """The slices whose rows of a day were read."""
    found: list[str] = []
    day = SampleSource.day

    def counted(self, *args):
        found.append(self.slice)
        return day(self, *args)

    monkeypatch.setattr(SampleSource, "day", counted)
    return found


def sample(panes, slice_, window=EVER):
    return panes.merged(MODEL, slice_, window, WANTED).merged["sample"].pack()


def assert_as_read_alone(bench, panes, window=EVER):
    for slice_ in SLICES:
        alone = sample(WindowPanes(bench.store, Numerics()), slice_, window)
        assert sample(panes, slice_, window) == alone, slice_


def two_days(rng, name, n=40, site=None):
    sites = [site or str(each) for each in rng.choice(["A", "B"], n)]
    times = [f"2026-01-0{1 + i % 2}T0{i % 5}:10:00Z" for i in range(n)]
    return rows_at(0, n, "A" * n, ids=[f"{name}{i}" for i in range(n)]) | {
        "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
        "event_times": times,
        "slices": {"site": sites},
    }


@pytest.mark.parametrize("seed", [3, 4])
def test_a_slice_is_a_part_of_all_rows(bench, loop, days_read, seed):
    """Units over batches, delayed labels, corrections, deletions, rows that became sums: after each, equal to the bit."""
    folding = TailFolding(bench.store, loop.keys, loop._fencing, Numerics())
    for number, step in enumerate(steps(np.random.default_rng(seed))):
        bench.deliver(step(MODEL))
        drained(bench, loop)
        if number % 5 == 4:
            folding.fold(MODEL, [START + 3600 * (number % 2)], lambda: None)
            loop._cache.forget()
        if number % 3 == 2:
            panes = WindowPanes(bench.store, Numerics())
            sample(panes, "")
            days_read.clear()
            parts = [sample(panes, slice_) for slice_ in SLICES]
            assert days_read == []
            alone = [sample(WindowPanes(bench.store, Numerics()), slice_) for slice_ in SLICES]
            assert parts == alone


def test_days_that_changed_are_read(bench, loop, days_read):
    """The same day of another slice included: it changes the sample of all rows, of which the slice is a part."""
    rng = np.random.default_rng(1)
    bench.deliver(predictions(MODEL, "a", two_days(rng, "a")))
    drained(bench, loop)
    panes = WindowPanes(bench.store, Numerics())
    sample(panes, "")
    days_read.clear()
    assert_as_read_alone(bench, panes)
    n_alone = len(days_read)
    one_day = rows_at(1, 2, "BB", ids=["later", "latest"])
    bench.deliver(predictions(MODEL, "b", one_day))
    drained(bench, loop)
    before = versions(bench)
    days_read.clear()
    assert sample(panes, "site:B") == sample(WindowPanes(bench.store, Numerics()), "site:B")
    assert days_read == [
        "site:B",
        "site:B",
        "site:B",
    ]  # one of two days, and both for the second reader
    assert_as_read_alone(bench, panes)
    assert versions(bench) == before and n_alone == 6


def test_all_rows_of_a_shorter_window_do_not_give_a_longer_one(bench, loop):
    rng = np.random.default_rng(2)
    bench.deliver(predictions(MODEL, "a", two_days(rng, "a")))
    drained(bench, loop)
    hours = Window(START + 3600, START + 3 * 3600)
    for first, then in ((hours, EVER), (EVER, hours)):
        panes = WindowPanes(bench.store, Numerics())
        sample(panes, "", first)
        assert_as_read_alone(bench, panes, then)


def test_days_of_other_limits_are_read(bench, loop, days_read):
    """Merged into days are the panes of each slice on its own: then the same start is another time."""
    bench.deliver(predictions(MODEL, "a", two_days(np.random.default_rng(3), "a")))
    drained(bench, loop)
    panes = WindowPanes(bench.store, Numerics())
    marks = Watermarks()
    of_slices = {
        slice_: {
            int(start): version for start, version in found.items() if start.decode().isdecimal()
        }
        for slice_, found in versions(bench).items()
    }
    panes._samples.days(MODEL, "", marks, of_slices[""])
    days_read.clear()
    panes._samples.days(
        MODEL, "site:A", replace(marks, daily_to=START + 86_400), of_slices["site:A"]
    )
    assert days_read == ["site:A", "site:A"]


def test_a_slice_without_rows_and_a_sealed_one_are_no_parts(bench, loop):
    bench.deliver(predictions(MODEL, "a", two_days(np.random.default_rng(4), "a", site="A")))
    drained(bench, loop)
    panes = WindowPanes(bench.store, Numerics())
    sample(panes, "")
    for slice_ in (UNKNOWN, "other:A", sealed_slice("site:A")):
        assert sample(panes, slice_) == sample(WindowPanes(bench.store, Numerics()), slice_)
