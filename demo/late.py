"""Delayed labels: a week of predictions first, then ratings in three waves, with the numbers after each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo.client import Client
from demo.digits import Deployment
from demo.play import CLASSES, Timeline, columns
from demo.truth import raw_metrics, votes_of

LATE = "digits-late"
WAVES = ("the quickest rater", "the second", "all others")
ROWS_A_POST = 400


@dataclass(frozen=True)
class Settling:
    """Results of the service after a wave."""

    wave: str
    answer: dict[str, Any]


def rows_of(deployment: Deployment) -> NDArray[np.int64]:
    """Return the first half of the simulated time."""
    return np.flatnonzero(deployment.when < 0.5)


def post_predictions(client: Client, deployment: Deployment, timeline: Timeline) -> None:
    """Return predictions with ids and without labels."""
    client.put(f"/v1/models/{LATE}", {"task": "multiclass", "classes": CLASSES, "pane": "P1D"})
    rows = rows_of(deployment)
    for first in range(0, len(rows), ROWS_A_POST):
        some = rows[first : first + ROWS_A_POST]
        body = columns(deployment, timeline, some)
        del body["labels"]
        client.post(f"/v1/models/{LATE}/predictions", {"batch_id": f"p{first}", **body}, wait_s=60)


def post_wave(client: Client, deployment: Deployment, wave: int) -> None:
    """Return the ratings of one wave, by id."""
    rows = rows_of(deployment)
    given = {row: _ratings_of_wave(deployment.ratings[row], wave) for row in rows}
    named = [row for row in rows if given[row]]
    for first in range(0, len(named), ROWS_A_POST):
        some = named[first : first + ROWS_A_POST]
        body = {
            "batch_id": f"wave-{wave}.{first}",
            "ids": [f"capture-{row}" for row in some],
            "labels": [given[row] for row in some],
        }
        client.post(f"/v1/models/{LATE}/labels", body, wait_s=60)


def results_by_wave(client: Client, deployment: Deployment, timeline: Timeline) -> list[Settling]:
    """Post everything and query after each wave."""
    post_predictions(client, deployment, timeline)
    found = [_asked(client, "no label yet")]
    for wave, name in enumerate(WAVES):
        post_wave(client, deployment, wave)
        found.append(_asked(client, name))
    return found


def raw(deployment: Deployment) -> dict[str, float]:
    """Compute the same from raw rows with all labels."""
    rows = rows_of(deployment)
    return raw_metrics(
        deployment.probabilities[rows], votes_of([deployment.ratings[row] for row in rows], 10)
    )


def _asked(client: Client, wave: str) -> Settling:
    return Settling(
        wave, client.get(f"/v1/models/{LATE}/metrics", metrics="ece,accuracy,brier,nll")
    )


def _ratings_of_wave(ratings: list[int], wave: int) -> list[int]:
    return ratings[wave : wave + 1] if wave < 2 else ratings[2:]
