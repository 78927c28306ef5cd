"""Merging into days, expiry and deletion by processes that are killed at any moment: no key too many, no answer changed."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrant import Batch
from calibrant.input.labels import LabelRow
from calibrant.metrics import PaneQuery, View, compute_metrics
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.record_store import TALLIES
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.levels import GONE
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import RECORD_SHARDS
from calibrant_server.workers.store.registry import Registry
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL
from tests.workers.oracle.retained_record import RetainedRecord, count_record
from tests.workers.test_ageing import answers, pane_keys, versions_agree

# Which process dies when is no matter of the server program; `test_faults` kills workers of each.
pytestmark = pytest.mark.one_server

DAY_S = 86_400
N_DAYS, KEPT_DAYS, A_DAY, A_PANE = 4, 1, 6, 4
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
FIRST = NOW.replace(hour=0) - timedelta(days=N_DAYS)


def killed(work, after_s: float) -> bool:
    """Do something in a process that is killed after a while; tells whether it came to its end before."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    deadline = time.monotonic() + after_s
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def until_done(work, seed: int, after_each=lambda: None) -> int:
    """Repeat work, killed sooner or later, until it is done; returns how often it was killed."""
    chance, n_killed = random.Random(seed), 0
    patience_s = 0.002
    while not killed(work, patience_s):
        n_killed += 1
        patience_s = chance.uniform(0.0, 0.04) * 1.2**n_killed
        after_each()
        assert n_killed < 60
    return n_killed


