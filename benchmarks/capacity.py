"""`python -m benchmarks.capacity`: the tables of docs/state.md, derived from measured sizes and costs.

A model with ten classes, one label per prediction, float32 scores, hourly panes that are merged into days after 14 days, and 30 days of
retention; no ids. Slices are keys of five values, among which the rows divide evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calibrant.core.spec import PaneSpec
from calibrant_server.workers.ingest.cached_pane import MAX_TAIL_BYTES, estimated_pane_bytes
from calibrant_server.workers.ingest.partition_loop import COMMIT_WRITE_RATE

N_CLASSES = 10
SPEC = PaneSpec("multiclass", N_CLASSES)
HOURS, DAYS = 14 * 24, 16
N_VALUES = 5
# Packed bytes of a pane without its sample, by its rows; `tests/test_capacity.py` fills panes and compares.
ROWS = (1, 10, 100, 1_000, 8_000, 64_000, 1_000_000)
PACKED = (10_000, 15_700, 47_200, 135_600, 270_800, 358_600, 393_000)
# A row in a tail, and what a tail takes besides: Redis' own bytes included.
ROW_BYTES, TAIL_BYTES = 48, 600
SAMPLE_ROW, SAMPLE_BYTES = 4 * N_CLASSES + 36, 1 << 20
# Per model and slice: the versions of its panes, 60 bytes for each.
VERSION_BYTES = 60
# Of a day in files, the store has the name of its file, and the versions; `tests/workers/cold_days` compares.
COLD_DAY_BYTES = 700
# CPU in seconds, of two shared cores under load; docs/state.md says how each was measured.
ROW_S, MERGE_ROW_S, STORE_ROW_S = 11e-6, 5e-6, 0.45e-6
BATCH_S, MERGE_BATCH_S, STORE_BATCH_S = 8e-3, 4e-3, 0.9e-3
COMMANDS_A_BATCH = 75.0
MAX_ROWS_TOGETHER = 10_000
# A batch id is stored for a day.
ID_BYTES, ID_S = 300, 86_400
# What one deployment has in the table: a server of 64 GB of which 60 % are filled, whose one thread runs at 60 %; 32 cores for
# service and workers; and the defaults of the settings.
STORE_MEMORY, STORE_CPU, CORES, PARTITIONS = 64e9 * 0.6, 0.6, 32, 64
ID_MEMORY = 2 << 30


def packed_bytes(rows: float) -> float:
    """Return the bytes of a pane as sums."""
    if rows <= 0:
        return 0.0
    return float(np.exp(np.interp(np.log(rows), np.log(ROWS), np.log(PACKED))))


def sums_bytes(rows: float, n_slices: int) -> float:
    """Return the bytes of the panes of all rows and of each slice as sums."""
    return packed_bytes(rows) + n_slices * packed_bytes(rows / N_VALUES)


def is_rows(rows: float, n_slices: int) -> bool:
    """Return whether the rows of a pane are still stored as rows, by the rule of the engine."""
    panes = [rows, *[rows / N_VALUES] * n_slices]
    estimated = sum(estimated_pane_bytes(SPEC, int(each)) for each in panes)
    return ROW_BYTES * rows <= min(MAX_TAIL_BYTES, estimated)


def hour_bytes(rows: float, n_slices: int) -> float:
    """Return the bytes of an hour of a model: rows while small, else sums."""
    versions = (1 + n_slices) * VERSION_BYTES
    if is_rows(rows, n_slices):
        return versions + TAIL_BYTES + ROW_BYTES * rows
    return versions + sums_bytes(rows, n_slices)


def state_bytes(rows_an_hour: float, n_slices: int) -> float:
    """Return the bytes of a model after 30 days, with its samples."""
    a_day = 24 * rows_an_hour
    n_sampled = DAYS if is_rows(rows_an_hour, n_slices) else DAYS + HOURS // 24
    samples = n_sampled * min(SAMPLE_BYTES, SAMPLE_ROW * a_day)
    days = DAYS * sums_bytes(a_day, n_slices)
    return HOURS * hour_bytes(rows_an_hour, n_slices) + days + samples


def cold_bytes(rows_an_hour: float, n_slices: int, merged_after_d: int) -> tuple[float, float]:
    """Return the bytes of a model after 30 days, in the store and in files.

    Days are merged after some days, and are moved to files a day later.
    """
    a_day = 24 * rows_an_hour
    sample = min(SAMPLE_BYTES, SAMPLE_ROW * a_day)
    day = sums_bytes(a_day, n_slices) + sample
    n_open = merged_after_d + 1  # the last one ends while the first one begins
    n_cold = HOURS // 24 + DAYS - n_open - 1
    hours = 24 * n_open * hour_bytes(rows_an_hour, n_slices)
    samples = 0.0 if is_rows(rows_an_hour, n_slices) else n_open * sample
    named = n_cold * (COLD_DAY_BYTES + (1 + n_slices) * VERSION_BYTES)
    return hours + samples + day + named, n_cold * day


def n_keys(rows_an_hour: float, n_slices: int) -> float:
    """Return the keys of a model after 30 days."""
    hourly = 1 if is_rows(rows_an_hour, n_slices) else 1 + n_slices
    return HOURS * hourly + DAYS * (1 + n_slices) + DAYS + (1 + n_slices)


@dataclass(frozen=True)
class Load:
    """Batches of one model."""

    rows_together: int
    batches_an_hour: int

    def predicted(self, n_slices: int) -> dict[str, float]:
        """Return what `make bench-fleet` measures, by the names that it prints."""
        rows = self.rows_together * self.batches_an_hour
        cpu_s = BATCH_S + ROW_S * self.rows_together
        return {
            "CPU of service and workers, ms per batch": 1e3 * cpu_s,
            "CPU of the store, ms per batch": 1e3
            * (STORE_BATCH_S + STORE_ROW_S * self.rows_together),
            "commands per batch": COMMANDS_A_BATCH,
            "kB in the store per model and hour": hour_bytes(rows, n_slices) / 1e3,
            # The tail or the panes, and the ids of the batches.
            "keys per model and hour": self.batches_an_hour
            + (1.0 if is_rows(rows, n_slices) else 1.0 + n_slices),
        }


@dataclass(frozen=True)
class Need:
    """What a fleet needs."""

    n_models: int
    n_slices: int
    rows_s: float

    @property
    def rows_an_hour(self) -> float:
        """Predictions of one model."""
        return 3600 * self.rows_s / self.n_models

    @property
    def batches_s(self) -> float:
        """Batches: at least one per model and minute, at most 10,000 rows in each."""
        return max(self.n_models / 60, self.rows_s / MAX_ROWS_TOGETHER)

    @property
    def id_bytes(self) -> float:
        """Memory of the ids of batches."""
        return ID_BYTES * ID_S * self.batches_s

    @property
    def memory_bytes(self) -> float:
        """Memory of the store after 30 days."""
        return self.id_bytes + self.n_models * state_bytes(self.rows_an_hour, self.n_slices)

    def cold_bytes(self, merged_after_d: int) -> tuple[float, float]:
        """Memory of the store, and bytes of files, after 30 days with old days in files."""
        stored, filed = cold_bytes(self.rows_an_hour, self.n_slices, merged_after_d)
        return self.id_bytes + self.n_models * stored, self.n_models * filed

    @property
    def keys(self) -> float:
        """Keys of the store after 30 days."""
        return ID_S * self.batches_s + self.n_models * n_keys(self.rows_an_hour, self.n_slices)

    @property
    def cores(self) -> float:
        """Cores of service and workers together."""
        return self.batches_s * BATCH_S + self.rows_s * ROW_S

    @property
    def store_cores(self) -> float:
        """Part of the store's one thread."""
        return self.batches_s * STORE_BATCH_S + self.rows_s * STORE_ROW_S

    @property
    def partition_cores(self) -> float:
        """Part of the one thread that merges a partition, if models are spread evenly."""
        n = min(self.n_models, PARTITIONS)
        return (self.batches_s * MERGE_BATCH_S + self.rows_s * MERGE_ROW_S) / n

    @property
    def partition_writes_s(self) -> float:
        """Bytes of rows that a partition writes per second."""
        return ROW_BYTES * self.rows_s / min(self.n_models, PARTITIONS)

    @property
    def first_limit(self) -> str:
        """The limit that is reached first, and how much of it is used."""
        used = {
            "store memory": self.memory_bytes / STORE_MEMORY,
            "cores": self.cores / CORES,
            "store CPU": self.store_cores / STORE_CPU,
            "batch ids": self.id_bytes / ID_MEMORY,
            "thread of a partition": self.partition_cores,
            "writes of a partition": self.partition_writes_s / COMMIT_WRITE_RATE,
        }
        name = max(used, key=lambda each: used[each])
        return f"{name}, {100 * used[name]:.2g} %"


