"""Clients that repeat each batch until it is acknowledged, and what must have been counted of it.

Every prediction has its number as its weight and a bin of its own kind, so that counts and weights by bin show any loss and
any repeat. Sums of whole numbers are exact.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

N_BINS = 10
REQUEST_S = 6.0
PAUSE_S = 0.03


class Sender(threading.Thread):
    """One client of one model; it sends until `may_end` is set, and ends with an acknowledged batch.

    Parameters
    ----------
    ports : of the services; after a failure it goes on with the next one
    model, number : its numbers are `number`, `number + step`, ...
    """

    kind = ""

    def __init__(self, ports: list[int], model: str, number: int, step: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.path = f"/v1/models/{model}"
        self.number, self.step, self.source = number, step, f"sender-{number}"
        self.rng = random.Random(f"{seed} {model} {number}")
        self.may_end = threading.Event()
        self.n_acknowledged: Counter[str] = Counter()
        self.rejected: list[str] = []
        self.expected = Expected()
        self._clients = [
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=REQUEST_S) for port in ports
        ]

    def run(self) -> None:
        while not self.may_end.is_set():
            self.step_once(self.number)
            self.number += self.step
            time.sleep(self.rng.uniform(0, 2 * PAUSE_S))
        self.finish()
        for client in self._clients:
            client.close()

    def step_once(self, number: int) -> None:
        """Send the batches of one number."""
        raise NotImplementedError

    def finish(self) -> None:
        """Send what is still to be sent."""

    def create(self, settings: dict[str, Any]) -> None:
        """Repeat the declaration of the model until it is acknowledged; a repeat finds what it has declared before."""
        self._until_acknowledged(
            "new models", lambda client: client.put(self.path, json=settings), (200, 201)
        )

    def post(self, kind: str, noun: str, body: dict[str, Any]) -> None:
        """Repeat a batch until it is acknowledged."""
        self._until_acknowledged(kind, lambda client: client.post(f"{self.path}/{noun}", json=body))

    def delete(self, name: str) -> None:
        """Repeat the deletion of a prediction until it is acknowledged."""
        self._until_acknowledged(
            "deletions", lambda client: client.delete(f"{self.path}/predictions/{name}")
        )

    def _until_acknowledged(
        self,
        kind: str,
        request: Callable[[httpx.Client], httpx.Response],
        codes: tuple[int, ...] = (200, 202),
    ) -> None:
        while True:
            try:
                response = request(self._clients[0])
            except httpx.HTTPError:
                response = None
            if response is not None and response.status_code in codes:
                self.n_acknowledged[kind] += 1
                return
            if response is not None and response.status_code not in (429, 503):
                self.rejected.append(f"{kind}: {response.status_code} {response.text}")
                self.may_end.set()
                return
            # The next service may be well.
            self._clients.append(self._clients.pop(0))
            time.sleep(0.1)


class Expected:
    """Predictions, labelled predictions, ratings and weight of labelled predictions by bin."""

    def __init__(self) -> None:
        self.n_predictions = self.n_labelled = self.n_ratings = 0
        self.bins: Counter[int] = Counter()
        self.weights: Counter[int] = Counter()

    def add(self, number: int, n_ratings: int = 1) -> None:
        """Count one prediction with so many ratings."""
        self.n_predictions += 1
        if n_ratings:
            self.n_labelled += 1
            self.n_ratings += n_ratings
            self.bins[number % N_BINS] += 1
            self.weights[number % N_BINS] += number

    def include(self, other: Expected) -> None:
        """Count what another client sent."""
        self.n_predictions += other.n_predictions
        self.n_labelled += other.n_labelled
        self.n_ratings += other.n_ratings
        self.bins += other.bins
        self.weights += other.weights


def confidence(number: int) -> float:
    """Return the middle of the number's bin."""
    return (number % N_BINS + 0.5) / N_BINS


