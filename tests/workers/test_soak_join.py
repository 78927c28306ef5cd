"""A million events by id: predictions, unnamed and named ratings before and after them, revisions, withdrawals, deletions, repeats
and conflicts, over panes and slices, with units that span batches and workers that die; the state of the final facts at the end."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.input.labels import WITHDRAWN, LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, REMOVAL, IngestBatch
from calibrant_server.workers.ingest.inbox_errors import BacklogFullError
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.store.key_names import LAST_CHANGE
from tests.workers.driving import MODEL, stored_pane
from tests.workers.processes import WorkerProcess
from tests.workers.test_late_labels import assert_same_state

N = 210_000
A_BATCH = 500
HOURS = 24
REVISIONS = 3
START = datetime(2026, 1, 1, tzinfo=UTC)
SITES = ("A", "B", "C")


class RetainedRecord:
    """What is true in the end, as arrays by prediction; what is sent is drawn from it."""

    def __init__(self, rng: np.random.Generator) -> None:
        scores = rng.dirichlet(np.ones(3), N).astype(np.float32).astype(np.float64)
        self.scores = scores / scores.sum(axis=1, keepdims=True)
        self.hour = rng.integers(0, HOURS, N)
        self.site = rng.integers(0, len(SITES), N)
        self.unit = np.where(rng.random(N) < 0.3, rng.integers(0, N // 10, N), -1)
        self.with_unnamed = np.where(rng.random(N) < 0.6, rng.integers(0, 3, N), -1)
        self.words = rng.integers(0, 3, (REVISIONS, N))
        self.words[-1, rng.random(N) < 0.1] = WITHDRAWN
        self.second = np.where(rng.random(N) < 0.3, rng.integers(0, 3, N), -1)
        self.deleted = rng.random(N) < 0.005

    def columns(self, rows: np.ndarray) -> dict:
        """A batch of predictions, all with units or all without."""
        found = {"probabilities": self.scores[rows], "ids": [f"i{i}" for i in rows]}
        if self.unit[rows[0]] >= 0:
            found["units"] = [f"u{unit}" for unit in self.unit[rows]]
        return found

    def placed(self, rows: np.ndarray) -> dict:
        """The same with what says which panes they fill."""
        at = [(START + timedelta(hours=int(hour))).isoformat() for hour in self.hour[rows]]
        return self.columns(rows) | {
            "event_times": at,
            "slices": {"site": [SITES[site] for site in self.site[rows]]},
        }

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """Ratings that stand in the end, by class."""
        counts = np.zeros((len(rows), 3), np.int64)
        for said in (self.with_unnamed, self.words[-1], self.second):
            given = said[rows] >= 0
            counts[np.flatnonzero(given), said[rows][given]] += 1
        return counts

    def pane(self, slice_: str, hour: int) -> Pane:
        """What the final facts give in one batch, of those with units and of those without."""
        here = (self.hour == hour) & ~self.deleted
        if slice_:
            here &= self.site == SITES.index(slice_.partition(":")[2])
        pane = Pane(MODEL.spec())
        for named in (True, False):
            rows = np.flatnonzero(here & ((self.unit >= 0) == named))
            pane.fill_batch(
                Batch.from_columns(self.columns(rows) | {"label_counts": self.counts(rows)}).batch
            )
        return pane


def runs(order: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(order), A_BATCH):
        yield order[first : first + A_BATCH]


def predictions(
    facts: RetainedRecord, rows: np.ndarray, batch_id: str, share: float = 0.0
) -> IngestBatch:
    """A batch of predictions; with a `share` of other scores, another content under the same ids."""
    columns = facts.placed(rows)
    columns["probabilities"] = (1 - share) * columns["probabilities"] + share / 3
    batch = Batch.from_columns(columns).batch
    return IngestBatch.of(MODEL, batch_id, PREDICTIONS, batch.pack(), batch.digest(), batch.n)


def labels(batch_id: str, rows: list[LabelRow]) -> IngestBatch:
    payload = pack_labels(rows)
    return IngestBatch.of(MODEL, batch_id, LABELS, payload, payload[-16:], len(rows))


def events(facts: RetainedRecord, rng: np.random.Generator) -> list[IngestBatch]:
    """Everything that is sent, in a random order; what conflicts comes after what it conflicts with."""
    timed: list[tuple[float, IngestBatch]] = []
    for named in (True, False):
        for number, rows in enumerate(
            runs(rng.permutation(np.flatnonzero((facts.unit >= 0) == named)))
        ):
            at, name = float(rng.random()), f"{named}-{number}"
            timed.append((at, predictions(facts, rows, f"p-{name}")))
            if rng.random() < 0.03:
                timed.append(
                    (at + float(rng.random()), predictions(facts, rows[:100], f"again-{name}"))
                )
                timed.append(
                    (
                        at + float(rng.random()),
                        predictions(facts, rows[100:200], f"other-{name}", share=0.5),
                    )
                )

    def add(name: str, said: np.ndarray, row_of) -> None:
        given = rng.permutation(
            np.flatnonzero(said >= WITHDRAWN if name.startswith("r") else said >= 0)
        )
        timed.extend(
            (
                float(rng.random()),
                labels(f"{name}-{number}", [row_of(i, int(said[i])) for i in rows]),
            )
            for number, rows in enumerate(runs(given))
        )

    add("votes", facts.with_unnamed, lambda i, class_index: LabelRow(f"i{i}", {class_index: 1}, []))
    add(
        "second",
        facts.second,
        lambda i, class_index: LabelRow(f"i{i}", {}, [("s", class_index, None)]),
    )
    for revision in range(REVISIONS):
        add(
            f"r{revision}",
            facts.words[revision],
            lambda i, class_index, n=revision: LabelRow(f"i{i}", {}, [("r", class_index, n)]),
        )
    for i in np.flatnonzero(facts.deleted):
        payload = json.dumps({"ids": [f"i{i}"]}).encode()
        timed.append(
            (
                float(rng.random()),
                IngestBatch.of(MODEL, f"gone-{i}", REMOVAL, payload, payload[-16:], 1),
            )
        )
    return [delivery for _, delivery in sorted(timed, key=lambda each: each[0])]


def stored(bench, slice_: str) -> dict[int, Pane]:
    keys = bench.store.keys.of_model(MODEL.key)
    starts = bench.client.hkeys(keys.versions(MODEL.key, MODEL.generation, slice_))
    panes = {}
    for start in (int(name) for name in starts if name.decode() != LAST_CHANGE):
        panes[(start - int(START.timestamp())) // 3600] = stored_pane(bench, slice_, start)
    return panes


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_million_events(bench):
    bench.put_model()
    rng = np.random.default_rng(0)
    facts = RetainedRecord(rng)
    sent = events(facts, rng)
    assert sum(delivery.n_accepted for delivery in sent) > 1_000_000
    chance = random.Random(1)
    with WorkerProcess(bench.settings, "real") as worker:
        for delivery in sent:
            while True:
                try:
                    bench.deliver(delivery, *([delivery] if chance.random() < 0.02 else []))
                    break
                except BacklogFullError:
                    time.sleep(0.5)
            if chance.random() < 0.01:
                worker.kill_and_start()
        stream = bench.store.keys.of_model(MODEL.key).stream
        worker.keep_alive_until(lambda: bench.client.xlen(stream) == 0, seconds=2000)
    for slice_ in ("", *(f"site:{site}" for site in SITES)):
        panes = stored(bench, slice_)
        assert sorted(panes) == list(range(HOURS))
        for hour, pane in panes.items():
            assert_same_state(pane, facts.pane(slice_, hour))
    tallies = bench.run(bench.inbox.tallies(MODEL))
    pending = int((~facts.deleted & (facts.counts(np.arange(N)).sum(axis=1) == 0)).sum())
    assert {name: tallies[name] for name in ("records", "pending", "waiting", "deleted")} == {
        "records": N, "pending": pending, "waiting": 0, "deleted": int(facts.deleted.sum()),
    }  # fmt: skip