NEEDS = [
    Need(n_models, n_slices, rows_s)
    for n_models in (1, 100, 10_000)
    for n_slices in (0, 20)
    for rows_s in (1e3, 1e4, 1e5, 1e6)
]


def size(n_bytes: float) -> str:
    """Return bytes with a unit.

    >>> size(1234), size(5.6e10), size(4e12)
    ('1.23 kB', '56 GB', '4 TB')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.3g} {unit}"
    return f"{n_bytes:.3g} B"


def table() -> Iterator[str]:
    """Yield the lines of the table in docs/state.md."""
    yield "| models | slices | predictions/s | store, 30 d | keys | cores | batches/s | store CPU | reached first |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for need in NEEDS:
        yield (
            f"| {need.n_models:,} | {need.n_slices} | {need.rows_s:,.0f} | {size(need.memory_bytes)} | {need.keys:.2g} | "
            f"{need.cores:.2g} | {need.batches_s:.3g} | {100 * need.store_cores:.2g} % | {need.first_limit} |"
        )


def cold_table() -> Iterator[str]:
    """Yield the lines of the table with old days in files in docs/state.md."""
    yield "| models | slices | predictions/s | store, no files | merged after 14 days | files | merged after 1 day | files |"
    yield "|---|---|---|---|---|---|---|---|"
    for need in NEEDS:
        if need.n_models > 1 and need.rows_s < 1e6:
            cells = [size(each) for after in (14, 1) for each in need.cold_bytes(after)]
            yield (
                f"| {need.n_models:,} | {need.n_slices} | {need.rows_s:,.0f} | {size(need.memory_bytes)} | {' | '.join(cells)} |"
            )


if __name__ == "__main__":
    print("\n".join(table()))
    print()
    print("\n".join(cold_table()))
