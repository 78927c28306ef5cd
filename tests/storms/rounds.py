"""One storm: a way to run the service, clients, faults of every process, and the comparison afterwards."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.end_to_end.deployment import Deployment
from tests.stores import SERVERS, StoreServer
from tests.storms.faults import KILL, FaultyProcess
from tests.storms.senders import (
    N_BINS,
    BatchSender,
    Expected,
    LabelSender,
    RepeatSender,
    Sender,
    TotalSender,
)
from tests.waiting import eventually

SENDERS: dict[str, type[Sender]] = {
    "batches": BatchSender,
    "repeats": RepeatSender,
    "labels": LabelSender,
    "totals": TotalSender,
}
SETTINGS = {
    "batches": {"task": "binary"},
    "repeats": {"task": "binary"},
    "labels": {"task": "binary"},
    "totals": {"task": "binary", "grid": N_BINS},
}
SENDERS_PER_MODEL = 2
Senders = Sequence[tuple[str, Sender]]
SETTLED_S = 300.0


@dataclass(frozen=True)
class Setup:
    """How the service runs: with the embedded store if it has no workers."""

    name: str
    n_services: int
    n_workers: int
    durability: str

    @property
    def processes(self) -> list[str]:
        """Every process, the store included."""
        services = ["http", *(f"http{i}" for i in range(1, self.n_services))]
        return ["store", *services, *(f"worker{i}" for i in range(self.n_workers))]

    def deployment(self, directory: Path) -> Deployment:
        """Return the deployment, not yet started."""
        appendfsync = "always" if self.durability == "fsync" else "everysec"
        store = StoreServer(
            SERVERS["redis-server"] or SERVERS["embedded"] or "",
            directory / "store",
            appendfsync=appendfsync,
        )
        return Deployment(
            directory, self.n_workers, store, self.n_services,
            CALIBRANT_DURABILITY=self.durability, CALIBRANT_SOCKET_TIMEOUT="2.5",
        )  # fmt: skip


SETUPS = [
    Setup(name, n_services, n_workers, durability)
    for durability in ("everysec", "fsync")
    for name, n_services, n_workers in (
        ("embedded", 1, 0),
        ("one service, two workers", 1, 2),
        ("two services, four workers", 2, 4),
    )
]


@dataclass
class Outcome:
    """Numbers of one storm."""

    setup: str
    durability: str
    seed: int
    faults: dict[str, int] = field(default_factory=dict)
    own_exits: dict[str, dict[str, int]] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    twice: int = 0
    dead_letters: int = 0
    parked: int = 0
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether every acknowledged batch counts once."""
        return not (self.lost or self.twice or self.dead_letters or self.parked or self.errors)


def storm(
    setup: Setup, seed: int, directory: Path, n_batches: int, kills: int, stops_s: list[float]
) -> Outcome:
    """Send at least `n_batches` while each process has so many kills and these stops, then compare."""
    started, outcome = time.monotonic(), Outcome(setup.name, setup.durability, seed)
    with setup.deployment(directory) as deployment:
        senders = senders_of(deployment, {kind: kind for kind in SENDERS}, seed)
        processes = [
            FaultyProcess(
                deployment, name, *shuffled_faults(f"{seed} {setup} {name}", kills, stops_s)
            )
            for name in setup.processes
        ]
        for thread in (*processes, *(sender for _, sender in senders)):
            thread.start()
        for process in processes:
            process.is_done.wait()
        eventually(lambda: n_acknowledged(senders) >= n_batches, SETTLED_S, pause_s=0.2)
        try:
            end_and_compare(deployment, senders, outcome)
        finally:
            end_faults(processes, outcome)
    outcome.acknowledged = acknowledged_by_kind(senders)
    outcome.seconds = round(time.monotonic() - started, 1)
    return outcome


def senders_of(
    deployment: Deployment,
    models: Mapping[str, str],
    seed: int,
    kinds: Mapping[str, type[Sender]] = SENDERS,
    n_each: int = SENDERS_PER_MODEL,
) -> Senders:
    """Declare models, each with the kind of its senders, and return `n_each` senders of each."""
    for model, kind in models.items():
        answer = deployment.client.put(f"/v1/models/{model}", json=SETTINGS[kind])
        assert answer.is_success, answer.text
    ports = list(deployment.ports.values())
    return [
        (model, kinds[kind](ports, model, 1 + i, n_each, seed))
        for model, kind in models.items()
        for i in range(n_each)
    ]


def n_acknowledged(senders: Senders) -> int:
    """Return the number of batches that were acknowledged so far."""
    return sum(sum(each.n_acknowledged.values()) for _, each in senders)


def acknowledged_by_kind(senders: Senders) -> dict[str, int]:
    """Return the same by kind of batch."""
    return dict(sum((each.n_acknowledged for _, each in senders), Counter()))


