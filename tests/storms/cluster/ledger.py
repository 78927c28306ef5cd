"""Batches that can each be looked up, for storms that may lose some: what is lost is known, and the rest must count once.

The record of a batch is lost together with its state.
"""

from __future__ import annotations

from typing import Any

from tests.end_to_end.deployment import Deployment
from tests.storms.rounds import Outcome, Senders, compare, end_senders, note_set_aside
from tests.storms.senders import Expected, Sender, confidence
from tests.waiting import eventually

MERGED_S = 300.0


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


def end_and_look_up(deployment: Deployment, senders: Senders, outcome: Outcome) -> int:
    """End the senders; return the number of lost batches; compare what the others count."""
    end_senders(senders, outcome)
    deployment.wait_ready(MERGED_S)
    n_lost = 0
    for model in dict.fromkeys(model for model, _ in senders):
        some = [each for name, each in senders if name == model]
        for sender in some:
            assert isinstance(sender, LedgerSender)
            n_lost += sender.forget_lost(deployment)
        compare(deployment, model, some, outcome)
    note_set_aside(deployment, outcome)
    return n_lost
