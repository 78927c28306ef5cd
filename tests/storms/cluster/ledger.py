"""Batches that can each be looked up, for storms that may lose some: what is lost is known, and the rest must count once.

The record of a batch is lost together with its state, except for hot models: a side partition on one server may have the record, and
the own partition on another one the state. How often each of their batches counts is therefore read from the state: each has its
own bin, or shares it with few others of different weights.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.end_to_end.deployment import Deployment
from tests.storms.rounds import Outcome, Senders, compare, end_senders, note_set_aside
from tests.storms.senders import Expected, HotSender, Sender, confidence
from tests.waiting import eventually

MERGED_S = 300.0
# What a storm has left is merged once the counts of a hot model have not changed for this time: longer than deltas that
# wait for a server of the store take to be sent again.
SETTLED_S = 45.0
N_CELLS = 1200


class LedgerSender(Sender):
    """Labelled predictions under a batch id, without numbered messages: a client of those would stop at the first gap."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: dict[str, list[int]] = {}

    def step_once(self, number: int) -> None:
        numbers = [number * 4 + i for i in range(self.rng.randint(1, 3))]
        name = f"b{number}"
        body = {
            "batch_id": name,
            "confidences": [confidence(each) for each in numbers],
            "labels": [each % 2 for each in numbers],
            "weights": numbers,
        }
        self.post("batches", "predictions", body)
        self.sent[name] = numbers

    def forget_lost(self, deployment: Deployment) -> int:
        """Expect only the batches that the service still knows; return how many it has lost."""
        known = {name: self._is_known(deployment, name) for name in self.sent}
        self.expected = Expected()
        for name, numbers in self.sent.items():
            for each in numbers if known[name] else ():
                self.expected.add(each)
        return sum(not each for each in known.values())

    def _is_known(self, deployment: Deployment, name: str) -> bool:
        """Whether a batch is merged; False if it has no record. Record and state of a batch are lost together."""
        found = eventually(lambda: self._status(deployment, name), MERGED_S, pause_s=0.2)
        return found == "merged"

    def _status(self, deployment: Deployment, name: str) -> str:
        answer = deployment.client.get(f"{self.path}/batches/{name}")
        if answer.status_code == 404:
            return "unknown"
        if answer.status_code != 200 or answer.json()["status"] == "accepted":
            return ""
        status: str = answer.json()["status"]
        return status


class HotLedgerSender(HotSender):
    """Batches of one prediction, with repeats, of a model whose number of partitions changes."""

    def _send(self, number: int) -> list[int]:
        body = {
            "batch_id": f"b{number}",
            "confidences": [cell_of(number)],
            "labels": [number % 2],
            "weights": [number + 1],
        }
        self.post("batches of a hot model", "predictions", body)
        return [number]


def cell_of(number: int) -> float:
    """Return the middle of the number's cell."""
    return (number % N_CELLS + 0.5) / N_CELLS


def look_up_hot(
    deployment: Deployment, model: str, senders: Sequence[HotLedgerSender]
) -> tuple[int, int]:
    """Return how many batches of a hot model do not count, and how many count more than once."""
    by_cell: dict[int, list[int]] = {}
    for number in itertools.chain.from_iterable(sender.sent for sender in senders):
        by_cell.setdefault(number % N_CELLS, []).append(number + 1)
    found = _settled_cells(deployment, model)
    times = [
        each
        for cell, weights in by_cell.items()
        for each in times_counted(weights, *found.pop(cell, (0, 0)))
    ]
    n_strange = sum(n for n, _ in found.values())
    return times.count(0), sum(each - 1 for each in times if each > 1) + n_strange


def times_counted(weights: Sequence[int], n: int, weight: int) -> Sequence[int]:
    """Return how often each of some different weights is contained in a number of them with this sum.

    >>> times_counted([5, 1205], 2, 10)
    (2, 0)
    """
    if n == len(weights) and weight == sum(weights):
        return (1,) * n
    every = itertools.product(range(n + 1), repeat=len(weights))
    fitting = (
        times
        for times in every
        if sum(times) == n and sum(t * w for t, w in zip(times, weights, strict=True)) == weight
    )
    return next(fitting)


def _settled_cells(deployment: Deployment, model: str) -> dict[int, tuple[int, int]]:
    """Return number and weight of the predictions in each cell that has any, once they do not change any more."""
    found, since = _cells(deployment, model), time.monotonic()
    while time.monotonic() < since + SETTLED_S:
        time.sleep(1.0)
        now = _cells(deployment, model)
        if now != found:
            found, since = now, time.monotonic()
    return found


def _cells(deployment: Deployment, model: str) -> dict[int, tuple[int, int]]:
    path = f"/v1/models/{model}/reliability"
    table: Sequence[Mapping[str, Any]] = deployment.get(path, bins=N_CELLS, raters="mean")["table"]
    return {
        cell: (row["n_predictions"], int(row["weight"]))
        for cell, row in enumerate(table)
        if row["n_predictions"]
    }


def end_and_look_up(deployment: Deployment, senders: Senders, outcome: Outcome) -> tuple[int, int]:
    """End the senders; return the number of lost batches and how many of them are of hot models; compare what the others count."""
    end_senders(senders, outcome)
    deployment.wait_ready(MERGED_S)
    n_lost = n_hot = 0
    for model in dict.fromkeys(model for model, _ in senders):
        some = [each for name, each in senders if name == model]
        hot = [each for each in some if isinstance(each, HotLedgerSender)]
        if hot:
            n_missing, n_twice = look_up_hot(deployment, model, hot)
            n_hot += n_missing
            outcome.twice += n_twice
            outcome.errors += [error for each in hot for error in each.rejected]
            continue
        for sender in some:
            assert isinstance(sender, LedgerSender)
            n_lost += sender.forget_lost(deployment)
        compare(deployment, model, some, outcome)
    note_set_aside(deployment, outcome)
    return n_lost + n_hot, n_hot