class BatchSender(Sender):
    """Labelled predictions, by turns under a batch id, as numbered messages, and as both."""

    def step_once(self, number: int) -> None:
        turn, n = self.rng.randrange(3), self.rng.randint(1, 3)
        numbers = [number * 4 + i for i in range(n)]
        body = {
            "confidences": [confidence(each) for each in numbers],
            "labels": [each % 2 for each in numbers],
            "weights": numbers,
        }
        if turn != 1:
            body["batch_id"] = f"b{number}"
        if turn != 0:
            first = sum(self.n_messages)
            self.n_messages.append(n)
            body |= {"source": self.source, "offsets": [first, first + n]}
        self.post("batches with offsets" if turn else "batches", "predictions", body)
        for each in numbers:
            self.expected.add(each)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.n_messages: list[int] = []


class RepeatSender(Sender):
    """Labelled predictions under a batch id, some of them again."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: list[int] = []

    def step_once(self, number: int) -> None:
        for each in self._send(number):
            self.expected.add(each)
        self.sent.append(number)
        if number % 3 == 0:
            self._send(self.rng.choice(self.sent))

    def _send(self, number: int) -> list[int]:
        numbers = [number * 4 + i for i in range(1 + number % 3)]
        body = {
            "batch_id": f"b{number}",
            "confidences": [confidence(each) for each in numbers],
            "labels": [each % 2 for each in numbers],
            "weights": numbers,
        }
        self.post("repeated batches", "predictions", body)
        return numbers


class LabelSender(Sender):
    """Predictions with ids, their labels before or after them, revisions in any order, and deletions."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.waiting: list[int] = []

    def step_once(self, number: int) -> None:
        labels_first = number % 5 == 0
        if labels_first:
            self._label(number)
        self.post(
            "predictions by id",
            "predictions",
            {
                "batch_id": f"p{number}", "ids": [f"i{number}"],
                "confidences": [confidence(number)], "weights": [number],
            },
        )  # fmt: skip
        if labels_first or number % 7 == 0:
            self._end(number)
        else:
            self.waiting.append(number)
        while len(self.waiting) > 10:
            self._label_and_end(self.waiting.pop(self.rng.randrange(len(self.waiting))))

    def finish(self) -> None:
        for number in self.waiting:
            self._label_and_end(number)

    def _label_and_end(self, number: int) -> None:
        self._label(number)
        self._end(number)

    def _label(self, number: int) -> None:
        """One unnamed rating; of every third prediction also a named one in two revisions, in any order."""
        self.post(
            "labels", "labels",
            {"batch_id": f"l{number}", "ids": [f"i{number}"], "labels": [number % 2]},
        )  # fmt: skip
        if number % 3 == 0:
            for revision in self.rng.sample([1, 2], 2):
                body = {
                    "batch_id": f"r{number}-{revision}", "ids": [f"i{number}"], "raters": ["r"],
                    "labels": [revision - 1], "revision": [revision],
                }  # fmt: skip
                self.post("labels", "labels", body)

    def _end(self, number: int) -> None:
        """Delete every eleventh; the others count."""
        if number % 11 == 0:
            self.delete(f"i{number}")
            return
        has_labels = number % 5 == 0 or number % 7 != 0
        self.expected.add(number, (1 + (number % 3 == 0)) if has_labels else 0)


class TotalSender(Sender):
    """Running totals: each replaces the one before it; a new epoch adds to the last.

    All are of one time: a total replaces those of its own hour only.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.at = datetime.now(UTC).isoformat()
        self.epoch = 0
        self.counts = [0] * N_BINS

    def step_once(self, number: int) -> None:
        if self.rng.random() < 0.05:
            self.epoch += 1
            self.counts = [0] * N_BINS
        self.counts[number % N_BINS] += 1
        self.post(
            "running totals",
            "histograms",
            {
                "batch_id": f"t{number}", "kind": "positive", "bins": N_BINS,
                "count": self.counts,
                "sum_confidence": [n * confidence(i) for i, n in enumerate(self.counts)],
                "sum_correct": [0] * N_BINS,
                "mode": "cumulative", "source": self.source, "event_time": self.at,
                "epoch": self.epoch, "sequence": number,
            },
        )  # fmt: skip
        # A histogram has weights only: as if each had the weight 1.
        self.expected.bins[number % N_BINS] += 1
        self.expected.weights[number % N_BINS] += 1
