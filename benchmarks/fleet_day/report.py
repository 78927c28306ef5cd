"""The tables of a simulated day: hours as measured, and the day of a fleet compared with docs/state.md."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.capacity import (
    CORES,
    ID_MEMORY,
    STORE_CPU,
    STORE_MEMORY,
    Load,
    Need,
    hour_bytes,
)
from benchmarks.fleet_day.deployment import Reading
from benchmarks.fleet_day.progress import HOUR, Part, Progress

DAY = 24 * HOUR
FLEET = 10_000


def report(progress: Progress) -> Iterator[str]:
    """Yield both tables, the second one once a day is complete."""
    parts, fleet = progress.parts, progress.fleet
    yield from _hours(parts, fleet["models"])
    if sum(part.n_minutes for part in parts if part.last <= DAY) == DAY:
        yield ""
        yield from _day([part for part in parts if part.last <= DAY], fleet)


def _hours(parts: list[Part], n_models: int) -> Iterator[str]:
    yield (
        "| minutes | CPU ms per batch: service | workers | store | its rewrites | commands per batch | batches per commit | kB written per batch "
        "| MB in the store | keys | MB of service | MB of workers |"
    )
    yield "|---" * 12 + "|"
    for part in parts:
        n, used, levels = part.n_minutes * n_models, part.used, part.levels
        cpu = [
            1e3 * used[f"{name} CPU s"] / n for name in ("service", "worker", "store", "rewrite")
        ]
        each = [
            *cpu,
            used["commands"] / n,
            n / max(1.0, used["commits"]),
            used["AOF bytes"] / n / 1e3,
        ]
        memory = [levels[f"{name} bytes"] / 1e6 for name in ("store", "service", "worker")]
        yield (
            f"| {part.first} to {part.last} | {' | '.join(f'{value:.3g}' for value in each)} | {memory[0]:.4g} | {levels['keys']:,.0f} "
            f"| {memory[1]:.0f} | {memory[2]:.0f} |"
        )


def _day(parts: list[Part], fleet: dict[str, int]) -> Iterator[str]:
    """Yield what the day of a fleet takes: the share as measured, times the number of shares."""
    used = {name: sum(part.used[name] for part in parts) for name in parts[0].used}
    n_slices, rows = fleet["slice_keys"] * fleet["slice_values"], fleet["rows"]
    measured = _scaled(used, parts[-1].levels, FLEET / fleet["models"])
    predicted = _predicted(Load(rows, HOUR), n_slices)
    yield f"| a day of {FLEET:,} models, {rows} rows per batch | measured, times {FLEET / fleet['models']:.4g} | predicted |"
    yield "|---|---|---|"
    for name, value in measured.items():
        expected = f"{predicted[name]:.3g}" if name in predicted else ""
        yield f"| {name} | {value:.3g} | {expected} |"
    yield ""
    yield "| limit | part of it that is used |"
    yield "|---|---|"
    for name, share in sorted(_shares(measured).items(), key=lambda item: -item[1]):
        yield f"| {name} | {100 * share:.3g} % |"


def _scaled(used: Reading, levels: Reading, factor: float) -> dict[str, float]:
    cpu_s = used["service CPU s"] + used["worker CPU s"]
    return {
        "CPU of service and workers, cores": factor * cpu_s / 86_400,
        "CPU of the store, parts of its thread": factor * used["store CPU s"] / 86_400,
        "CPU of the store's rewrites, cores": factor * used["rewrite CPU s"] / 86_400,
        "commands per second": factor * used["commands"] / 86_400,
        "MB written per second": factor * used["AOF bytes"] / 86_400 / 1e6,
        "GB in the store": factor * levels["store bytes"] / 1e9,
        "GB of batch ids, as counted": factor * levels.get("id bytes", 0) / 1e9,
        "million keys": factor * levels["keys"] / 1e6,
    }


def _predicted(load: Load, n_slices: int) -> dict[str, float]:
    rows_s = FLEET * load.rows_together / 60
    need, each = Need(FLEET, n_slices, rows_s), load.predicted(n_slices)
    hours = 24 * FLEET * hour_bytes(load.rows_together * HOUR, n_slices)
    return {
        "CPU of service and workers, cores": need.cores,
        "CPU of the store, parts of its thread": need.store_cores,
        "commands per second": each["commands per batch"] * need.batches_s,
        "GB in the store": (hours + need.id_bytes) / 1e9,
        "GB of batch ids, as counted": need.id_bytes / 1e9,
        "million keys": 24 * FLEET * each["keys per model and hour"] / 1e6,
    }


def _shares(measured: dict[str, float]) -> dict[str, float]:
    """Return how much of the deployment of docs/state.md one day uses."""
    return {
        f"cores, of {CORES}": measured["CPU of service and workers, cores"] / CORES,
        f"store CPU, of {100 * STORE_CPU:.0f} % of its thread": measured[
            "CPU of the store, parts of its thread"
        ]
        / STORE_CPU,
        f"store memory after the first day, of {STORE_MEMORY / 1e9:.3g} GB": 1e9
        * measured["GB in the store"]
        / STORE_MEMORY,
        f"batch ids, of {ID_MEMORY / 1e9:.3g} GB": 1e9
        * measured["GB of batch ids, as counted"]
        / ID_MEMORY,
    }
