"""`make bench-fleet-day`: one batch per model and minute through a day of simulated time; compares with docs/state.md.

It may be interrupted and continues where it ended. `--models 157 --partitions 1` is the share of one of 64 partitions in a
fleet of 10,000 models, `--models 10000 --partitions 64` the complete fleet. Service, workers and store are processes of their
own, with the time of day of `stepped_clock.py`; the client is another process.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.fleet_day.deployment import Deployment, deployed
from benchmarks.fleet_day.progress import HOUR, Part, Progress
from benchmarks.fleet_day.report import report
from benchmarks.fleet_day.traffic import N_CLASSES, Traffic, bodies

DAY_S, MINUTE_S = 86_400, 60.0
IDLE_S, SETTLE_S = 60.0, 15.0
REFERENCE = 50_000
FOLDER = Path("build/fleet-day")


@dataclass(frozen=True)
class Options:
    """What is simulated."""

    models: int
    partitions: int
    rows: int
    slice_keys: int
    slice_values: int
    clients: int
    pace_s: float
    label_horizon: str | None

    @property
    def names(self) -> list[str]:
        """Ids of the models."""
        return [f"m{number:05d}" for number in range(self.models)]

    @property
    def fleet(self) -> dict[str, Any]:
        """What must not change between two starts."""
        names = ("models", "partitions", "rows", "slice_keys", "slice_values", "label_horizon")
        next_midnight_s = (int(time.time()) // DAY_S + 1) * DAY_S
        return {name: getattr(self, name) for name in names} | {"start_s": next_midnight_s}

    @property
    def settings(self) -> dict[str, str]:
        """Environment of service and workers. Batch ids of a day of a fleet take more than the default allows."""
        return {
            "CALIBRANT_PARTITIONS": str(self.partitions),
            "CALIBRANT_TENANT_MODELS": str(self.models + 1),
            "CALIBRANT_IDEMPOTENCY_BYTES": "64GB",
            "CALIBRANT_HOUSEKEEPING": f"{self.pace_s}",
        }

    @property
    def declared(self) -> dict[str, object]:
        """Settings of each model."""
        found: dict[str, object] = {"classes": N_CLASSES, "retention": "P30D"}
        return found | ({"label_horizon": self.label_horizon} if self.label_horizon else {})


class Simulation:
    """The day of a fleet, on a running deployment."""

    def __init__(self, options: Options, progress: Progress, deployment: Deployment):
        self._options, self._progress, self._deployment = options, progress, deployment
        self._bodies = bodies(options.rows, options.slice_keys, options.slice_values)
        self._traffic = Traffic(deployment.service.port, options.clients)
        self._start_s = float(progress.fleet["start_s"])

    def run(self, n_minutes: int, until: float) -> None:
        """Send batches up to a minute, or until a monotonic time; measure each hour."""
        try:
            self._declare()
            _wait_quiet(self._deployment)  # a worker that starts examines every model once
            while self._progress.minute < n_minutes and time.monotonic() < until:
                self._hour(n_minutes, until)
        finally:
            self._traffic.close()

    def _declare(self) -> None:
        if self._progress.minute == 0:
            self._traffic.declare(self._options.names, self._options.declared)

    def _hour(self, n_minutes: int, until: float) -> None:
        """Send the batches of an hour, or of what is left of it. The first minute, in which everything is new, is apart."""
        first = self._progress.minute
        last = min(n_minutes, (first // HOUR + 1) * HOUR if first else 1)
        before = self._deployment.counters()
        loops_s = []
        while self._progress.minute < last and time.monotonic() < until:
            self._minute(self._progress.minute)
            loops_s.append(reference_s())
        self._deployment.wait_merged()
        after = self._deployment.counters()
        self._deployment.rewrite()
        rewritten = self._deployment.counters()["rewrite CPU s"]
        used = {name: after[name] - before[name] for name in after}
        used["rewrite CPU s"] = rewritten - before["rewrite CPU s"]
        levels = self._deployment.levels() | {"reference s": statistics.fmean(loops_s)}
        part = Part(first, self._progress.minute, used, levels)
        self._progress.add(part)
        print(_line(part, self._options.models), flush=True)

    def _minute(self, minute: int) -> None:
        began_at = time.monotonic()
        self._deployment.clock.step_to(self._start_s + minute * MINUTE_S)
        self._traffic.minute(self._options.names, self._bodies, minute)
        self._progress.sent(minute)
        time.sleep(max(0.0, began_at + self._options.pace_s - time.monotonic()))


def reference_s() -> float:
    """Return the CPU time of a fixed loop: on a machine with other load, the same work takes more of it."""
    began_s = time.process_time()
    sum(number * number for number in range(REFERENCE))
    return time.process_time() - began_s


def _line(part: Part, n_models: int) -> str:
    n = part.n_minutes * n_models
    used, levels = part.used, part.levels
    cpu = (
        f"{name} {1e3 * used[f'{name} CPU s'] / n:.2f}" for name in ("service", "worker", "store")
    )
    return (
        f"minutes {part.first} to {part.last}: CPU ms per batch: {', '.join(cpu)}; commands {used['commands'] / n:.1f}; "
        f"batches per commit {n / max(1, used['commits']):.2f}; store {levels['store bytes'] / 1e6:.1f} MB, {levels['keys']:.0f} keys; "
        f"service {levels['service bytes'] / 1e6:.0f} MB, worker {levels['worker bytes'] / 1e6:.0f} MB; "
        f"reference loop {1e3 * levels['reference s']:.2f} ms"
    )


def idle(deployment: Deployment) -> Iterator[tuple[str, float]]:
    """Yield what a minute without requests takes, by the clock of the machine."""
    time.sleep(SETTLE_S)
    before = deployment.counters()
    time.sleep(IDLE_S)
    after = deployment.counters()
    for name in ("service CPU s", "worker CPU s", "store CPU s", "commands", "AOF bytes"):
        yield name, after[name] - before[name]


def ageing(deployment: Deployment, progress: Progress, days: int) -> Iterator[tuple[str, float]]:
    """Step the clock until the last batch has an age in days; yield what housekeeping took, and what is stored then."""
    before, start_s = deployment.counters(), float(progress.fleet["start_s"])
    target_s = start_s + progress.minute * MINUTE_S + days * DAY_S
    while deployment.clock.now_s() < target_s:
        deployment.clock.step_to(min(target_s, deployment.clock.now_s() + DAY_S / 4))
        _wait_quiet(deployment)
    after, levels = deployment.counters(), deployment.levels()
    for name in ("worker CPU s", "store CPU s", "commands", "AOF bytes"):
        yield name, after[name] - before[name]
    yield from ((name, levels[name]) for name in ("store bytes", "keys"))


def _wait_quiet(deployment: Deployment) -> None:
    """Wait until two intervals pass in which hardly anything is done."""
    n_quiet, before = 0, deployment.counters()["worker CPU s"]
    while n_quiet < 2:
        time.sleep(2.0)
        after = deployment.counters()["worker CPU s"]
        n_quiet, before = (n_quiet + 1 if after - before < 0.3 else 0), after


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    number = parser.add_argument
    number("--models", type=int, default=157)
    number("--partitions", type=int, default=1)
    number("--minutes", type=int, default=1440, help="of the day")
    number("--rows", type=int, default=6, help="per batch")
    number("--slice-keys", type=int, default=4)
    number("--slice-values", type=int, default=5, help="of each key")
    number("--clients", type=int, default=4)
    pace = "least seconds per minute; housekeeping runs as often"
    number("--pace", dest="pace_s", type=float, default=1.0, help=pace)
    number("--label-horizon", help="of each model, such as PT2H; default: none")
    number("--server", help="program of the store; default: the packaged one")
    number("--budget", type=float, default=3000.0, help="seconds of this start")
    number("--in", dest="folder", type=Path, default=FOLDER, help="of state and progress")
    number("--idle", action="store_true", help="then measure a minute without requests")
    number("--age", type=int, default=0, help="then let the data age by days; measure housekeeping")
    return parser


def main() -> None:
    """Simulate, continue and report."""
    given = _parser().parse_args()
    options = Options(**{each.name: getattr(given, each.name) for each in fields(Options)})
    progress = Progress(given.folder, options.fleet)
    start_s, until = float(progress.fleet["start_s"]), time.monotonic() + given.budget
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends service, workers and store too
    with deployed(given.folder, start_s, given.server, **options.settings) as deployment:
        Simulation(options, progress, deployment).run(given.minutes, until)
        if given.idle:
            _print("idle minute", idle(deployment))
        if given.age:
            _print(f"ageing by {given.age} days", ageing(deployment, progress, given.age))
    print("\n".join(report(progress)))


def _print(title: str, found: Iterator[tuple[str, float]]) -> None:
    for name, value in found:
        print(f"| {title}: {name} | {value:.4g} |", flush=True)


if __name__ == "__main__":
    main()