def end_and_compare(deployment: Deployment, senders: Senders, outcome: Outcome) -> None:
    """End the senders, wait until the service is ready, and compare what each model counts with what was sent."""
    end_senders(senders, outcome)
    deployment.wait_ready(SETTLED_S)
    for model in dict.fromkeys(model for model, _ in senders):
        compare(deployment, model, [each for name, each in senders if name == model], outcome)
    note_set_aside(deployment, outcome)


def end_senders(senders: Senders, outcome: Outcome) -> None:
    """Have each sender end with an acknowledged batch; note those that cannot."""
    for _, sender in senders:
        sender.may_end.set()
    for _, sender in senders:
        sender.join(SETTLED_S)
        if sender.is_alive():
            outcome.errors.append(f"{sender.path}: a batch was never acknowledged")


def end_faults(processes: Sequence[FaultyProcess], outcome: Outcome) -> None:
    """End the threads of the faults of processes, and note what they inflicted and met."""
    for process in processes:
        process.may_end.set()
        process.join()
    outcome.errors += [f"{each.name_}: {each.error!r}" for each in processes if each.error]
    for process in processes:
        kind = process.name_.rstrip("0123456789")
        for fault, n in process.inflicted.items():
            key = f"{kind}: {fault if fault == KILL else f'stop of {float(fault):g} s'}"
            outcome.faults[key] = outcome.faults.get(key, 0) + n
        if process.own_exits:
            outcome.own_exits[process.name_] = dict(process.own_exits)


def shuffled_faults(seed: str, kills: int, stops_s: list[float]) -> tuple[list[str], random.Random]:
    """Return so many kills and these stops in random order, and the random numbers that follow."""
    rng = random.Random(seed)
    faults = [KILL] * kills + [str(seconds) for seconds in stops_s]
    rng.shuffle(faults)
    return faults, rng


def compare(deployment: Deployment, model: str, senders: list[Sender], outcome: Outcome) -> None:
    """Compare what a model counts with what its clients sent."""
    expected = Expected()
    for sender in senders:
        expected.include(sender.expected)
        outcome.errors += sender.rejected
    try:
        eventually(lambda: _differences(deployment, model, expected) == (0, 0), 60.0, pause_s=1.0)
    except AssertionError:
        lost, twice = _differences(deployment, model, expected)
        outcome.lost += lost
        outcome.twice += twice
        outcome.errors.append(f"{model}: {_counted(deployment, model)} instead of {vars(expected)}")
    letters = deployment.get(f"/v1/models/{model}/dead-letters")["dead_letters"]
    outcome.dead_letters += len(letters)
    outcome.errors += [f"{model}: {letter}" for letter in letters]


def note_set_aside(deployment: Deployment, outcome: Outcome) -> None:
    """Note the parked entries and the dead letters of all models."""
    ready = deployment.get("/readyz")
    outcome.parked += ready["parked_entries"]
    outcome.dead_letters = max(outcome.dead_letters, ready["dead_letters"])


def _counted(deployment: Deployment, model: str) -> dict[str, Any]:
    options = (
        {"bins": N_BINS, "raters": "mean"} if not model.startswith("totals") else {"bins": N_BINS}
    )
    table = deployment.get(f"/v1/models/{model}/reliability", **options)["table"]
    found: dict[str, Any] = {
        "weights": {i: each["weight"] for i, each in enumerate(table)},
    }
    if not model.startswith("totals"):
        counts = deployment.get(f"/v1/models/{model}/metrics", metrics="accuracy", raters="mean")
        names = ("n_predictions", "n_labelled", "n_ratings")
        found |= {name: counts[name] for name in names}
        found["bins"] = {i: each["n_predictions"] for i, each in enumerate(table)}
    else:
        found["bins"] = found["weights"]
    return found


def _differences(deployment: Deployment, model: str, expected: Expected) -> tuple[int, int]:
    """Return how many predictions (of totals: counts) are missing, and how many are too many."""
    found = _counted(deployment, model)
    lost = twice = 0
    pairs = [(found["bins"].get(i, 0), expected.bins[i]) for i in range(N_BINS)]
    pairs += [(found[name], getattr(expected, name)) for name in found if name.startswith("n_")]
    for there, wanted in pairs:
        lost += max(0, int(wanted - there))
        twice += max(0, int(there - wanted))
    if (lost, twice) == (0, 0):
        # One missing and another repeated: the numbers agree, the weights do not.
        wrong = [i for i in range(N_BINS) if found["weights"].get(i, 0) != expected.weights[i]]
        return len(wrong), len(wrong)
    return lost, twice


def as_record(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome for the progress file."""
    return asdict(outcome)