@pytest.fixture
def aged(bench):
    """Four days of six panes on two sites: predictions by id, two thirds of them labelled, units, labels that wait."""
    bench.numerics = Numerics()
    bench.put_model()
    rng = np.random.default_rng(3)
    for hour in range(0, 24 * N_DAYS, 24 // A_DAY):
        names = [f"h{hour}.{i}" for i in range(A_PANE)]
        columns = {
            "probabilities": rng.dirichlet(np.ones(3), A_PANE),
            "ids": names,
            "units": [f"u{i}" for i in rng.integers(0, 40, A_PANE)],
            "event_times": [(FIRST + timedelta(hours=hour, minutes=10)).isoformat()] * A_PANE,
            "slices": {"site": ["AB"[hour // 4 % 2]] * A_PANE},
        }
        batch = Batch.from_columns(columns).batch
        payload = pack_labels(
            [
                LabelRow(name, {int(rng.integers(3)): 1}, [])
                for name in names[: A_PANE - hour // 4 % 3]
            ]
        )
        bench.deliver(
            IngestBatch.of(
                MODEL,
                f"p{hour}",
                PREDICTIONS,
                batch.pack(),
                batch.digest(),
                A_PANE,
                received_at=NOW,
            ),
            IngestBatch.of(
                MODEL, f"l{hour}", LABELS, payload, payload[-16:], A_PANE, received_at=NOW
            ),
        )
    payload = pack_labels([LabelRow("never", {1: 1}, [])])
    bench.deliver(IngestBatch.of(MODEL, "w", LABELS, payload, payload[-16:], 1, received_at=FIRST))
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    while bench.client.xlen(loop.keys.stream):
        loop.step()
    assert pane_keys(bench) == 2 * A_DAY * N_DAYS
    return bench


def recounted(bench) -> dict[str, int]:
    """Tallies of the records that there are."""
    keys, found = bench.store.keys.of_model(MODEL.key), dict.fromkeys(TALLIES, 0)
    for shard in range(RECORD_SHARDS):
        for name, packed in bench.client.hgetall(
            keys.records(MODEL.key, MODEL.generation, shard)
        ).items():
            count_record(found, name.decode(), RetainedRecord.unpack(packed), len(packed), 1)
    return found


def tallies(bench) -> dict[str, int]:
    return bench.run(bench.inbox.tallies(MODEL))


def of_window(bench, window: Window) -> dict:
    pane = WindowPanes(Store(bench.settings), bench.numerics).merged(MODEL, "", window, None).merged
    found = compute_metrics(View(pane, PaneQuery(bins=15)), ["ece", "brier", "nll"], seed=1)
    return {slug: each["value"] for slug, each in found.items()} | pane.counts


def test_days_are_merged_by_workers_that_die_of_it(aged):
    before = [answers(aged, slice_=slice_) for slice_ in ("", "site:A")]
    until_s = (FIRST + timedelta(days=N_DAYS)).timestamp()

    def merge():
        aged.loop()._housekeeping._compaction.merge_days(MODEL, until_s)

    assert until_done(merge, 1, lambda: versions_agree(aged)) > 0
    versions_agree(aged)
    assert pane_keys(aged) == 3 * N_DAYS
    for (_, counts, one), slice_ in zip(before, ("", "site:A"), strict=True):
        _, counts_after, other = answers(aged, slice_=slice_)
        assert counts_after == counts
        for slug, (value, interval) in one.items():
            assert other[slug][0] == pytest.approx(value, abs=1e-12), slug
            assert other[slug][1] == pytest.approx(interval, abs=1e-9), slug


def test_what_outlives_its_retention_goes_with_workers_that_die_of_it(aged):
    kept = Window(int((FIRST + timedelta(days=N_DAYS - KEPT_DAYS)).timestamp()), 1 << 33)
    before, held = of_window(aged, kept), tallies(aged)
    retention_s = int((datetime.now(UTC) - FIRST).total_seconds()) - (N_DAYS - KEPT_DAYS) * DAY_S
    model = aged.put_model(replace(MODEL, retention_s=retention_s))

    def expire():
        housekeeping = aged.loop(model=model)._housekeeping
        housekeeping.apply(GONE)
        for _ in housekeeping.old_records():
            pass

    def counted():
        versions_agree(aged)
        now = tallies(aged)
        states = ("records", "bytes", "pending", "joined", "waiting", "deleted")
        assert {name: now[name] for name in states} == {
            name: recounted(aged)[name] for name in states
        }
        assert now["records"] + now["expired"] == held["records"]

    assert until_done(expire, 2, counted) > 0
    counted()
    # Whole panes: the hour in which the retention began is kept.
    assert pane_keys(aged) == 2 * A_DAY * KEPT_DAYS
    assert (
        of_window(aged, kept)
        == pytest.approx(before, abs=1e-12)
        == of_window(aged, Window(0, 1 << 33))
    )
    now = tallies(aged)
    # With what never met its prediction.
    assert (now["records"], now["expired"]) == (
        A_DAY * KEPT_DAYS * A_PANE,
        A_DAY * (N_DAYS - KEPT_DAYS) * A_PANE + 1,
    )
    assert (held["waiting"], now["waiting"]) == (1, 0)
    assert now["expired_unlabelled"] == held["pending"] - now["pending"] > 0
    keys = aged.store.keys.of_model(MODEL.key)
    starts = {
        int(name.partition(b"|")[0])
        for name in aged.client.hkeys(keys.unit_members(MODEL.key, MODEL.generation))
    }
    assert min(starts) >= kept.from_s
    assert int(aged.client.hget(keys.retained, "records")) == now["records"]


def test_a_deleted_model_leaves_no_key_whenever_workers_die(aged):
    aged.put_model(replace(MODEL, model="other", generation="g2"))
    others = sorted(aged.client.scan_iter(match="*default/other*"))
    assert len(aged.keys_of()) > 2 * A_DAY * N_DAYS
    aged.run(Registry(aged.inbox.client, aged.store.keys).delete(MODEL))

    def remove():
        loop = aged.loop()
        while loop._node.xlen(loop.keys.stream):
            loop.step()

    assert until_done(remove, 3) > 0
    assert aged.keys_of() == []
    assert sorted(aged.client.scan_iter(match="*default/other*")) == others
    keys = aged.store.keys.of_model(MODEL.key)
    counts = {name: int(n) for name, n in aged.client.hgetall(keys.retained).items()}
    # Totals of the partition and of the tenant, which has other models.
    assert {b"records", b"bytes"} <= counts.keys() and set(counts.values()) == {0}
