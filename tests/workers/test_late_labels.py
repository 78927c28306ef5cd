"""Labels that come late, change and disagree: any order of the same facts ends in the same state."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.core.sampled_rows import below
from calibrant.input.labels import WITHDRAWN, LabelRow
from calibrant.metrics import DEFAULT_METRICS, PaneQuery, View, compute_metrics
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, REMOVAL, IngestBatch
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.levels import GONE
from calibrant_server.workers.store.connection import connect_async
from calibrant_server.workers.store.key_names import LAST_CHANGE
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, Bench, eventually, stored_pane

N = 90
SCORES = np.random.default_rng(7).dirichlet(np.ones(3), N)


def columns(i):
    """The prediction of an id: some with units that span batches, all in two slices and three panes."""
    found = {
        "probabilities": [SCORES[i].tolist()],
        "ids": [f"i{i}"],
        "event_times": [f"2026-01-01T0{i % 3}:00:00Z"],
        "slices": {"site": ["AB"[i % 2]]},
    }
    if i % 3 == 0:
        found["units"] = [f"p{i % 12}"]
    if i % 5 == 0:
        found["labels"] = [[i % 3, 0]]
    return found


def deliveries(rng):
    """Predictions, unnamed and named labels, revisions, withdrawals, deletions, repeats: shuffled."""
    steps = []

    def add(kind, payload, digest, n=1):
        steps.append(
            IngestBatch.of(MODEL, f"b{len(steps)}", kind, payload, digest, n, received_at=AT)
        )

    def labels(*rows):
        payload = pack_labels(rows)
        add(LABELS, payload, payload[-16:], len(rows))

    for i in range(N):
        batch = Batch.from_columns(columns(i)).batch
        for _ in range(2 if i % 10 == 0 else 1):
            add(PREDICTIONS, batch.pack(), batch.digest())
        if i % 7:
            labels(LabelRow(f"i{i}", {i % 3: 1}, []))
        for revision in range(3):
            class_index = WITHDRAWN if revision == 2 and i % 4 == 0 else (i + revision) % 3
            labels(LabelRow(f"i{i}", {}, [("r1", class_index, revision)]))
        if i % 30 == 29:
            payload = json.dumps({"ids": [f"i{i}"]}).encode()
            add(REMOVAL, payload, payload[-16:])
    rng.shuffle(steps)
    return steps


AT = datetime(2026, 1, 1, 4, tzinfo=UTC)


def final_panes():
    """What the final facts give in one batch a pane."""
    rows = []
    for i in range(N):
        if i % 30 == 29:
            continue
        found = columns(i)
        counts = np.zeros(3, int)
        for class_index in found.pop("labels", [[]])[0]:
            counts[class_index] += 1
        if i % 7:
            counts[i % 3] += 1
        if i % 4:
            counts[(i + 2) % 3] += 1
        rows.append((i, found, counts.tolist()))
    panes = {}
    for slice_ in ("", "site:A", "site:B"):
        for hour in range(3):
            pane = panes[slice_, hour] = Pane(MODEL.spec())
            for named in (True, False):
                some = [
                    (found, counts)
                    for i, found, counts in rows
                    if i % 3 == hour
                    and slice_ in ("", f"site:{'AB'[i % 2]}")
                    and (i % 3 == 0) == named
                ]
                if some:
                    complete = {
                        name: [found[name][0] for found, _ in some]
                        for name in ("probabilities", "ids", *(("units",) if named else ()))
                    }
                    complete["label_counts"] = [counts for _, counts in some]
                    pane.fill_batch(Batch.from_columns(complete).batch)
    return panes


def stored_panes(bench):
    keys = bench.store.keys.of_model(MODEL.key)
    panes = {}
    for slice_ in ("", "site:A", "site:B"):
        starts = bench.client.hkeys(keys.versions(MODEL.key, MODEL.generation, slice_))
        for start in (int(name) for name in starts if name.decode() != LAST_CHANGE):
            panes[slice_, start // 3600 % 24] = stored_pane(bench, slice_, start)
    return panes


def assert_same(found, expected):
    """Equal state, and so equal answers."""
    assert_same_state(found, expected)
    for raters in ("pooled", "mean", "majority", "single"):
        pane_query = PaneQuery(raters=raters, bins=10)
        answers = [
            compute_metrics(View(pane, pane_query), DEFAULT_METRICS) for pane in (found, expected)
        ]
        for slug in DEFAULT_METRICS:
            one, other = (answer[slug]["value"] for answer in answers)
            assert one == pytest.approx(other, abs=1e-9), (raters, slug)


def assert_same_state(found, expected):
    """Equal counts and content digest to the bit, sums to 1e-9, and the sample as far as it is kept."""
    assert found.counts == expected.counts
    assert found.digest() == expected.digest()
    # When labels came is no fact of the predictions.
    assert found["delays"].n == expected.counts["n_labelled"]
    for name in set(expected.names) - {"delays"}:
        for block, twin in zip(
            expected[name].blocks.values(), found[name].blocks.values(), strict=True
        ):
            assert np.array_equal(block.counts, twin.counts), name
            np.testing.assert_allclose(twin.sums, block.sums, rtol=1e-9, atol=1e-9, err_msg=name)

    assert_same_sample(found.sample, expected.sample)


def assert_same_sample(found, expected):
    """The kept sample is what the final facts have below its own threshold."""
    assert found.halvings >= expected.halvings
    mine, theirs = found.arrays(), expected.arrays()
    inside = np.flatnonzero(below(theirs["ids"], found.halvings))
    ratings = np.isin(theirs["vote_row"], inside)
    for name in ("ids", "units", "counts", "logits", "weights", "scores"):
        assert np.array_equal(mine[name], theirs[name][inside]), name
    assert np.array_equal(mine["vote_row"], np.searchsorted(inside, theirs["vote_row"][ratings]))
    for name in ("vote_class", "vote_count"):
        assert np.array_equal(mine[name], theirs[name][ratings]), name


@pytest.mark.one_server
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_any_order_ends_in_the_state_of_the_final_facts(bench, seed):
    bench.put_model()
    rng = random.Random(seed)
    steps = deliveries(rng)
    engines = [bench.engine(numerics=Numerics()) for _ in range(2)]
    for first in range(0, len(steps), 40):
        some = steps[first : first + 40]
        bench.deliver(*some, *rng.sample(some, 5))
        if first == 200:
            engines[0].abandon() if hasattr(engines[0], "abandon") else engines[0].stop()
    for step in steps:
        assert bench.merged(step.batch_id).status == "merged"
    stored, expected = stored_panes(bench), final_panes()
    assert stored.keys() == expected.keys()
    for key, pane in expected.items():
        assert_same(stored[key], pane)
    tallies = bench.run(bench.inbox.tallies(MODEL))
    assert tallies["records"] == N
    assert tallies["deleted"] == 3
    assert tallies["waiting"] == 0


def test_labels_wait_for_their_prediction(bench):
    bench.put_model()
    bench.engine(numerics=Numerics())
    payload = pack_labels([LabelRow("i1", {1: 2}, [])])
    bench.deliver(IngestBatch.of(MODEL, "l1", LABELS, payload, payload[-16:], 1))
    bench.merged("l1")
    assert bench.run(bench.inbox.tallies(MODEL))["waiting"] == 1
    batch = Batch.from_columns({"probabilities": [[0.2, 0.5, 0.3]], "ids": ["i1"]}).batch
    bench.deliver(IngestBatch.of(MODEL, "p1", PREDICTIONS, batch.pack(), batch.digest(), 1))
    bench.merged("p1")
    tallies = bench.run(bench.inbox.tallies(MODEL))
    assert (tallies["waiting"], tallies["joined"]) == (0, 1)


def test_the_same_id_with_other_content_is_a_conflict_of_its_row(bench):
    bench.put_model()
    bench.engine(numerics=Numerics())
    for name, share in (("p1", 0.5), ("p2", 0.4)):
        columns_ = {
            "probabilities": [[0.2, 0.5, 0.3], [share, 0.5, 0.5 - share]],
            "ids": [f"{name}x", "same"],
            "labels": [1, 1],
        }
        batch = Batch.from_columns(columns_).batch
        bench.deliver(
            IngestBatch.of(
                MODEL, name, PREDICTIONS, batch.pack(), batch.digest(), 2, received_at=AT
            )
        )
    receipt = bench.merged("p2")
    assert (receipt.accepted, receipt.rejected, receipt.conflicts) == (1, 1, 1)
    assert receipt.errors[0]["pointer"] == "/ids/1"
    [pane] = [pane for (slice_, _), pane in stored_panes(bench).items() if not slice_]
    assert pane.counts["n_predictions"] == 3


@pytest.mark.parametrize("together", [True, False])
def test_a_row_that_does_not_count_takes_no_room_for_a_slice_value(settings, together):
    """Room for two values: a conflict of a third must not leave it none, whatever a worker happens to read at once."""
    with Bench(settings.replace(max_slice_values=2)) as bench:
        bench.put_model()
        bench.numerics = Numerics()
        loop = bench.loop()
        for i, (name, share, site) in enumerate(
            [("a", 0.5, "A"), ("a", 0.4, "B"), ("b", 0.5, "C"), ("c", 0.5, "D")]
        ):
            found = {
                "probabilities": [[share, 0.5, 0.5 - share]],
                "ids": [name],
                "slices": {"site": [site]},
            }
            batch = Batch.from_columns(found | {"event_times": [AT.isoformat()]}).batch
            bench.deliver(
                IngestBatch.of(
                    MODEL, f"p{i}", PREDICTIONS, batch.pack(), batch.digest(), 1, received_at=AT
                )
            )
            if not together:
                loop.step()
        loop.step()
        assert [bench.merged(f"p{i}").slices_other for i in range(4)] == [{}, {}, {}, {"site": 1}]
        assert bench.run(bench.inbox.slices(MODEL)) == ["", "site:A", "site:C", "site:other"]


def test_records_outlive_retention_no_longer_than_their_panes(bench):
    model = bench.put_model()
    bench.engine(numerics=Numerics())
    now = datetime.now(UTC)
    for i, at in ((1, AT), (2, now)):
        found = {"probabilities": [SCORES[i].tolist()], "ids": [f"i{i}"], "units": [f"u{i}"]}
        batch = Batch.from_columns(found | {"event_times": [at.isoformat()]}).batch
        bench.deliver(IngestBatch.of(model, f"p{i}", PREDICTIONS, batch.pack(), batch.digest(), 1))
        bench.merged(f"p{i}")
    bench.engines[0].stop()
    model = bench.put_model(replace(MODEL, retention_s=86_400))
    loop = bench.loop(model=model)
    loop._housekeeping.apply(GONE)
    for _ in loop._housekeeping.old_records():
        pass
    tallies = bench.run(bench.inbox.tallies(model))
    assert (tallies["records"], tallies["pending"]) == (1, 1)
    assert (tallies["expired"], tallies["expired_unlabelled"]) == (1, 1)
    keys = bench.store.keys.of(model)
    assert len(bench.client.hkeys(keys.unit_members(model.key, model.generation))) == 1
    assert int(bench.client.hget(keys.retained, "records")) == 1
    assert len(bench.starts()) == 1


def test_a_label_for_a_pane_that_is_gone_changes_no_pane(bench):
    """The record may outlive its pane for a while; nothing is taken out of a pane that does not hold it."""
    bench.put_model()
    bench.numerics = Numerics()
    batch = Batch.from_columns(columns(3)).batch
    bench.deliver(IngestBatch.of(MODEL, "p1", PREDICTIONS, batch.pack(), batch.digest(), 1))
    bench.loop().step()
    model = bench.put_model(replace(MODEL, retention_s=86_400))
    loop = bench.loop(model=model)
    assert loop._housekeeping.apply(GONE) > 0
    payload = pack_labels([LabelRow("i3", {1: 2}, [])])
    bench.deliver(IngestBatch.of(model, "l1", LABELS, payload, payload[-16:], 1))
    again = Batch.from_columns(columns(6)).batch
    bench.deliver(IngestBatch.of(model, "p2", PREDICTIONS, again.pack(), again.digest(), 1))
    loop.step()
    assert bench.merged("l1").status == "merged"
    assert bench.merged("p2").errors[0]["rule"] == "retention"
    assert bench.starts() == []


def test_deletion_leaves_no_record(bench):
    model = bench.put_model(MODEL)
    bench.engine(numerics=Numerics())
    batch = Batch.from_columns(columns(3)).batch
    bench.deliver(
        IngestBatch.of(model, "p1", PREDICTIONS, batch.pack(), batch.digest(), 1, received_at=AT)
    )
    bench.merged("p1")
    asyncio.run(_delete(bench, model))
    keys = bench.store.keys.of(model)
    eventually(
        lambda: not [name for name in bench.client.keys(f"{keys.tag}:*") if b"default/m" in name]
    )
    assert int(bench.client.hget(keys.retained, "records") or 0) == 0


async def _delete(bench, model):
    client = connect_async(bench.settings)
    try:
        await Registry(client, bench.store.keys).delete(model)
    finally:
        await client.aclose()
