"""Hostile but legal data: edge scores, ties, ragged raters, unlabelled rows, weights, units, cases."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from calibrant import Batch, PaneSpec

DENORMAL = 5e-324


def edge_scores(cells: int) -> np.ndarray:
    """Scores at, just below and just above edges of a grid, with the limits of float64."""
    edges = np.array([0, 1, cells // 2, cells - 1, cells]) / cells
    tenths = np.arange(11) / 10
    fine = np.ldexp(1.0, -np.arange(1, 40)) / cells
    exact = np.concatenate([edges, tenths, fine, 1.0 - fine, [DENORMAL, 1e-310, 1e-16, 0.5]])
    near = np.concatenate([exact, np.nextafter(exact, 0.0), np.nextafter(exact, 1.0)])
    return np.unique(near[(near >= 0.0) & (near <= 1.0)])


def random_columns(
    rng: np.random.Generator,
    n: int,
    n_classes: int,
    *,
    logits: bool = False,
    weights: bool = False,
    units: str | None = None,
    most_raters: int = 1,
    unlabelled: float = 0.0,
    prefix: str = "",
    binary: bool = False,
) -> dict[str, Any]:
    """Columns of a request; `prefix` keeps the names of one batch apart from another's."""
    columns: dict[str, Any] = {}
    if logits:
        columns["logits"] = rng.normal(
            scale=rng.choice([0.1, 3.0, 60.0], n)[:, None], size=(n, n_classes)
        )
    elif binary:
        columns["confidences"] = np.where(
            rng.random(n) < 0.5, rng.choice(edge_scores(3600), n), rng.random(n)
        )
    else:
        columns["probabilities"] = probability_rows(rng, n, n_classes)
    raters = rng.integers(1, most_raters + 1, n)
    labels: list[Any] = [rng.integers(0, n_classes, r).tolist() for r in raters]
    if most_raters == 1:
        labels = [row[0] for row in labels]
    columns["labels"] = [None if rng.random() < unlabelled else row for row in labels]
    if weights:
        columns["weights"] = rng.choice([0.0, 0.25, 1.0, 3.5], n)
    if units is not None:
        columns[units] = [f"{prefix}{k}" for k in rng.integers(0, max(1, n // 3), n)]
    else:
        columns["ids"] = [f"{prefix}{i}" for i in range(n)]
    return columns


def probability_rows(rng: np.random.Generator, n: int, n_classes: int) -> np.ndarray:
    """Rows that sum to 1: smooth ones, one-hot ones, flat ones, and ones with an edge score in a random class."""
    rows = rng.dirichlet(np.full(n_classes, 0.3), n)
    kind = rng.integers(0, 4, n)
    rows[kind == 1] = np.eye(n_classes)[rng.integers(0, n_classes, (kind == 1).sum())]
    rows[kind == 2] = 1.0 / n_classes
    scores = edge_scores(1200)
    for i in np.flatnonzero(kind == 3):
        first, second = rng.choice(n_classes, 2, replace=False)
        rows[i] = 0.0
        rows[i, first] = rng.choice(scores)
        rows[i, second] = 1.0 - rows[i, first]
    return rows


def random_batch(rng: np.random.Generator, spec: PaneSpec, n: int, **options: Any) -> Batch:
    columns = random_columns(rng, n, spec.n_classes, **options)
    return Batch.from_columns(columns, task=spec.task, n_classes=spec.n_classes).batch


def shapes() -> st.SearchStrategy[dict[str, Any]]:
    """Options of `random_columns` and a seed."""
    return st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**32 - 1),
            "n": st.integers(1, 40),
            "logits": st.booleans(),
            "weights": st.booleans(),
            "units": st.sampled_from([None, "units", "cases"]),
            "most_raters": st.sampled_from([1, 3, 60]),
            "unlabelled": st.sampled_from([0.0, 0.3, 1.0]),
        }
    )
