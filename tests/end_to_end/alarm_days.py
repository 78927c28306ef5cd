"""Days of a watched model: what is posted, the detector that an exact computation gives, and the receiver of its webhooks."""

from __future__ import annotations

import base64
import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import redis
from scipy.special import expit, logit

from calibrant import Batch, Pane, PaneSpec
from calibrant.drift.unit_tables import unit_table
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohorts import CohortResult
from calibrant_server.workers.alarm.detector_advance import advanced
from calibrant_server.workers.alarm.detectors import Detector
from tests.end_to_end.deployment import Deployment
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

KEY = b"a receiver's key of thirty bytes"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
A_DAY = 200
YEAR, SEASON, CHANGE = 365, 120, 90
TOLERANCE = 0.05


class Receiver:
    """An HTTP server that keeps what it was sent; it may be stopped and started again on its port."""

    def __init__(self) -> None:
        self.port = reserved_port()
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def of(self, kind: str) -> list[tuple[dict[str, str], dict]]:
        read = [(headers, json.loads(body)) for headers, body in self.got]
        return [(headers, body) for headers, body in read if body["type"] == kind]


def declare(deployment: Deployment, model: str, receiver: Receiver | None = None) -> dict:
    alarm: dict = {"tolerance": TOLERANCE}
    if receiver is not None:
        url = f"http://127.0.0.1:{receiver.port}/{model}"
        alarm["webhooks"] = [{"url": url, "secret": SECRET}]
    body = {"task": "binary", "pane": "P1D", "label_horizon": "P1D", "alarm": alarm}
    answer = deployment.client.put(f"/v1/models/{model}", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def days_of(seed: int, slope_after: float, n: int = YEAR) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores and labels of each day of a binary model; its outcomes follow another slope from day 90 on."""
    rng = np.random.default_rng(seed)
    found = []
    for day in range(n):
        score = rng.beta(0.7, 2.2, A_DAY)
        slope = slope_after if day >= CHANGE else 1.0
        truth = expit(slope * logit(np.clip(score, 1e-12, 1 - 1e-12)))
        found.append((score, (rng.random(A_DAY) < truth).astype(int)))
    return found


def play(
    deployment: Deployment, model: str, seed: int, slope_after: float, days: range, n: int = YEAR
) -> datetime:
    """Send some of the `n` days that end yesterday, twenty in a batch; returns the beginning of the first."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=n + 1)
    columns: dict[str, list] = {"confidences": [], "labels": [], "event_times": [], "sites": []}
    for day, (score, label) in enumerate(days_of(seed, slope_after, days.stop)):
        if day < days.start:
            continue
        columns["confidences"] += score.tolist()
        columns["labels"] += label.tolist()
        columns["event_times"] += [(first + timedelta(days=day, hours=9)).isoformat()] * A_DAY
        columns["sites"] += ["A" if i % 4 else "B" for i in range(A_DAY)]
        if len(columns["labels"]) >= 20 * A_DAY or day == days.stop - 1:
            slices = {"site": columns.pop("sites")}
            named = {
                "batch_id": f"{model}.{day}",
                **({"slices": slices} if model == "sliced" else {}),
            }
            deployment.post(f"/v1/models/{model}/predictions", named | columns)
            columns = {name: [] for name in (*columns, "sites")}
    return first


def exact(first: datetime, seed: int, slope_after: float, n: int) -> Detector:
    """The detector after `n` days, from the days themselves."""
    settings = AlarmSettings(tolerance=TOLERANCE)
    detector, results = Detector.begin(settings), []
    for day, (score, label) in enumerate(days_of(seed, slope_after, n)):
        pane = Pane(PaneSpec("binary", 2))
        pane.fill_batch(
            Batch.from_columns({"confidences": score, "labels": label}, task="binary").batch
        )
        start_s = int((first + timedelta(days=day)).timestamp())
        look = CohortResult(start_s, 1.0, 1 / 3650, unit_table(pane, "mean"))
        results.append(look.stored())
        detector = advanced(detector, results, settings, 1 / 3650)
    return detector


def kept(deployment: Deployment, model: str) -> dict[bytes, bytes]:
    """The detectors of a model as the store holds them, byte for byte."""
    with redis.Redis.from_url(deployment.store.url) as client:
        [name] = client.scan_iter(match=f"*:a:default/{model}|*", count=1000)
        return {field: value for field, value in client.hgetall(name).items() if b"|" in field}


def n_seen(deployment: Deployment, model: str) -> int:
    """How many cohorts the detector of all rows has seen, from the store: no worker need be alive to tell."""
    with redis.Redis.from_url(deployment.store.url) as client:
        return sum(
            client.hlen(name)
            for name in client.scan_iter(match=f"*:h:default/{model}|*|score|", count=1000)
        )


def sealed(deployment: Deployment, model: str, n: int) -> dict:
    """The verdict once so many cohorts have been seen."""

    def seen() -> dict | None:
        # Verdicts are costly and change with every cohort: they are asked for when they can be there.
        if n_seen(deployment, model) < n:
            return None
        found = deployment.get(f"/v1/models/{model}/drift", include="evidence")
        detector = found["detector"]
        return found if detector and detector["n_cohorts"] >= n else None

    return eventually(seen, 3 * PATIENCE_S, 0.05)
