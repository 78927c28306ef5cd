"""The stored sample of a model and day: complete or uniform, the same whenever rows become sums, edited by id."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.accumulators.delays import UNKNOWN
from calibrant.accumulators.sample import WINDOW_BYTES
from calibrant.core.hashing import hash_names
from calibrant.core.sampled_rows import below
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import BASELINE, LABELS, PANE, REMOVAL
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_labels, pack_updates
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import CachedSample, SampleKey
from calibrant_server.workers.ingest.sample_reading import SampleSource
from calibrant_server.workers.lifecycle.compaction import TailFolding
from calibrant_server.workers.lifecycle.levels import GONE
from calibrant_server.workers.lifecycle.sealing import Sealing
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.queries.window_state import PanesDamaged
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import counted, row_bytes, sample_of, sampled
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.slice_names import baseline_slice, sealed_slice
from calibrant_server.workers.store.watermarks import day_of
from calibrant_server.workers.store.windows import Window
from tests.calibrant.panes import assert_same
from tests.workers.driving import MODEL, SUMS, Bench
from tests.workers.plain_rows import plain
from tests.workers.test_tails import (
    EVER,
    START,
    drained,
    predictions,
    rows_at,
    sent,
    steps,
    versions,
)

NUMERICS = (SUMS, Numerics())


def opened(bench, numerics=SUMS, model=MODEL):
    bench.numerics = numerics
    bench.put_model(model)
    loop = bench.loop(model=model)
    loop._housekeeping.due_at = float("inf")
    return loop


@pytest.fixture
def loop(bench):
    return opened(bench)


def window(bench, slice_="", model=MODEL, wanted=("counts", "sample")):
    return WindowPanes(bench.store, Numerics()).merged(model, slice_, EVER, wanted).merged


def random_rows(rng, n, hour=0, **more):
    columns = rows_at(hour, n, "AB" * n, ids=[f"r{hour}.{i}" for i in range(n)], **more)
    return columns | {"probabilities": rng.dirichlet(np.ones(3), n).tolist()}


@pytest.mark.one_server
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_sample_does_not_depend_on_when_rows_become_sums(bench, seed):
    """Units over batches, delayed labels, corrections, deletions, slices, two hours: the samples are equal to the bit."""
    other = replace(MODEL, model="sums")
    loops = [
        opened(bench, numerics, model)
        for numerics, model in zip(NUMERICS, (other, MODEL), strict=True)
    ]
    folding = TailFolding(bench.store, loops[1].keys, loops[1]._fencing, Numerics())
    for number, step in enumerate(steps(np.random.default_rng(seed))):
        for model, loop in zip((other, MODEL), loops, strict=True):
            bench.deliver(step(model))
            loop.step()
        if number % 9 == 8:
            folding.fold(MODEL, [START + 3600 * (number % 2)], lambda: None)
            loops[1]._cache.forget()
    for slice_ in ("", "site:A", "site:B"):
        found, expected = window(bench, slice_), window(bench, slice_, other)
        assert found.sample.n == found.counts["n_labelled"] > 0
        assert found["sample"].pack() == expected["sample"].pack()


def test_a_sample_is_complete_with_slices_and_panes(bench, loop):
    rng = np.random.default_rng(1)
    batches = [random_rows(rng, 30, hour) for hour in (0, 1)]
    for number, columns in enumerate(batches):
        bench.deliver(predictions(MODEL, f"b{number}", columns))
    drained(bench, loop)
    for slice_ in ("", "site:A"):
        dated = WindowPanes(bench.store, SUMS).each(MODEL, slice_, EVER, ("counts", "sample")).panes
        for each, columns in zip(dated, batches, strict=True):
            batch = Batch.from_columns(columns).batch
            inside = batch.slices["site"] == "A"
            naive = Pane(MODEL.spec(), sample_bytes=1 << 20)
            naive.fill_batch(batch.take(inside) if slice_ else batch)
            assert each.pane.sample.arrays().keys() == naive.sample.arrays().keys()
            for name, column in naive.sample.arrays().items():
                assert np.array_equal(each.pane.sample.arrays()[name], column), name
    assert not bench.client.hexists(loop.keys.pane(PaneKey(*name_of(), "", START)), "sample")


@pytest.mark.parametrize("every_s", [3600, 7200, 3 * 3600, 86400])
def test_parts_of_a_series_are_the_merges_of_their_panes(bench, loop, every_s):
    """Eight hours, of which some are sums and some are rows: each part is what a window of its length is, samples included."""
    rng = np.random.default_rng(2)
    folding = TailFolding(bench.store, loop.keys, loop._fencing, Numerics())
    for hour in range(8):
        columns = random_rows(rng, 5, hour)
        bench.deliver(predictions(MODEL, f"b{hour}", columns))
        drained(bench, loop)
        if hour % 3 == 0:
            folding.fold(MODEL, [START + 3600 * hour], lambda: None)
            loop._cache.forget()
    for slice_ in ("", "site:A"):
        for wanted in (None, ("counts", "label_bins", "sample")):
            panes = WindowPanes(bench.store, SUMS)
            found = panes.parts(MODEL, slice_, EVER, wanted, every_s, lambda n: None)
            each = panes.each(MODEL, slice_, EVER, wanted)
            assert found.version == each.version
            starts = [start // every_s for start, _ in each.spans]
            assert [part.start_s // every_s for part in found.panes] == sorted(set(starts))
            for part in found.panes:
                ends = Window(part.start_s, part.start_s + part.length_s)
                complete = WindowPanes(bench.store, SUMS).merged(MODEL, slice_, ends, wanted).merged
                assert part.pane.counts == complete.counts
                assert part.pane["sample"].pack() == complete["sample"].pack()
                both = [SUMS.window(MODEL.spec()).merge_all([one]) for one in (part.pane, complete)]
                assert_same(*both)


def name_of(model=MODEL):
    return model.key, model.generation


def test_a_full_sample_is_every_row_below_its_threshold_and_bounded(settings):
    with Bench(settings.replace(sample_bytes=4096)) as bench:
        loop, rng = opened(bench), np.random.default_rng(2)
        columns = [random_rows(rng, 60, hour) for hour in (0, 1, 0, 1)]
        for number, each in enumerate(columns):
            each["ids"] = [f"{number}.{i}" for i in range(60)]
            bench.deliver(predictions(MODEL, f"b{number}", each))
            loop.step()
        batches = [Batch.from_columns(each).batch for each in columns]
        found = window(bench)
        assert 0 < found.sample.halvings < 5
        ids = np.concatenate([batch.prediction_hash for batch in batches])
        expected = np.sort(ids[below(ids, found.sample.halvings)])
        assert np.array_equal(found.sample.rows.ids, expected)
        assert found.sample.rows.n_bytes.sum() <= 4096
        # One halving less would not have fitted.
        assert below(ids, found.sample.halvings - 1).sum() * (3 * 8 + 32 + 4) > 4096
        sites = np.concatenate([batch.slices["site"] for batch in batches])
        inside = below(ids, found.sample.halvings) & (sites == "A")
        assert np.array_equal(window(bench, "site:A").sample.rows.ids, np.sort(ids[inside]))
        key = SampleKey(*name_of(), day_of(START)).name(loop.keys)
        held = bench.client.hgetall(key)
        assert sum(map(len, held.values())) <= 2 * 4096


def test_a_fall_of_the_threshold_renews_every_pane_of_the_day_and_no_other(settings):
    """A result about another slice or hour of the day changes, too: it must not have the version that it had."""
    with Bench(settings.replace(sample_bytes=4096)) as bench:
        loop, rng = opened(bench), np.random.default_rng(2)
        next_day = random_rows(rng, 5) | {"event_times": ["2026-01-02T00:10:00Z"] * 5}
        bench.deliver(
            predictions(MODEL, "a", random_rows(rng, 20, 0)),
            predictions(MODEL, "n", next_day | {"ids": [f"n{i}" for i in range(5)]}),
        )
        drained(bench, loop)
        before, panes = versions(bench), WindowPanes(bench.store, SUMS)
        first = panes.merged(MODEL, "site:A", EVER, ("sample",))
        more = random_rows(rng, 70, 1) | {"slices": {"site": ["B"] * 70}}
        bench.deliver(predictions(MODEL, "b", more))
        drained(bench, loop)
        after = versions(bench)
        start, tomorrow = str(START).encode(), str(START + 86_400).encode()
        assert before["site:A"][start] != after["site:A"][start]
        assert before[""][start] != after[""][start]
        assert before["site:A"][tomorrow] == after["site:A"][tomorrow]
        second = panes.merged(MODEL, "site:A", EVER, ("sample",))
        assert second.version != first.version
        assert second.merged.sample.n < first.merged.sample.n


def test_rows_that_are_not_sums_count_below_the_threshold_of_their_day(settings):
    with Bench(settings.replace(sample_bytes=4096)) as bench:
        loop, rng = opened(bench), np.random.default_rng(3)
        bench.deliver(predictions(MODEL, "a", random_rows(rng, 80, 0)))
        drained(bench, loop)
        loop._cache._numerics = Numerics()
        bench.deliver(predictions(MODEL, "b", random_rows(rng, 40, 1)))
        drained(bench, loop)
        found = window(bench)
        ids = hash_names([f"r0.{i}" for i in range(80)] + [f"r1.{i}" for i in range(40)])
        assert found.sample.halvings == 1
        assert np.array_equal(found.sample.rows.ids, np.sort(ids[below(ids, 1)]))


def posted(bench, name, pane, slices=None):
    update = PackedUpdate(pane.pack(), event_time_us=START * 1_000_000, slices=slices)
    bench.deliver(sent(MODEL, name, PANE, pack_updates([update])))


def test_the_sample_of_a_posted_pane_is_stored_once_for_all_its_slices(bench, loop):
    rng = np.random.default_rng(4)
    batch = Batch.from_columns(
        {
            "probabilities": rng.dirichlet(np.ones(3), 900),
            "labels": rng.integers(0, 3, 900),
            "ids": [f"p{i}" for i in range(900)],
        }
    ).batch
    pane = Pane(MODEL.spec(), sample_bytes=1 << 20)
    pane.fill_batch(batch)
    posted(bench, "p", pane, {"site": "A", "ward": "3"})
    drained(bench, loop)
    for slice_ in ("", "site:A", "ward:3"):
        found = window(bench, slice_)
        assert found.sample.n == found.counts["n_labelled"] == 900
    default = Pane(MODEL.spec())
    default.fill_batch(Batch.from_columns(random_rows(rng, 900, 1)).batch)
    assert default.sample.halvings > 0
    posted(bench, "q", default)
    drained(bench, loop)
    found = window(bench)
    assert found.sample.halvings == default.sample.halvings
    ids = np.concatenate([batch.prediction_hash, default.sample.rows.ids])
    assert np.array_equal(found.sample.rows.ids, np.sort(ids[below(ids, found.sample.halvings)]))
    assert window(bench, "site:A").sample.n < 900


@pytest.mark.parametrize("numerics", NUMERICS, ids=["sums", "rows"])
def test_a_deleted_id_is_nowhere(bench, numerics):
    """Not in the sample, its tail, that of sealed cohorts or that of a baseline; other rows stay."""
    model = replace(MODEL, label_horizon_s=3600)
    loop = opened(bench, numerics, model)
    rng = np.random.default_rng(5)
    bench.deliver(predictions(model, "a", random_rows(rng, 12, units=["u", "v"] * 6)))
    drained(bench, loop)
    Sealing(bench.client, loop.keys, loop._fencing, numerics).seal(model, START + 90_000)
    asked = {"op": "set", "name": "b", "slice": None, "clock": "event", "stored": ""}
    asked["window"] = [START, START + 86_400]
    bench.deliver(sent(model, "base", BASELINE, json.dumps(asked).encode()))
    drained(bench, loop)
    bench.deliver(sent(model, "d", REMOVAL, json.dumps({"ids": ["r0.4"]}).encode()))
    drained(bench, loop)
    gone = int(hash_names(["r0.4"])[0])
    clocks = ("", "site:A", sealed_slice(""), baseline_slice("b"))
    for slice_, n in zip(clocks, (11, 5, 11, 11), strict=True):
        found = window(bench, slice_, model).sample
        assert found.n == n, slice_
        assert gone not in found.rows.ids.tolist()
    for name in bench.keys_of(model):
        kind = name.decode().split("}:")[1].partition(":")[0]
        if kind in ("y", "t"):
            for field, data in bench.client.hgetall(name).items():
                if field.isdigit():
                    assert gone not in Rows.unpack(data).hashes.tolist(), (name, field)


def test_a_sealed_sample_does_not_change(bench):
    model = replace(MODEL, label_horizon_s=3600)
    loop = opened(bench, Numerics(), model)
    bench.deliver(predictions(model, "a", random_rows(np.random.default_rng(6), 6)))
    drained(bench, loop)
    sealing = Sealing(bench.client, loop.keys, loop._fencing, Numerics())
    assert sealing.seal(model, START + 90_000) == sealing.seal(model, START + 90_000) + 1
    before = window(bench, sealed_slice("site:B"), model)
    assert before.sample.n == before.counts["n_labelled"] == 3
    rows = [LabelRow(f"r0.{i}", {}, [("late", 0, 1)]) for i in range(6)]
    bench.deliver(sent(model, "l", LABELS, pack_labels(rows), 6))
    drained(bench, loop)
    after = window(bench, sealed_slice("site:B"), model)
    assert after["sample"].pack() == before["sample"].pack()
    assert window(bench, "", model).sample.n_ratings == 12


def test_samples_go_with_their_panes_and_their_model(bench, loop):
    model = replace(MODEL, retention_s=86_400)
    bench.put_model(model)
    bench.deliver(predictions(model, "a", random_rows(np.random.default_rng(7), 6)))
    drained(bench, loop)
    names = {SampleKey(*name_of(), day_of(START)).name(loop.keys), loop.keys.samples(*name_of())}
    assert bench.client.exists(*names) == 2
    assert loop._housekeeping.apply(GONE)
    assert not bench.client.exists(*names)


def test_a_lost_reply_of_a_fold_counts_a_row_once(bench, loop):
    send, lost = loop._fencing.send, []

    def losing(*args, **kwargs):
        send(*args, **kwargs)
        if not lost:
            lost.append(1)
            raise ConnectionError("the reply is lost")

    loop._fencing.send = losing
    bench.deliver(predictions(MODEL, "a", random_rows(np.random.default_rng(8), 6)))
    loop._step_or_reload()
    loop._step_or_reload()
    assert lost and window(bench).sample.rows.counts.tolist() == [1] * 6


def test_a_fold_between_two_transactions_of_a_read_moves_no_row_twice_or_never(bench):
    """A day of minutes has more tails than one transaction reads."""
    model = replace(MODEL, pane_s=60)
    loop = opened(bench, Numerics(), model)
    rng = np.random.default_rng(9)
    columns = random_rows(rng, 40)
    columns["event_times"] = [f"2026-01-01T00:{i:02d}:10Z" for i in range(40)]
    bench.deliver(predictions(model, "a", columns))
    drained(bench, loop)
    starts = [START + 60 * i for i in range(40)]
    steps = SampleSource(loop.keys, Numerics(), model, "").steps(START, dict.fromkeys(starts))
    folding = TailFolding(bench.store, loop.keys, loop._fencing, Numerics())
    n_reads, reads = 0, next(steps)
    try:
        while True:
            found = reads.run(bench.client)
            if n_reads in (0, 4):
                folding.fold(model, [starts[n_reads], starts[-1 - n_reads]], lambda: None)
            n_reads += 1
            reads = steps.send(found)
    except StopIteration as end:
        rows, halvings = end.value
    assert n_reads > 3 and halvings == 0
    assert len(rows) == 40 and rows.fixed["count"].tolist() == [1] * 40


def test_a_damaged_sample_gives_no_result_and_loses_no_row(bench, loop):
    bench.deliver(predictions(MODEL, "a", random_rows(np.random.default_rng(10), 6)))
    drained(bench, loop)
    name = SampleKey(*name_of(), day_of(START)).name(loop.keys)
    bench.client.hset(name, "0", b"damaged")
    with pytest.raises(PanesDamaged):
        window(bench)
    assert window(bench, wanted=("counts",)).counts["n_labelled"] == 6
    loop._cache.forget()
    bench.deliver(predictions(MODEL, "b", rows_at(n=1)))
    drained(bench, loop)
    # Its rows stay rows: nothing is lost, and what does not need the sample is served.
    assert window(bench, wanted=("counts",)).counts["n_labelled"] == 7
    assert bench.client.hget(name, "0") == b"damaged"


def test_without_a_sample_size_none_is_stored(settings):
    with Bench(settings.replace(sample_bytes=0)) as bench:
        loop = opened(bench)
        bench.deliver(predictions(MODEL, "a", rows_at()))
        drained(bench, loop)
        assert not any(b":y:" in name or b":yl:" in name for name in bench.keys_of())
        assert window(bench).sample.n == 0


def signed(batch, sign):
    return Rows.of_batch(batch, 0).with_columns(count=sign)


def test_pieces_are_few_and_hold_what_was_added(bench):
    """Additions and removals in any grouping leave the same net rows; the pieces stay few."""
    rng = np.random.default_rng(11)
    sample, left = CachedSample(1 << 20), {}
    for i in range(200):
        n = int(rng.integers(1, 6))
        columns = random_rows(rng, n) | {"ids": [f"{i}.{j}" for j in range(n)]}
        batch = Batch.from_columns(columns).batch
        sample.add(sampled(signed(batch, 1), START))
        left[i] = batch
        if i % 3 == 2:
            gone = int(rng.choice(list(left)))
            sample.add(sampled(signed(left.pop(gone), -1), START))
    rows = counted(sample.all_rows())
    assert np.array_equal(
        rows.hashes, np.sort(np.concatenate([each.prediction_hash for each in left.values()]))
    )
    assert (rows.fixed["count"] == 1).all() and len(sample.data) <= 10
    complete = sample_of(rows, MODEL.spec(), 0, WINDOW_BYTES)
    assert complete.n == sum(batch.n for batch in left.values())


def test_rows_restore_every_bit(bench):
    """float32 and float64 scores, logits, weights, several slices and panes."""
    rng = np.random.default_rng(12)
    sent_as = rng.dirichlet(np.ones(3), 9).astype(np.float32).astype(float)
    columns = random_rows(rng, 18) | {
        "probabilities": np.concatenate([rng.dirichlet(np.ones(3), 9), sent_as]).tolist(),
        "weights": rng.uniform(0.5, 2, 18).tolist(),
        "units": ["u", "v"] * 9,
    }
    tail = Rows.of_batch(Batch.from_columns(columns).batch, 0)
    logits = Rows.of_batch(
        Batch.from_columns({"logits": rng.normal(size=(4, 3)), "labels": [0] * 4}).batch, 0
    )
    rows = counted(Rows.together([sampled(tail, START), sampled(logits, START + 3600)]))
    again = Rows.unpack(rows.pack())
    assert plain(again) == plain(rows) and len(rows) == 22
    assert np.array_equal(row_bytes(again), row_bytes(rows))
    assert set((row_bytes(rows) - 32 - 4).tolist()) == {12, 24}


@pytest.mark.parametrize("halvings", [0, 1, 3])
def test_rows_of_a_sample_are_those_with_a_label_below_the_threshold(halvings):
    """Without their batch, delay, case and source: equal predictions of a pane are one row."""
    rng = np.random.default_rng(halvings)
    columns = random_rows(rng, 60) | {"units": [f"u{i % 7}" for i in range(60)]}
    columns["labels"] = [None if i % 3 == 0 else each for i, each in enumerate(columns["labels"])]
    rows = Rows.of_batch(Batch.from_columns(columns).batch, 5).with_columns(delay=7)
    wanted = [
        each._replace(part=0, delay=UNKNOWN, source="row", start_s=START)
        for each in plain(rows)
        if each.ratings and each.hash <= (1 << (64 - halvings)) - 1
    ]
    assert 0 < len(wanted) < 60
    assert plain(sampled(rows, START, halvings)) == wanted
