"""Equal data give equal results to rounding, whatever the order and the batches in which they came."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.metrics import METRICS, compute_metrics

N = 150


def views(order: np.ndarray, n_batches: int) -> tuple[View, View]:
    """The pane alone, and the pane with its raw rows."""
    rng = np.random.default_rng(3)
    z = rng.dirichlet(np.ones(3), N)
    columns = {
        "probabilities": z,
        "label_counts": np.array([rng.multinomial(3, row) for row in z]),
        "ids": np.array([f"id{i}" for i in range(N)], dtype=object),
        "cases": np.array([f"case{i // 5}" for i in range(N)], dtype=object),
        "units": np.array([f"unit{i // 2}" for i in range(N)], dtype=object),
    }
    batch = Batch.from_columns({name: values[order] for name, values in columns.items()}).batch
    pane = Pane(PaneSpec("multiclass", 3))
    # Pairs share a unit, and a unit is complete in one batch.
    for part in np.array_split(np.argsort(np.argsort(order // 2, kind="stable")), n_batches):
        pane.merge(filled(batch, part))
    return View(pane, PaneQuery()), View(pane, PaneQuery(), batch)


def filled(batch: Batch, part: np.ndarray) -> Pane:
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch.take(part))
    return pane


def close(found: object, expected: object, where: str) -> None:
    if isinstance(expected, dict):
        for name in expected:
            close(found[name], expected[name], f"{where}/{name}")  # type: ignore[index]
    elif isinstance(expected, list):
        for i, each in enumerate(expected):
            close(found[i], each, f"{where}/{i}")  # type: ignore[index]
    elif isinstance(expected, float):
        # The draws of the kernel error are in single precision.
        rel = 1e-6 if where.startswith("/skce") else 1e-9
        assert found == pytest.approx(expected, rel=rel, abs=1e-12), where
    else:
        assert found == expected, where


def test_order_and_batches_change_no_interval_and_no_null() -> None:
    pairs = np.arange(N).reshape(-1, 2)
    shuffled = np.random.default_rng(5).permutation(pairs).ravel()
    first, again = views(np.arange(N), 1), views(shuffled, 3)
    for one, other in zip(first, again, strict=True):
        found, expected = compute_metrics(other, METRICS), compute_metrics(one, METRICS)
        assert sum(each["null_q95"] is not None for each in expected.values()) > 9
        assert sum("null_worst_case" in each for each in expected.values()) > 20
        close(found, expected, "")
