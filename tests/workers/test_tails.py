"""Rows that are not sums yet: a pane means its sums and its rows, whenever rows become sums."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest import pane_cache
from calibrant_server.workers.ingest.cached_pane import (
    MAX_TAIL_BYTES,
    CachedTail,
    estimated_pane_bytes,
)
from calibrant_server.workers.ingest.entries import LABELS, PANE, PREDICTIONS, REMOVAL, IngestBatch
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_labels, pack_updates
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.compaction import TailFolding
from calibrant_server.workers.lifecycle.levels import DAYS
from calibrant_server.workers.queries import pane_reader, window_merges
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.segments import pieces
from calibrant_server.workers.segments.pieces import MERGED_PIECES
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.windows import Window
from tests.calibrant.panes import SPECS, assert_same
from tests.workers.driving import MODEL, SUMS, stored_pane
from tests.workers.plain_rows import plain

EVER = Window(0, 1 << 32)
START = 1_767_225_600
SLICES = ("", "site:A", "site:B")
OTHER = replace(MODEL, model="sums")


def sent(model, batch_id, kind, payload, n=1):
    digest = blake2b(payload, digest_size=16).digest()
    return IngestBatch.of(model, batch_id, kind, payload, digest, n)


def predictions(model, batch_id, columns):
    batch = Batch.from_columns(columns).batch
    return sent(model, batch_id, PREDICTIONS, batch.pack(), batch.n)


def steps(rng):
    """Units split over batches, with ids and without, labels that come later, corrections and deletions; as functions of a model."""
    found = []
    for i in range(20):
        n = int(rng.integers(1, 5))
        columns = {
            "units": [f"u{u}" for u in rng.integers(0, 6, n)],
            "event_times": [f"2026-01-01T0{h}:10:00Z" for h in rng.integers(0, 2, n)],
            "slices": {"site": [str(site) for site in rng.choice(["A", "B"], n)]},
        }
        scores = rng.normal(size=(n, 3))
        if i % 3 == 1:
            columns["logits"] = scores.tolist()
        else:
            columns["probabilities"] = (
                np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
            ).tolist()
        if i % 4 == 0:
            columns["weights"] = rng.uniform(0.5, 2, n).tolist()
        if i % 2:
            columns["ids"] = [f"i{i}.{j}" for j in range(n)]
        if i % 3:
            columns["labels"] = rng.integers(0, 3, n).tolist()
        found.append(lambda model, i=i, columns=columns: predictions(model, f"p{i}", columns))
        if i % 2:
            rows = [
                LabelRow(f"i{i}.{j}", {}, [("r", int(rng.integers(0, 3)), v)])
                for j in range(n)
                for v in (1, 2)
            ]
            for k, row in enumerate(rows):
                payload = pack_labels([row])
                found.append(
                    lambda model, name=f"l{i}.{k}", payload=payload: sent(
                        model, name, LABELS, payload
                    )
                )
        if i % 6 == 5:
            payload = json.dumps({"ids": [f"i{i}.0"]}).encode()
            found.append(
                lambda model, name=f"d{i}", payload=payload: sent(model, name, REMOVAL, payload)
            )
    return [found[at] for at in rng.permutation(len(found))]


def versions(bench, model=MODEL):
    keys = bench.store.keys.of(model)
    return {
        slice_: bench.client.hgetall(keys.versions(model.key, model.generation, slice_))
        for slice_ in SLICES
    }


def tail_key(loop, model=MODEL, start=START):
    return loop.keys.tail(PaneKey(model.key, model.generation, "", start))


def drained(bench, loop):
    while bench.client.xlen(loop.keys.stream):
        loop.step()


def loop_of_rows(bench):
    """A loop that keeps rows and never cleans up."""
    bench.numerics = Numerics()
    bench.put_model()
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    return loop


@pytest.fixture
def loop(bench):
    return loop_of_rows(bench)


@pytest.mark.one_server
@pytest.mark.parametrize("together", [8000, 20, 1])
@pytest.mark.parametrize("wanted", [None, ("counts", "cells", "label_bins")])
def test_rows_of_several_panes_fill_a_window_as_pane_by_pane(bench, wanted, together, monkeypatch):
    """Two days of hours; units have rows in several hours, and some rows were taken away by labels and a deletion."""
    for module in (pane_reader, window_merges):
        monkeypatch.setattr(module, "ROWS_TOGETHER", together)
    rng = np.random.default_rng(5)
    both = ((MODEL, Numerics(pane_bytes=lambda spec, n: 1 << 30)), (OTHER, SUMS))
    n = 120
    columns = {
        "units": [f"u{u}" for u in rng.integers(0, 4, n)],
        "event_times": [f"2026-01-0{1 + i % 2}T{i % 24:02}:10:00Z" for i in range(n)],
        "slices": {"site": [str(site) for site in rng.choice(["A", "B"], n)]},
        "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
        "weights": rng.uniform(0.5, 2, n).tolist(),
        "labels": rng.integers(0, 3, n).tolist(),
        "ids": [f"i{i}" for i in range(n)],
    }
    named = pack_labels([LabelRow(f"i{i}", {}, [("r", 1, None)]) for i in range(0, n, 5)])
    for model, own in both:
        bench.put_model(model)
        bench.numerics = own
        loop = bench.loop(model=model)
        loop._housekeeping.due_at = float("inf")
        for some in (slice(0, 50), slice(50, n)):
            part = {name: values[some] for name, values in columns.items() if name != "slices"}
            part["slices"] = {"site": columns["slices"]["site"][some]}
            bench.deliver(predictions(model, f"p{some.start}", part))
        bench.deliver(sent(model, "l", LABELS, named))
        bench.deliver(sent(model, "d", REMOVAL, json.dumps({"ids": ["i7"]}).encode()))
        drained(bench, loop)
    for slice_ in SLICES:
        found, expected = (
            WindowPanes(bench.store, own).merged(model, slice_, EVER, wanted).merged
            for model, own in both
        )
        assert found.counts == expected.counts and found.counts["n_units"] > 40
        assert found.digest() == expected.digest()
        assert_same(found, expected, tolerance=1e-12)


@pytest.mark.one_server
def test_repeated_reads_leave_cached_panes_as_they_are(bench, loop, monkeypatch):
    """Other queries may be reading them."""
    columns = {
        "event_times": [f"2026-01-01T0{i % 5}:10:00Z" for i in range(20)],
        "probabilities": np.random.default_rng(1).dirichlet(np.ones(3), 20).tolist(),
        "labels": [i % 3 for i in range(20)],
    }
    bench.deliver(predictions(MODEL, "p", columns))
    drained(bench, loop)
    panes = WindowPanes(bench.store, bench.numerics)
    every = tuple(Pane(MODEL.spec()).names)
    first = panes.merged(MODEL, "", EVER, every).merged, panes.each(MODEL, "", EVER, every).panes

    def changed(pane):
        raise AssertionError("a pane that is cached was changed")

    monkeypatch.setattr(Pane, "compact", changed)
    monkeypatch.setattr(Pane, "fill_batch", lambda pane, batch: changed(pane))
    again = panes.merged(MODEL, "", EVER, every).merged, panes.each(MODEL, "", EVER, every).panes
    assert again[0] == first[0] and again[0].counts["n_predictions"] == 20
    assert [each.start_s for each in again[1]] == [each.start_s for each in first[1]]


@pytest.mark.one_server
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_pane_does_not_depend_on_when_rows_become_sums(bench, seed):
    """Counts and digests to the bit, sums to 1e-12 of the column's largest; the other model writes sums in every commit."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    limits = [0, 400, 10_000, 1 << 30]
    bench.numerics = Numerics(pane_bytes=lambda spec, n: chance.choice(limits))
    loops = []
    for model, numerics in ((MODEL, bench.numerics), (OTHER, SUMS)):
        bench.put_model(model)
        bench.numerics = numerics
        loops.append(bench.loop(model=model))
        loops[-1]._housekeeping.due_at = float("inf")
    n_tails = set()
    for step in steps(rng):
        for model, loop in zip((MODEL, OTHER), loops, strict=True):
            bench.deliver(step(model))
            loop.step()
            if chance.random() < 0.1:
                loop._cache.forget()
        n_tails.add(bench.client.exists(tail_key(loops[0])))
    assert n_tails == {0, 1} and not bench.client.exists(tail_key(loops[1], OTHER))
    for slice_ in SLICES:
        for start in bench.starts(slice_):
            found, expected = (stored_pane(bench, slice_, start, model) for model in (MODEL, OTHER))
            assert found.counts == expected.counts and found.digest() == expected.digest()
            assert found.units_split == expected.units_split
            assert_same(found, expected, tolerance=1e-12)


