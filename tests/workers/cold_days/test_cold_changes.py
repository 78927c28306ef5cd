"""Changes and deletions of old days: the same results as of days that were never moved, and no file is left over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.core.hashing import hash_names
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PANE, REMOVAL
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_labels, pack_updates
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import stored_rows
from calibrant_server.workers.lifecycle import cold_moves
from calibrant_server.workers.lifecycle.levels import DAYS, GONE
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import EVENT, SEALED
from calibrant_server.workers.store.file_store import MARKER
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.slice_names import sealed_slice
from tests.workers.cold_days.moving import (
    DAY_S,
    EVER,
    EVERY,
    FIRST,
    HORIZON,
    N_DAYS,
    TWIN,
    cold_days,
    content,
    files,
    filled,
    hot,
    items_of_files,
    move,
    named,
)
from tests.workers.test_tails import drained, predictions, sent

pytestmark = pytest.mark.one_server


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
        sent(model, f"d{at}", REMOVAL, json.dumps({"ids": [f"q{at}.4"]}).encode()),
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
            each._housekeeping.apply(DAYS)
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
    assert sorted(cold_days(bench)[FIRST].files) == ["site:B"]
    # Of each slice that it changes, the live pane and the sealed one, and both samples.
    assert len(hot(bench)) == 2 * 2 + 2
    after = content(bench)
    for slice_ in EVERY:
        assert (after[slice_] == before[slice_]) == (slice_ not in ("", "site:A")), slice_
        assert (after[slice_, "merged"] == before[slice_, "merged"]) == (
            slice_ not in ("", "site:A")
        )
    old = named(bench)
    move(loop)
    assert hot(bench) == [] and content(bench) == after
    assert len(old) == 3 * N_DAYS - 2 and set(old) < set(named(bench))
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
    for item, fields in items_of_files(root, files(root)).items():
        if item.kind in (EVENT, SEALED):
            rows = stored_rows(fields)
            found |= set() if rows is None else set(rows.hashes.tolist())
    return found


def test_a_deleted_id_leaves_the_files_at_once(bench, loop, root, monkeypatch):
    monkeypatch.setattr(cold_moves, "REST_S", 1 << 30)
    move(loop)
    [erased] = hash_names(["q0.4"]).tolist()
    assert erased in ids_in_files(root)
    bench.deliver(sent(HORIZON, "d", REMOVAL, json.dumps({"ids": ["q0.4"]}).encode()))
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
    # What changed is in the store until the day has rested.
    assert hot(bench) and files(root) == named(bench)
    assert erased not in ids_in_files(root)
    monkeypatch.setattr(cold_moves, "REST_S", 0)
    move(loop)
    assert hot(bench) == [] and files(root) == named(bench)
    assert erased not in ids_in_files(root)


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
        loop._housekeeping.apply(GONE, configs=[short])
        assert cold_days(bench) == {} and hot(bench) == []
    move(loop)
    assert files(root) == []
    assert bench.client.hgetall(loop.keys.spare_files) == {}
    assert sorted(path.name for path in root.iterdir()) == [MARKER]
