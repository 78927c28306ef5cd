"""Maps with several parameters per class, from the stored sample of a window, on labels that the fit has not seen.

    python -m benchmarks.many_parameter_maps                    simulated rows
    python -m benchmarks.many_parameter_maps cifar10h.npz       halves of an archive with `counts`, `y_true` and `logits_...`

Prints the NLL on other rows as sent, after the temperature of the complete window, and after each map of the window's sample and
of all rows. Simulated rows are of ten classes in units of five, one class rare.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.sample import WINDOW_BYTES
from calibrant.calibrators import Options, apply, fit
from calibrant.calibrators.labelled_rows import labelled_rows
from calibrant.calibrators.row_losses import mean_by_unit, row_losses
from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.routing import split_batch
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View

METHODS = ("class_temperature", "vector", "dirichlet")
DAY_BYTES = 1 << 20
SIZES = (5_000, 50_000, 200_000)
RARE = 0.002
Floats = NDArray[np.float64]


def simulated(rng: np.random.Generator, n: int, n_classes: int = 10) -> dict[str, Any]:
    """Rows in units of five that share a part of their logits; slopes and intercepts differ by class."""
    units = np.arange(n) // 5
    bias = np.log(np.append(np.full(n_classes - 1, 1.0), RARE * n_classes))
    shared = rng.normal(size=(n // 5 + 1, n_classes))[units]
    truth = 2.0 * (0.6 * shared + 0.8 * rng.normal(size=(n, n_classes))) + bias
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    slopes = np.linspace(1.3, 2.2, n_classes)
    logits = truth * slopes + np.linspace(-0.5, 0.5, n_classes)
    return {"logits": logits, "labels": labels, "units": [f"u{u}" for u in units]}


def halves(path: str, rng: np.random.Generator) -> Iterator[tuple[str, Batch, Batch]]:
    """Two halves of each network's rows, each to be fitted and tested."""
    archive = np.load(path)
    networks = sorted(each for each in archive.files if each.startswith("logits_"))
    for name, labels in product(networks, ("counts", "y_true")):
        parts = []
        for half in np.array_split(rng.permutation(len(archive["counts"])), 2):
            columns = {"logits": archive[name][half].astype(float), "ids": [f"i{i}" for i in half]}
            columns["label_counts" if labels == "counts" else "labels"] = archive[labels][half]
            parts.append(Batch.from_columns(columns).batch)
        yield f"{name} {labels} a", parts[0], parts[1]
        yield f"{name} {labels} b", parts[1], parts[0]


def window_of(batch: Batch) -> Pane:
    """A window of one day, as the service stores it."""
    day = Pane(PaneSpec(batch.task, batch.n_classes), sample_bytes=DAY_BYTES)
    for part in split_batch(batch):
        day.fill_batch(part)
    return Pane.for_window(day.spec).merge_all([day])


def compare(name: str, batch: Batch, test: Batch, raters: str = "mean") -> None:
    """Print the NLL of each map on other rows."""
    pane, pane_query = window_of(batch), PaneQuery(bins=15, raters=raters)
    views = {"sample": View(pane, pane_query), "all rows": View(pane, pane_query, batch)}
    rows = labelled_rows(test, views["sample"].policy)
    common = fit("temperature", views["sample"], evaluate=False)
    of_temperature = row_losses(rows, apply(common, test))["nll"]
    sample = pane.sample
    mean = float(of_temperature.sum() / rows.weight.sum())
    raw = float(row_losses(rows, rows.probabilities)["nll"].sum() / rows.weight.sum())
    print(
        f"{name}: {sample.n} of {batch.n} rows; raw {raw:.4f}, temperature {mean:.4f}", flush=True
    )
    for method in METHODS:
        for source, view in views.items():
            began = process_time()
            fitted = fit(method, view, Options(), evaluate=False)
            seconds = process_time() - began
            if fitted["parameters"] is None:
                print(f"  {method} {source}: {fitted['reason']} ({seconds:.1f} s)")
                continue
            losses = row_losses(rows, apply(fitted, test))["nll"]
            gain = mean_by_unit(of_temperature - losses, rows.weight, rows.unit, 0.95)
            low, high = gain["interval"]
            error = (high - low) / 2 / 1.96
            value = float(losses.sum() / rows.weight.sum())
            print(
                f"  {method} {source}: {value:.4f}, better than the temperature by {gain['value']:+.4f} (standard error {error:.4f}), "
                f"factor {fitted['regularisation']}, {len(fitted['classes_at_temperature'])} classes at T ({seconds:.1f} s)",
                flush=True,
            )


def main(paths: list[str]) -> None:
    """Run the comparison on archives, or on simulated rows."""
    rng = np.random.default_rng(20261122)
    for path in paths:
        for name, batch, test in halves(path, rng):
            compare(name, batch, test)
    if not paths:
        print(f"windows of one day; at most {WINDOW_BYTES} bytes of rows in longer ones")
        test = Batch.from_columns(simulated(rng, 100_000)).batch
        for n in SIZES:
            compare(f"simulated {n}", Batch.from_columns(simulated(rng, n)).batch, test, "pooled")


if __name__ == "__main__":
    main(sys.argv[1:])
