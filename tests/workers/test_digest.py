"""The content digest in the store: what arrived in pieces, late, as totals or as panes has the digest of what it amounts to."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PANE, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_labels, pack_updates
from calibrant_server.workers.ingest.reduce import Numerics
from tests.calibrant.panes import a_histogram
from tests.workers.driving import MODEL, stored_pane, totals

SPEC = MODEL.spec()


@pytest.fixture
def loop(bench):
    bench.numerics = Numerics()
    bench.put_model()
    return bench.loop()


def columns(rng: np.random.Generator, n: int, prefix: str, **more: object) -> dict[str, object]:
    """Probabilities as a float32 network gives them, all at one time."""
    narrow = rng.dirichlet(np.ones(3), n).astype(np.float32).astype(np.float64)
    times = ["2026-01-01T00:10:00Z"] * n
    units = [f"{prefix}{i // 3}" for i in range(n)]
    return {"probabilities": narrow, "event_times": times, "units": units} | more


def send(bench, loop, batch_id: str, kind: str, payload: bytes, n: int) -> None:
    digest = blake2b(payload, digest_size=16).digest()
    bench.deliver(IngestBatch.of(MODEL, batch_id, kind, payload, digest, n))
    loop.step()


def stored(bench, name: str = "") -> Pane:
    """The one pane of a slice, as the store has it."""
    (start,) = bench.starts(name)
    return stored_pane(bench, name, start)


def filled(*batches: Batch) -> Pane:
    pane = Pane(SPEC)
    for batch in batches:
        pane.fill_batch(batch)
    return pane


def test_batches_in_any_pieces_and_slices(bench, loop) -> None:
    rng = np.random.default_rng(0)
    batches = [
        Batch.from_columns(
            columns(
                rng,
                12,
                f"{i}.",
                labels=rng.integers(0, 3, 12),
                slices={"site": ["A", "B", "A"] * 4},
            )
        ).batch
        for i in range(3)
    ]
    for i, batch in enumerate(batches):
        send(bench, loop, f"b{i}", PREDICTIONS, batch.pack(), batch.n)
    assert stored(bench).digest() == filled(Batch.concatenate(batches)).digest()
    for site in "AB":
        rows = [batch.take(np.asarray(batch.slices["site"] == site)) for batch in batches]
        assert stored(bench, f"site:{site}").digest() == filled(*rows).digest()


def test_labels_that_come_late_in_parts_of_a_unit(bench, loop) -> None:
    rng = np.random.default_rng(1)
    ids = [f"i{i}" for i in range(12)]
    labels = rng.integers(0, 3, 12)
    sent = columns(rng, 12, "u", ids=ids, weights=rng.random(12))
    bare = Batch.from_columns(sent).batch
    send(bench, loop, "p", PREDICTIONS, bare.pack(), bare.n)
    assert stored(bench).digest() == filled(bare).digest()
    for k, rows in enumerate(np.array_split(rng.permutation(12), 4)):
        payload = pack_labels([LabelRow(ids[i], {int(labels[i]): 1}, []) for i in rows])
        send(bench, loop, f"l{k}", LABELS, payload, len(rows))
    labelled = Batch.from_columns(sent | {"labels": labels}).batch
    assert stored(bench).digest() == filled(labelled).digest()


def test_running_totals_and_posted_panes(bench, loop) -> None:
    rng = np.random.default_rng(2)
    first, last = (a_histogram(SPEC, n_units=n, event_time="2026-01-01T00:10:00Z") for n in (3, 5))
    for sequence, histogram in enumerate((first, first, last), start=1):
        given = totals(f"t{sequence}", histogram, sequence=sequence)
        bench.deliver(given)
        loop.step()
    expected = Pane(SPEC)
    expected.fill_histogram(last)
    assert stored(bench).digest() == expected.digest()
    batch = Batch.from_columns(columns(rng, 9, "u", labels=rng.integers(0, 3, 9))).batch
    posted = filled(replace(batch, event_times=None))
    update = PackedUpdate(posted.pack(), event_time_us=int(batch.event_times[0]))
    send(bench, loop, "pane", PANE, pack_updates([update]), 1)
    assert stored(bench).digest() == expected.merge(posted).digest()


def test_a_posted_pane_without_a_digest_leaves_none(bench, loop) -> None:
    rng = np.random.default_rng(3)
    batch = Batch.from_columns(columns(rng, 9, "u", labels=rng.integers(0, 3, 9))).batch
    send(bench, loop, "b", PREDICTIONS, batch.pack(), batch.n)
    old = filled(batch).parts()
    del old["digest"]
    update = PackedUpdate(
        Pane.from_parts(SPEC, old).pack(), event_time_us=int(batch.event_times[0])
    )
    send(bench, loop, "pane", PANE, pack_updates([update]), 1)
    assert stored(bench).digest() is None
    assert stored(bench).counts["n_predictions"] == 18
    send(bench, loop, "c", PREDICTIONS, batch.pack(), batch.n)
    assert stored(bench).digest() is None
