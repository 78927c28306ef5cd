"""Tables of simulated predictions for the recipes: Parquet files with units, sites and event times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import calibrant as cal

SPEC = cal.PaneSpec("multiclass", 5)
START_US = 1_790_000_000_000_000 // 3_600_000_000 * 3_600_000_000
COLUMNS = {"unit": "patient", "time": "event_time", "every": "1h"}
SITES = np.array(["A", "B", "C"])


def table(n: int, seed: int = 0) -> pa.Table:
    """Rows of 12 h; a patient has eight of them, mostly at different sites and times."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.standard_normal((n, SPEC.n_classes), dtype=np.float32)
    scores = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    drawn = rng.random((n, 2, 1), dtype=np.float32)
    labels = (scores.cumsum(1)[:, None] < drawn).sum(2).clip(0, SPEC.n_classes - 1)
    flat = pa.array(scores.ravel())
    return pa.table(
        {
            "probabilities": pa.FixedSizeListArray.from_arrays(flat, SPEC.n_classes),
            "labels": pa.array(list(labels.astype(np.int8))),
            "patient": pa.array(np.char.add("p", rng.integers(0, n // 8, n).astype(str))),
            "site": pa.array(SITES[rng.integers(0, 3, n)]),
            "event_time": pa.array(
                START_US + rng.integers(0, 12 * 3_600_000_000, n), pa.timestamp("us", "UTC")
            ),
        }
    )


def write(rows: pa.Table, folder: Path, n_files: int = 3) -> list[str]:
    """Write the rows as Parquet files, which divide patients; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // n_files)
    paths = [str(folder / f"{i}.parquet") for i in range(n_files)]
    for i, path in enumerate(paths):
        pq.write_table(rows.slice(i * size, size), path, row_group_size=2000)
    return paths


def with_lists(rows: pa.Table) -> pa.Table:
    """Return the rows with scores as lists: Delta and Iceberg have no lists of a fixed size."""
    scores = rows["probabilities"].cast(pa.list_(pa.float32()))
    return rows.set_column(0, "probabilities", scores)