def rows_at(hour=0, n=3, sites="AAB", **more):
    return {
        "probabilities": [[0.2, 0.5, 0.3]] * n,
        "labels": [1] * n,
        "event_times": [f"2026-01-01T0{hour}:10:00Z"] * n,
        "slices": {"site": list(sites[:n])},
    } | more


def test_a_small_commit_appends_rows_and_reads_no_pane(bench, loop, monkeypatch):
    def unused(*args, **kwargs):
        raise AssertionError("a pane was read or packed")

    monkeypatch.setattr(Pane, "from_parts", unused)
    monkeypatch.setattr(Pane, "parts", unused)
    for i in range(3):
        bench.deliver(predictions(MODEL, f"b{i}", rows_at()))
        loop.step()
    keys = {name.decode().split("|")[0].rsplit(":", 2)[1] for name in bench.keys_of()}
    assert {"t", "v", "l"} <= keys and "s" not in keys
    assert bench.client.hlen(tail_key(loop)) == 1


def test_a_fold_changes_no_result_version_or_slice(bench, loop):
    for i in range(3):
        bench.deliver(predictions(MODEL, f"b{i}", rows_at(units=["u", "u", "v"])))
    drained(bench, loop)
    panes, state = WindowPanes(bench.store, bench.numerics), versions(bench)
    before = [panes.merged(MODEL, slice_, EVER, None) for slice_ in SLICES]
    folding = TailFolding(bench.store, loop.keys, loop._fencing, bench.numerics)
    assert folding.fold(MODEL, [START], lambda: None) == (1, None)
    assert folding.fold(MODEL, [START], lambda: None) == (0, None)
    assert not bench.client.exists(tail_key(loop)) and versions(bench) == state
    again = WindowPanes(bench.store, bench.numerics)
    for slice_, one in zip(SLICES, before, strict=True):
        other = again.merged(MODEL, slice_, EVER, None)
        assert one.version == other.version
        assert one.merged.parts() == other.merged.parts()


