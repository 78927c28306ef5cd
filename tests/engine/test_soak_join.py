"""A million events by id: predictions, labels before and after them, repeats, workers that die; exact at the end."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from calibrant import Batch
from calibrant.input.labels import LabelRow
from calibrant.metrics import Question, View, compute_metrics
from tests.engine.driving import MODEL
from tests.engine.processes import WorkerProcess
from tests.engine.test_late_labels import stored_panes
from workers.entries import LABELS, PREDICTIONS, pack_labels
from workers.inbox import BacklogFull, Delivery

N = 500_000
A_BATCH = 500
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_million_events(bench):
    bench.put_model()
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(3), N).astype(np.float32).astype(np.float64)
    scores /= scores.sum(axis=1, keepdims=True)
    classes = rng.integers(0, 3, N)
    hours = np.arange(N) * 24 // N
    steps = []
    for first in range(0, N, A_BATCH):
        rows = range(first, first + A_BATCH)
        batch = Batch.from_columns(
            {
                "probabilities": scores[first : first + A_BATCH],
                "ids": [f"i{i}" for i in rows],
                "event_times": [datetime.fromtimestamp(START + 3600 * int(hours[i]), UTC).isoformat() for i in rows],
            }
        ).batch
        step = Delivery(MODEL, f"p{first}", PREDICTIONS, batch.pack(), batch.digest(), A_BATCH)
        steps.append((first, step))
    order = rng.permutation(N)
    for first in range(0, N, A_BATCH):
        some = order[first : first + A_BATCH]
        payload = pack_labels([LabelRow(f"i{i}", {}, [("r", int(classes[i]), 0)]) for i in some])
        step = Delivery(MODEL, f"l{first}", LABELS, payload, payload[-16:], A_BATCH)
        steps.append((float(rng.uniform(0, 2 * N)), step))
    steps.sort(key=lambda each: each[0])
    chance = random.Random(1)
    worker = WorkerProcess(bench.settings, "real")
    with worker:
        for _, step in steps:
            while True:
                try:
                    bench.deliver(step, *([step] if chance.random() < 0.02 else []))
                    break
                except BacklogFull:
                    time.sleep(0.5)
            if chance.random() < 0.01:
                worker.kill_and_start()
        stream = bench.store.keys.of_model(MODEL.key).stream
        worker.keep_alive_until(lambda: bench.client.xlen(stream) == 0, seconds=900)
    pane = None
    for (slice_, _), each in stored_panes(bench).items():
        if not slice_:
            pane = each if pane is None else pane.merge(each)
    assert pane is not None
    assert (pane.counts["n_predictions"], pane.counts["n_labelled"], pane.counts["n_ratings"]) == (N, N, N)
    found = compute_metrics(View(pane, Question(bins=10)), ["brier", "accuracy", "ece"])
    chosen = scores[np.arange(N), classes]
    brier = float(np.mean((scores**2).sum(axis=1) - 2 * chosen + 1))
    assert found["brier"]["value"] == pytest.approx(brier, abs=1e-9)
    correct = scores.argmax(axis=1) == classes
    assert found["accuracy"]["value"] == pytest.approx(float(correct.mean()), abs=1e-12)
    top = scores.max(axis=1)
    place = np.ceil(top * 10).astype(int)
    gap = np.bincount(place, correct - top, 11)
    assert found["ece"]["value"] == pytest.approx(float(np.abs(gap).sum() / N), abs=1e-9)
    tallies = bench.run(bench.inbox.tallies(MODEL))
    assert (tallies["records"], tallies["joined"], tallies["waiting"]) == (N, N, 0)
