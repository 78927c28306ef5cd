"""Temperatures by target, and few raters against a full panel, on public ratings with reference numbers.

`python -m benchmarks.science_tables FOLDER` prints them with the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators.temperature.fit import fit_temperature, fit_temperature_exact
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics

Arrays = Mapping[str, NDArray[Any]]
MODELS = {"VGG-16": "logits_vgg16", "ResNet-110": "logits_resnet110"}
# By model: the temperature of each objective, fitted to true labels and to votes.
TEMPERATURES = {
    "VGG-16": {"true": (1.686, 1.963, 1.655), "votes": (2.075, 2.212, 2.035)},
    "ResNet-110": {"true": (1.748, 1.743, 1.810), "votes": (2.553, 2.105, 2.145)},
}
OBJECTIVES = ("nll", "brier", "ece")
# ECE of 15 bins against true labels: raw, at the temperature by NLL, at the one by ECE; against votes: raw, and at the
# temperatures by NLL of true labels and of votes.
ERRORS: dict[str, dict[str, tuple[float | None, ...]]] = {
    "VGG-16": {"true": (0.0398, 0.0141, 0.0123), "votes": (0.0720, 0.0423, 0.0157)},
    "ResNet-110": {"true": (0.0306, 0.0075, 0.0059), "votes": (None, None, None)},
}
FEW: dict[int, tuple[float | None, ...]] = {
    2: (0.1302, 0.0914, 0.01336, 0.01073),
    5: (0.1071, 0.0918, None, None),
    0: (None, 0.0921, None, 0.01081),
}
N_DRAWS = 20


def batch_of(logits: NDArray[Any], **labels: Any) -> Batch:
    columns = {"logits": logits.astype(np.float64), **labels}
    return Batch.from_columns(columns, task="multiclass", n_classes=logits.shape[1]).batch


def pane_of(batch: Batch) -> Pane:
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    return pane


def shown(value: float | None, digits: int = 5) -> str:
    return "-" if value is None else f"{value:.{digits}f}".replace("0.", ".", 1)


def headed(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table


def labels_of(data: Arrays) -> dict[str, dict[str, Any]]:
    return {
        "true": {"labels": data["y_true"].astype(int)},
        "votes": {"label_counts": data["counts"].astype(int)},
    }


def temperatures(data: Arrays) -> Table:
    table = headed(
        "Temperatures, CIFAR-10H", "objective", "model", "labels", "published", "raw rows", "state"
    )
    for model, key in MODELS.items():
        for name, labels in labels_of(data).items():
            batch = batch_of(data[key], **labels)
            pane = pane_of(batch)
            for objective, published in zip(OBJECTIVES, TEMPERATURES[model][name], strict=True):
                raw = fit_temperature_exact(batch, objective=objective)["temperature"]
                kept = fit_temperature(pane, objective=objective)["temperature"]
                table.add_row(
                    objective, model, name, *(shown(v, 3) for v in (published, raw, kept))
                )
    return table


def scaled_errors(data: Arrays) -> Table:
    """ECE before and after scaling by the temperatures above."""
    table = headed(
        "ECE at a temperature, CIFAR-10H, 15 bins",
        "against",
        "model",
        "temperature",
        "published",
        "ours",
    )
    for model, key in MODELS.items():
        for against, labels in labels_of(data).items():
            for (fitted, divisor), published in zip(
                divisors(data, key, against), ERRORS[model][against], strict=True
            ):
                batch = batch_of(data[key] / divisor, **labels)
                value = compute_metrics(View(pane_of(batch), PaneQuery()), ["ece"])["ece"]["value"]
                table.add_row(against, model, fitted, shown(published, 4), shown(value, 4))
    return table


def divisors(data: Arrays, key: str, against: str) -> Iterator[tuple[str, float]]:
    yield "none", 1.0
    fits = (
        (("true", "nll"), ("true", "ece"))
        if against == "true"
        else (("true", "nll"), ("votes", "nll"))
    )
    for name, objective in fits:
        found = fit_temperature_exact(
            batch_of(data[key], **labels_of(data)[name]), objective=objective
        )
        yield f"{objective} of {name}", found["temperature"]


def few_raters(data: Arrays) -> Table:
    """Return the mean over draws of some of each row's ratings; 0 raters means all of them."""
    names = ("EL plug-in", "EL", "CL plug-in", "CL")
    table = headed(
        f"Few raters, VGG-16 on CIFAR-10H, mean of {N_DRAWS} draws", "raters", "from", *names
    )
    rng = np.random.default_rng(0)
    counts = data["counts"].astype(int)
    for raters, published in FEW.items():
        seen = []
        for _ in range(N_DRAWS if raters else 1):
            votes = rng.multivariate_hypergeometric if raters else None
            drawn = counts if votes is None else np.stack([votes(row, raters) for row in counts])
            batch = batch_of(data["logits_vgg16"], label_counts=drawn)
            found = compute_metrics(
                View(pane_of(batch), PaneQuery()), ("epistemic_loss", "calibration_loss")
            )
            seen.append([found[slug][part] for slug in found for part in ("plugin", "value")])
        name = str(raters or "all")
        table.add_row(name, "published", *(shown(v, 5) for v in published))
        table.add_row(name, "ours", *(shown(v, 5) for v in np.mean(seen, axis=0)))
    return table
