"""`python -m benchmarks.late_labels`: CPU of a delayed label over HTTP, by the kinds of names that its prediction has.

Each round posts batches of 1,000 labelled predictions of ten classes without ids, then the same with ids and no labels, and
then their labels by id. The ratio is CPU per label over CPU per plain labelled prediction of the same round, with service, workers
and store.
"""

from __future__ import annotations

import argparse
from itertools import count
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.ablation.scenarios import columns_of, send
from benchmarks.requests import Service, served

N, BATCHES = 1000, 5
MIXES = ("", "raters", "units", "slices", "units, slices, raters")
_numbers = count()


def _named(mix: str, n: int) -> dict[str, Any]:
    """Return the names of predictions: units of three rows, and slices of four values."""
    found: dict[str, Any] = {}
    if "units" in mix:
        units = [f"u{next(_numbers)}" for _ in range(-(-n // 3))]
        found["units"] = [units[i // 3] for i in range(n)]
    if "slices" in mix:
        found["slices"] = {"site": [f"site-{i % 4}" for i in range(n)]}
    return found


def _cost_s(service: Service, mix: str) -> tuple[float, float]:
    """Return CPU seconds per plain labelled prediction, and per label."""
    plain = late = 0.0
    for _ in range(BATCHES):
        first = next(_numbers)
        plain += send(service, "/v1/models/plain/predictions", columns_of(N, first))
        body = columns_of(N, first) | {"ids": [f"{first}.{i}" for i in range(N)]}
        labels = [[each] for each in body.pop("labels")]
        model = f"/v1/models/m{MIXES.index(mix)}"
        send(service, f"{model}/predictions", body | _named(mix, N))
        raters = {"raters": [["ann"]] * N} if "raters" in mix else {}
        late += send(service, f"{model}/labels", {"ids": body["ids"], "labels": labels, **raters})
    return plain / (N * BATCHES), late / (N * BATCHES)


def main(rounds: int) -> None:
    """Print one row per mix: medians over the rounds, the first one left out."""
    table = Table("names of a prediction", "label, µs", "plain prediction, µs", "ratio", "range")
    with served() as service:
        for mix in MIXES:
            found = np.array([_cost_s(service, mix) for _ in range(rounds + 1)])[1:]
            plain, late = 1e6 * np.median(found, axis=0)
            ratio = found[:, 1] / found[:, 0]
            spread = f"{ratio.min():.2f} to {ratio.max():.2f}"
            table.add_row(
                mix or "none", f"{late:.1f}", f"{plain:.1f}", f"{np.median(ratio):.2f}", spread
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args().rounds)