def test_what_is_being_removed_is_not_merged_any_more(bench):
    """A worker stopped between the removal of a slice's pane and that of all rows, with which the rows go."""
    model = bench.put_model(replace(MODEL, retention_s=86_400))
    bench.settings = bench.settings.replace(compact_after_s=3600)
    bench.numerics = Numerics()
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    bench.deliver(predictions(model, "b0", rows_at()))
    loop.step()
    removed = PaneKey(model.key, model.generation, "site:A", START)
    loop._housekeeping._removal._remove([removed])
    assert bench.client.exists(tail_key(loop))
    loop._housekeeping.run()
    assert not bench.client.exists(tail_key(loop), loop.keys.pane(removed))
    assert loop._housekeeping.apply(DAYS, [model]) == 0


def test_a_fold_of_a_commit_writes_every_pane_and_renews_the_versions_of_touched_ones(bench, loop):
    bench.deliver(predictions(MODEL, "b0", rows_at()))
    loop.step()
    before = versions(bench)
    loop._cache._numerics = SUMS
    bench.deliver(predictions(MODEL, "b1", rows_at(n=1, sites="A")))
    loop.step()
    after = versions(bench)
    assert [before[slice_] == after[slice_] for slice_ in SLICES] == [False, False, True]
    assert not bench.client.exists(tail_key(loop))
    assert [stored_pane(bench, slice_, START).counts["n_predictions"] for slice_ in SLICES] == [
        4,
        3,
        1,
    ]


def test_a_tail_becomes_sums_beyond_the_panes_that_it_feeds(bench, loop):
    bench.numerics = Numerics(pane_bytes=lambda spec, n: 1500)
    loop = bench.loop()
    sizes = []
    for i, scores in enumerate(np.random.default_rng(1).dirichlet(np.ones(3), (12, 20))):
        rows = rows_at(n=20, sites="A" * 20, probabilities=scores.tolist())
        bench.deliver(predictions(MODEL, f"b{i}", rows))
        loop.step()
        held = bench.client.hgetall(tail_key(loop))
        sizes.append(sum(map(len, held.values())))
    assert 0 in sizes and max(sizes) <= 2 * 1500  # of all rows and of site A
    assert stored_pane(bench, "", START).counts["n_predictions"] == 240


