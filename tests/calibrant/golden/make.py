"""Packed things of every generation, made once and read forever.

    python tests/calibrant/golden/make.py

writes the files that are missing and does not change the others: users may still have data of the versions that wrote
them. When a format number rises or an accumulator is added, raise `GENERATION`, then run the command: it adds new files
to the old ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import Batch, Histogram, Pane, PaneSpec
from calibrant.accumulators.delays import delay_bin

HERE = Path(__file__).parent
SPECS = {
    "binary": PaneSpec("binary", 2, grid=60),
    "multiclass": PaneSpec("multiclass", 3, grid=60),
    "segmentation": PaneSpec("segmentation", 4, grid=60, listed_classes=(1, 3)),
    "logits": PaneSpec("multiclass", 2, grid=60),
}
GENERATION = 6
N = 40


def columns(n_classes: int) -> dict[str, Any]:
    """Forty rows without chance: sevenths and ninths of a row's mass, one to three raters, every fifth unlabelled."""
    k = np.arange(N)
    rows = np.zeros((N, n_classes))
    rows[k, k % n_classes] = (k % 8 + 1) / 8
    rows[k, (k + 1) % n_classes] += 1.0 - (k % 8 + 1) / 8
    labels = [
        None if i % 5 == 4 else [(i * j) % n_classes for j in range(1, i % 3 + 2)] for i in range(N)
    ]
    return {
        "probabilities": rows.tolist(),
        "labels": labels,
        "ids": [f"id-{i}" for i in range(N)],
        "units": [f"patient-{i // 3}" for i in range(N)],
        "event_times": [f"2026-11-20T09:00:{i:02d}Z" for i in range(N)],
        "slices": {"site": ["A" if i % 2 else "B" for i in range(N)]},
        "weights": [1 + i % 4 / 4 for i in range(N)],
    }


def batch(task: str) -> Batch:
    given = columns(SPECS[task].n_classes)
    if task == "logits":
        rows = np.array(given.pop("probabilities"))
        given["logits"] = (16.0 * rows - 4.0 + np.arange(N)[:, None] / 8).tolist()
        given["logits"][3:5] = [[0.0, -1e9], [2.0**21, 2.0**21 - 1.0]]
        given["cases"] = [f"scan-{i // 8}" for i in range(N)]
    return Batch.from_columns(given, task=SPECS[task].task).batch


def pane(task: str) -> Pane:
    result = Pane(SPECS[task])
    timed = replace(batch(task), delays=delay_bin(np.arange(N) ** 4))
    result.fill_batch(timed)
    result.fill_batch(timed)
    result.fill_histogram(histogram(task))
    return result


def histogram(task: str) -> Histogram:
    count = np.arange(120.0)
    fields = {
        "kind": "top_label", "bins": 120, "count": count, "sum_confidence": count * (np.arange(120) + 0.5) / 120,
        "sum_correct": count / 2, "n_predictions": count, "n_units": 5, "unit": "patient-1", "case": "scan-1",
        "event_time": "2026-11-20T09:00:00Z", "slice": {"site": "A"}, "raters": "mean", "edges": "left",
    }  # fmt: skip
    return Histogram.from_fields(fields, SPECS[task])


def packed() -> dict[str, bytes]:
    """File name to bytes, as this version writes them."""
    things: dict[str, Batch | Pane | Histogram] = {
        f"pane-{task}.{GENERATION}": pane(task) for task in SPECS
    }
    things |= {
        f"batch.{GENERATION}": batch("multiclass"),
        f"histogram.{GENERATION}": histogram("multiclass"),
    }
    return {f"{name}.packed": thing.pack() for name, thing in things.items()}


if __name__ == "__main__":
    for name, data in packed().items():
        if not (HERE / name).exists():
            (HERE / name).write_bytes(data)
