"""The deployment, replayed over HTTP: 28 days of predictions without waiting.

Two sites run the network. Site A posts its predictions. Site B does not send rows: it fills a pane at the
edge with `calibrant` and posts the pane, which contains the same information. The second model sends plain
histograms of confidence, as a client without `calibrant` would.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import Batch, Pane, PaneSpec
from demo.client import Client
from demo.digits import N_CLASSES, Deployment
from demo.server import DemoFailed

NETWORK = "digits"
LOGISTIC = "digits-logistic"
DAYS = 28
PANE_S = 6 * 3600
BATCH_S = 2 * 3600
BINS = 60
CLASSES = [str(digit) for digit in range(N_CLASSES)]


@dataclass(frozen=True)
class Timeline:
    """Start and end of the simulated time: complete days, the last of them yesterday."""

    start: datetime
    end: datetime

    @classmethod
    def until(cls, now: datetime, days: int = DAYS) -> Timeline:
        end = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return cls(end - timedelta(days=days), end)

    @property
    def days(self) -> int:
        return (self.end - self.start).days

    def at(self, share: float) -> datetime:
        """Return the time at a share of the timeline, to the millisecond."""
        moment = self.start + share * (self.end - self.start)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@dataclass(frozen=True)
class Post:
    """One request of the deployment."""

    model: str
    noun: str
    body: dict[str, Any]


def declare_models(client: Client) -> None:
    """Register the models before their first batch."""
    common = {"task": "multiclass", "classes": CLASSES, "pane": "PT6H"}
    client.put(f"/v1/models/{NETWORK}", common)
    client.put(f"/v1/models/{LOGISTIC}", common | {"grid": BINS})


def start_alarm(client: Client) -> None:
    """Declare when labels are complete. All data are sent, so each day is sealed in its current state, in order."""
    client.patch(f"/v1/models/{NETWORK}", {"label_horizon": "PT1H"})


def posts(deployment: Deployment, timeline: Timeline) -> list[Post]:
    """Return all requests in order of time."""
    at_site_a = deployment.digit % 2 == 0
    rows = np.arange(len(deployment.digit))
    sent = [
        *_predictions(deployment, timeline, rows[at_site_a]),
        *_panes(deployment, timeline, rows[~at_site_a]),
        *_histograms(deployment, timeline, rows),
    ]
    return [post for _, post in sorted(sent, key=lambda each: each[0])]


def columns(deployment: Deployment, timeline: Timeline, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return rows of the network's log under the names of the API."""
    return {
        "probabilities": deployment.probabilities[rows].tolist(),
        "labels": [deployment.ratings[row] for row in rows],
        "ids": [f"capture-{row}" for row in rows],
        "units": [f"digit-{deployment.digit[row]}" for row in rows],
        "event_times": [_rfc3339(timeline.at(deployment.when[row])) for row in rows],
    }


def fill(columns_: dict[str, Any]) -> Pane:
    """Fill a pane of the network's predictions."""
    pane = Pane(PaneSpec(task="multiclass", n_classes=N_CLASSES))
    pane.fill_batch(Batch.from_columns(columns_, task="multiclass", n_classes=N_CLASSES).batch)
    return pane


def send(client: Client, post: Post, wait_s: int = 0) -> dict[str, Any]:
    return client.post(f"/v1/models/{post.model}/{post.noun}", post.body, wait_s=wait_s)


def send_all(client: Client, all_posts: list[Post], on_sent: Callable[[], None]) -> None:
    """Post everything, one batch twice, and wait until the workers have merged the last."""
    last = {post.model: index for index, post in enumerate(all_posts)}
    for index, post in enumerate(all_posts):
        is_last = index == last[post.model]
        answer = send(client, post, wait_s=60 if is_last else 0)
        if is_last and answer["status"] != "merged":
            raise DemoFailed(f"after 60 s the last batch of {post.model} is not merged: {answer}")
        on_sent()
    repeated = send(client, all_posts[0])
    if repeated["duplicate"] is not True:
        raise DemoFailed(f"a repeated batch was not recognised: {repeated}")


def _slots(
    deployment: Deployment, timeline: Timeline, rows: NDArray[np.int64], seconds: int
) -> Iterator[tuple[datetime, NDArray[np.int64]]]:
    """Group rows by time slice: its start and its rows."""
    slot = (deployment.when[rows] * timeline.days * 86400 // seconds).astype(np.int64)
    for number in np.unique(slot):
        yield timeline.start + timedelta(seconds=int(number) * seconds), rows[slot == number]


def _predictions(
    deployment: Deployment, timeline: Timeline, rows: NDArray[np.int64]
) -> Iterator[tuple[datetime, Post]]:
    for start, inside in _slots(deployment, timeline, rows, BATCH_S):
        body = {"batch_id": f"site-a.{start:%Y%m%dT%H}"} | columns(deployment, timeline, inside)
        yield start + timedelta(seconds=BATCH_S), Post(NETWORK, "predictions", body)


def _panes(
    deployment: Deployment, timeline: Timeline, rows: NDArray[np.int64]
) -> Iterator[tuple[datetime, Post]]:
    for start, inside in _slots(deployment, timeline, rows, PANE_S):
        packed = fill(columns(deployment, timeline, inside)).pack()
        body = {
            "batch_id": f"site-b.{start:%Y%m%dT%H}",
            "kind": "pane",
            "packed": base64.b64encode(packed).decode(),
            "event_time": _rfc3339(start),
        }
        yield start + timedelta(seconds=PANE_S), Post(NETWORK, "histograms", body)


def _histograms(
    deployment: Deployment, timeline: Timeline, rows: NDArray[np.int64]
) -> Iterator[tuple[datetime, Post]]:
    for start, inside in _slots(deployment, timeline, rows, PANE_S):
        body = {
            "batch_id": f"{start:%Y%m%dT%H}",
            "kind": "top_label",
            "raters": "pooled",
            "bins": BINS,
            "edges": "right",
            **top_label_table(deployment, inside, BINS),
            "n_units": len(np.unique(deployment.digit[inside])),
            "event_time": _rfc3339(start),
        }
        yield start + timedelta(seconds=PANE_S), Post(LOGISTIC, "histograms", body)


def top_label_table(
    deployment: Deployment, rows: NDArray[np.int64], bins: int
) -> dict[str, list[float]]:
    """Return per bin (a, b] of the logistic model: ratings, their confidence, number of correct ratings."""
    confidence = deployment.logistic[rows].max(axis=1)
    top = deployment.logistic[rows].argmax(axis=1)
    ratings = [deployment.ratings[row] for row in rows]
    n_ratings = np.array([len(each) for each in ratings], dtype=np.float64)
    n_correct = np.array([each.count(k) for each, k in zip(ratings, top, strict=True)], dtype=float)
    cell = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
    return {
        "count": np.bincount(cell, n_ratings, bins).tolist(),
        "sum_confidence": np.bincount(cell, n_ratings * confidence, bins).tolist(),
        "sum_correct": np.bincount(cell, n_correct, bins).tolist(),
        "n_predictions": np.bincount(cell, minlength=bins).tolist(),
    }


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