def test_posted_panes_are_sums_beside_rows(bench, loop):
    posted = Pane(MODEL.spec())
    batch = Batch.from_columns({"probabilities": [[0.1, 0.2, 0.7]], "labels": [2]}).batch
    posted.fill_batch(batch)
    update = PackedUpdate(posted.pack(), event_time_us=START * 1_000_000)
    bench.deliver(
        predictions(MODEL, "b0", rows_at()), sent(MODEL, "p", PANE, pack_updates([update]))
    )
    drained(bench, loop)
    key = PaneKey(MODEL.key, MODEL.generation, "", START)
    assert bench.client.exists(loop.keys.pane(key), loop.keys.tail(key)) == 2
    assert stored_pane(bench, "", START).counts["n_predictions"] == 4


def test_rows_and_their_removal_leave_nothing(bench, loop):
    bench.deliver(predictions(MODEL, "b0", rows_at(n=1, ids=["i"])))
    loop.step()
    bench.deliver(sent(MODEL, "d", REMOVAL, json.dumps({"ids": ["i"]}).encode()))
    loop.step()
    assert not bench.client.exists(tail_key(loop))
    assert stored_pane(bench, "", START).is_empty


def test_labels_for_damaged_rows_are_parked_alone(bench, loop):
    """The entry names no pane; its records do. Other entries of the group are merged."""
    bench.deliver(predictions(MODEL, "b0", rows_at(n=1, ids=["i"])))
    loop.step()
    bench.client.hset(tail_key(loop), "0", b"damaged")
    loop._cache.forget()
    bench.deliver(
        sent(MODEL, "l", LABELS, pack_labels([LabelRow("i", {}, [("r", 2, 1)])])),
        predictions(MODEL, "b1", rows_at(hour=1)),
    )
    drained(bench, loop)
    assert bench.run(bench.inbox.record(MODEL.key, "l")).status == "parked"
    assert bench.merged("b1").status == "merged"
    assert stored_pane(bench, "", START + 3600).counts["n_predictions"] == 3
    assert bench.client.hgetall(tail_key(loop)) == {b"0": b"damaged"}


def test_windows_read_the_rows_of_the_accumulators_they_want(bench, loop):
    bench.deliver(predictions(MODEL, "b0", rows_at()))
    loop.step()
    for wanted in (("counts",), ("scores", "counts", "sample"), ("sample",)):
        [dated] = WindowPanes(bench.store, bench.numerics).each(MODEL, "site:A", EVER, wanted).panes
        found = dated.pane
        assert set(found.names) == set(wanted)
        for name in wanted:
            complete = stored_pane(bench, "site:A", START)
            assert found[name].pack() == complete[name].pack()


def test_small_models_take_little_memory(bench):
    """1,000 models of one row take at most 100 MB."""
    bench.numerics = Numerics()
    models = [replace(MODEL, model=f"m{i}") for i in range(40)]
    loops = {}
    for model in models:
        bench.put_model(model)
        bench.deliver(predictions(model, "b", rows_at(n=1)))
        partition = bench.store.keys.partition_of(model.key)
        loops.setdefault(partition, bench.loop(model=model))
    for loop in loops.values():
        loop._housekeeping.due_at = float("inf")
        drained(bench, loop)
    held = sum(loop._cache._shared.total_bytes for loop in loops.values())
    cached = [key for n, loop in loops.items() for key in loop._cache._shared.keys(n)]
    assert len(cached) == len(models)
    assert held <= len(models) * 100_000


@pytest.mark.parametrize("spec", [SPECS["two"], SPECS["ten"], SPECS["hundred"]], ids=str)
def test_estimated_sizes_are_near_measured_ones(spec):
    rng = np.random.default_rng(1)
    for n in (1, 30, 1000):
        p = rng.dirichlet(np.full(spec.n_classes, 0.3), n)
        batch = Batch.from_columns(
            {"probabilities": p, "labels": rng.integers(0, spec.n_classes, n)}, task=spec.task
        ).batch
        pane = Pane(spec)
        pane.fill_batch(batch)
        assert 0.4 < estimated_pane_bytes(spec, n) / len(pane.pack()) < 2.5


