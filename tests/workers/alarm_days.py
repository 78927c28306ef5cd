"""A model whose entries are merged and whose cohorts are sealed day by day, as its partition's worker does it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from calibrant import Batch
from calibrant_server.workers.alarm.alarm_commit import promotion
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.orders import alarm_order
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.sealing import Sealing
from calibrant_server.workers.queries.ask import QueryRequest, Side
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.watermarks import Watermarks
from tests.workers.driving import MODEL

DAY_S, HOUR_S = 86_400, 3600
START_S = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
BINARY = replace(
    MODEL,
    task="binary",
    n_classes=2,
    pane_s=HOUR_S,
    label_horizon_s=DAY_S,
    alarm={"tolerance": 0.0},
)


class Played:
    """A model whose entries are merged and whose cohorts are sealed as its partition's worker does it."""

    def __init__(self, bench, config):
        bench.numerics = Numerics()
        self.bench, self.config = bench, bench.put_model(config)
        self.loop = bench.loop(model=config)
        self.loop._housekeeping.due_at = float("inf")
        self.sealing = Sealing(self.loop._node, self.loop.keys, self.loop._fencing, bench.numerics)
        self.n = 0

    def send(self, kind, payload, digest, n, at_s):
        self.n += 1
        at = datetime.fromtimestamp(at_s, UTC)
        self.bench.deliver(
            IngestBatch.of(self.config, f"b{self.n}", kind, payload, digest, n, received_at=at)
        )
        self.loop.step()

    def predict(self, at_s, **columns):
        n = len(next(iter(columns.values())))
        at = np.broadcast_to(at_s, n)
        times = [datetime.fromtimestamp(float(each), UTC).isoformat() for each in at]
        columns |= {"event_times": times}
        batch = Batch.from_columns(
            columns, task=self.config.task, n_classes=self.config.n_classes
        ).batch
        self.send(PREDICTIONS, batch.pack(), batch.digest(), n, float(at.max()) + 1)
        return batch

    def label(self, at_s, rows):
        payload = pack_labels(rows)
        self.send(LABELS, payload, payload[-16:], len(rows), at_s)

    def seal(self, day):
        """Everything up to the end of a day has come of age."""
        self.sealing.seal(self.config, START_S + (day + 2) * DAY_S)
        self.loop._housekeeping._close_partial_cohort(self.config, START_S + (day + 2) * DAY_S)

    def order(self, order):
        entry = alarm_order(self.config.key, self.config.generation, order)
        self.loop._node.xadd(self.loop.keys.stream, entry.to_fields())
        self.loop.step()

    def promote(self, version, fitted, to_s):
        """Freeze a map and notify the alarm that it is active."""
        body = fitted | {
            "window": {"to": datetime.fromtimestamp(to_s, UTC).isoformat().replace("+00:00", "Z")}
        }
        key = self.loop.keys.map_versions(self.config.key, self.config.generation)
        self.loop._node.hset(key, f"v{version}", json.dumps(body))
        self.order(promotion(str(version)))

    @property
    def held(self):
        return AlarmState(self.loop._node, self.loop.keys, self.config)

    @property
    def marks(self):
        name = self.loop.keys.marks(self.config.key, self.config.generation)
        return Watermarks.of("", self.loop._node.hgetall(name))

    def detector(self, name="score|"):
        return self.held.detectors[name]

    def result(self, **params):
        last = max((each.last or 0 for each in self.held.detectors.values()), default=START_S)
        window = (0, last + 2 * DAY_S)
        pane_query = QueryRequest(
            "d",
            "drift",
            {"include": "evidence", **params},
            Side(self.config.key, "", window),
            "r",
            1e12,
        )
        reply = Compute(Store(self.bench.settings), self.bench.numerics).reply(pane_query)
        assert reply.status == "ok", reply.body
        return json.loads(reply.body)

    def listed(self):
        return [key for key in self.bench.keys_of(self.config) if b":j:" in key]
