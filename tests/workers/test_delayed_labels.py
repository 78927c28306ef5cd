"""Labels of positives take thirty days and those of negatives three: what each clock says of a calibrated model."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrant import Batch
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.sealing import Sealing
from calibrant_server.workers.queries.ask import QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.slice_names import sealed_slice
from tests.workers.driving import MODEL

pytestmark = pytest.mark.one_server

DAY_S = 86_400
N_DAYS, A_DAY = 60, 80
HORIZON_DAYS = 35
START = datetime(2026, 1, 1, tzinfo=UTC)
BINARY = replace(
    MODEL, task="binary", n_classes=2, pane_s=DAY_S, label_horizon_s=HORIZON_DAYS * DAY_S
)


def play(bench):
    """Sixty days of predictions; every day the labels that have come, and the cohorts that have come of age."""
    rng = np.random.default_rng(5)
    due: dict[int, list[LabelRow]] = {}
    truth = []
    loop = bench.loop(model=BINARY)
    loop._housekeeping.due_at = float("inf")
    sealing = Sealing(loop._node, loop.keys, loop._fencing, bench.numerics)
    for day in range(N_DAYS):
        now = START + timedelta(days=day, hours=12)
        p = rng.random(A_DAY)
        y = (rng.random(A_DAY) < p).astype(int)
        truth.append((p, y))
        ids = [f"d{day}.{i}" for i in range(A_DAY)]
        columns = {"confidences": p, "ids": ids, "event_times": [now.isoformat()] * A_DAY}
        batch = Batch.from_columns(columns, task="binary").batch
        steps = [
            IngestBatch.of(
                BINARY, f"p{day}", PREDICTIONS, batch.pack(), batch.digest(), A_DAY, received_at=now
            )
        ]
        for name, label in zip(ids, y.tolist(), strict=True):
            due.setdefault(day + (30 if label else 3), []).append(LabelRow(name, {label: 1}, []))
        if day in due:
            payload = pack_labels(due.pop(day))
            at = now + timedelta(hours=1)
            steps.append(
                IngestBatch.of(BINARY, f"l{day}", LABELS, payload, payload[-16:], 1, received_at=at)
            )
        bench.deliver(*steps)
        loop.step()
        sealing.seal(BINARY, (START + timedelta(days=day + 1)).timestamp())
    return truth


def asked(bench, slice_="", days=(0, N_DAYS)):
    window = tuple(int(START.timestamp()) + day * DAY_S for day in days)
    params = {
        "metrics": "accuracy,ece,brier,spiegelhalter_z",
        "bins": 10,
        "scope": "positive",
    }
    pane_query = QueryRequest("d", "metrics", params, Side(BINARY.key, slice_, window), "r", 1e12)
    reply = Compute(Store(bench.settings), bench.numerics).reply(pane_query)
    assert reply.status == "ok", reply.body
    return json.loads(reply.body)


def test_sealed_cohorts_are_right_and_the_others_say_that_labels_are_missing(bench):
    bench.numerics = Numerics()
    bench.put_model(BINARY)
    truth = play(bench)
    n_sealed = N_DAYS - HORIZON_DAYS
    p, y = (np.concatenate(column) for column in zip(*truth[:n_sealed], strict=True))

    sealed = asked(bench, sealed_slice(""))
    assert (sealed["clock"], sealed["matured"]) == ("sealed", True)
    assert sealed["n_labelled"] == sealed["n_predictions"] == n_sealed * A_DAY
    assert sealed["label_coverage"]["coverage"] == 1.0
    found = sealed["metrics"]
    assert found["brier"]["value"] == pytest.approx(2 * np.mean((p - y) ** 2), abs=1e-9)
    assert found["accuracy"]["value"] == pytest.approx(np.mean((p > 0.5) == y), abs=1e-9)
    assert found["ece"]["value"] < found["ece"]["null_q95"]
    assert abs(found["spiegelhalter_z"]["value"]) < 3
    delay = sealed["label_coverage"]["delay"]
    assert delay["n"] == n_sealed * A_DAY
    assert 3 * DAY_S * 0.9 < delay["median_s"] < 31 * DAY_S * 1.1
    assert delay["q99_s"] == pytest.approx(30 * DAY_S, rel=0.15)

    # Only negatives have their labels: by them the model looks badly calibrated, and the answer says why not to believe it.
    recent = asked(bench, days=(N_DAYS - 25, N_DAYS))
    assert (recent["clock"], recent["matured"]) == ("event", False)
    assert recent["metrics"]["ece"]["value"] > 5 * recent["metrics"]["ece"]["null_q95"]
    assert recent["label_coverage"]["coverage"] < 0.6
    low, high = recent["label_coverage"]["gradient"]["interval"]
    assert high < -0.5 and low > -1.5
    assert (
        recent["label_coverage"]["by_bin"][0] > 0.7 > 0.3 > recent["label_coverage"]["by_bin"][-1]
    )

    # The event clock of what is sealed says the same as the sealed one, for no label came later.
    old = asked(bench, days=(0, n_sealed))
    assert old["matured"] is True
    assert old["metrics"]["brier"]["value"] == pytest.approx(found["brier"]["value"], abs=1e-12)
    assert sealed["sealed_to"] == (START + timedelta(days=n_sealed)).isoformat().replace(
        "+00:00", "Z"
    )