def test_pieces_are_few_and_keep_the_order_of_rows():
    tail, every = CachedTail(Rows), []
    rng = np.random.default_rng(2)
    for i in range(300):
        p = rng.dirichlet(np.ones(10), int(rng.integers(1, 9)))
        rows = Rows.of_batch(Batch.from_columns({"probabilities": p}).batch, tail.next_part)
        every.append(rows)
        tail.append(rows)
        assert tail.next_part == i + 1
    complete = Rows.together(every)
    assert plain(tail.all_rows()) == plain(complete)
    assert tail.n_by_slice({"": 1}) == {"": len(complete) + 1}
    assert len(tail.data) < MERGED_PIECES
    read = CachedTail(Rows, {str(k).encode(): data for k, data in tail.data.items()})
    assert read.all_rows().part.tolist() == complete.part.tolist() and read.next_part == 300


def test_larger_pieces_are_rewritten_when_many_are_alike(monkeypatch):
    """Rows are read again only if a piece is small or there are `MERGED_PIECES` of them, and then they are the same rows."""
    monkeypatch.setattr(pieces, "SMALL_PIECE_BYTES", 0)
    tail, every, packed = CachedTail(Rows), [], []
    rng, pack = np.random.default_rng(3), Rows.pack
    monkeypatch.setattr(Rows, "pack", lambda rows: packed.append(len(rows)) or pack(rows))
    for i in range(2 * MERGED_PIECES):
        scores = rng.dirichlet(np.ones(3), 300).astype(np.float32)
        columns = {"probabilities": scores, "labels": rng.integers(0, 3, 300)}
        every.append(Rows.of_batch(Batch.from_columns(columns).batch, i))
        tail.append(every[-1])
        assert len(tail.data) < MERGED_PIECES + 2
    assert sum(n > 300 for n in packed) == 2
    complete = Rows.together(every)
    stored = {str(name).encode(): data for name, data in tail.data.items()}
    for found in (tail, CachedTail(Rows, stored)):
        assert found.all_rows().pack() == complete.pack()
        assert found.all_rows().hashes.tolist() == complete.hashes.tolist()


def test_the_estimate_counts_rows_that_are_sums(bench, loop):
    """A pane with many rows is larger than one with the rows of the tail alone, so its tail may be, too."""
    rng = np.random.default_rng(1)

    def post(name, n):
        columns = {"probabilities": rng.dirichlet(np.ones(3), n), "labels": rng.integers(0, 3, n)}
        columns["event_times"] = ["2026-01-01T00:10:00Z"] * n
        bench.deliver(predictions(MODEL, name, columns))
        drained(bench, loop)

    post("sums", 30_000)
    assert not bench.client.exists(tail_key(loop))
    n, largest = 0, 0
    while n == 0 or bench.client.exists(tail_key(loop)):
        post(f"b{n}", 1000)
        n += 1
        stored = bench.client.hgetall(tail_key(loop))
        largest = max(largest, sum(map(len, stored.values())))
    assert largest > 0.8 * estimated_pane_bytes(MODEL.spec(), 30_000)


def test_no_tail_exceeds_four_mebibytes():
    assert MAX_TAIL_BYTES == 4 << 20
    assert pane_cache.MAX_TAIL_BYTES is MAX_TAIL_BYTES  # type: ignore[attr-defined]


def test_one_read_of_a_window_takes_a_bounded_number_of_bytes():
    """Rows are up to twenty times as large as one pane of sums; a reader and the store have a run of them in memory."""
    assert pane_reader.PANES_A_RUN * 2 * MAX_TAIL_BYTES <= 128 << 20


def test_a_worker_that_stops_between_fold_and_reply_counts_once(bench, loop):
    """The commit that folds is written, its reply is lost, and the entries are read again."""
    loop._cache._numerics = SUMS
    send, lost = loop._fencing.send, []

    def losing(*args, **kwargs):
        send(*args, **kwargs)
        if not lost:
            lost.append(1)
            raise ConnectionError("the reply is lost")

    loop._fencing.send = losing
    bench.deliver(predictions(MODEL, "b0", rows_at()))
    loop._step_or_reload()
    loop._fencing.send = send
    loop._step_or_reload()
    assert stored_pane(bench, "", START).counts["n_predictions"] == 3
