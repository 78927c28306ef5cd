"""Batches of odd rows, and what metrics of formulas give for them, for tests of the notions of calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics import METRICS, compute_metrics
from calibrant.metrics.formula_metric import FormulaMetric
from tests.calibrant.reference import POLICIES

OURS = tuple(slug for slug, metric in METRICS.items() if isinstance(metric, FormulaMetric))
ERRORS = tuple(
    slug
    for slug in OURS
    if METRICS[slug].direction == "lower"
    and slug not in ("hosmer_lemeshow", "corp_uncertainty", "uce", "rater_statistic")
)
policies = pytest.mark.parametrize("raters", POLICIES)


def batch_of(
    seed: int,
    n: int = 36,
    n_classes: int = 3,
    raters: int = 4,
    weights: bool = True,
    units: bool = False,
) -> Batch:
    """Rows with ties: probabilities in twentieths, and rows that nobody typed."""
    rng = np.random.default_rng(seed)
    typed = rng.multinomial(20, rng.dirichlet(np.ones(n_classes), n)) / 20
    rows = np.where(rng.random((n, 1)) < 0.5, typed, rng.dirichlet(np.ones(n_classes), n))
    counts = rng.multinomial(
        rng.integers(1, raters + 1, n), rows**1.5 / (rows**1.5).sum(1, keepdims=True)
    )
    columns: dict[str, Any] = {"probabilities": rows, "label_counts": counts}
    if weights:
        columns["weights"] = rng.choice([0.5, 1.0, 2.0], n)
    if units:
        columns["units"] = [f"u{k}" for k in rng.integers(0, n // 3, n)]
    task = "binary" if n_classes == 2 else "multiclass"
    return Batch.from_columns(columns, task=task).batch


def pane_of(batch: Batch) -> Pane:
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    return pane


def asked(
    batch: Batch,
    slugs: tuple[str, ...] | str,
    raw: bool = True,
    pane_query: PaneQuery | None = None,
    **options: Any,
) -> dict[str, dict[str, Any]]:
    complete = pane_query or PaneQuery()
    view = View(
        pane_of(batch), PaneQuery(**(vars(complete) | {"options": options})), batch if raw else None
    )
    return compute_metrics(view, [slugs] if isinstance(slugs, str) else slugs)


def value(
    batch: Batch, slug: str, raw: bool = True, pane_query: PaneQuery | None = None, **options: Any
) -> float:
    found = asked(batch, slug, raw, pane_query, **options)[slug]
    assert found["value"] is not None, found
    return float(found["value"])


def readings(
    batch: Batch, slugs: tuple[str, ...], raw: bool, pane_query: PaneQuery
) -> dict[str, dict[str, Any]]:
    """Values with what they were made of, without intervals and null references; None and no more where there is none."""
    view, found = View(pane_of(batch), pane_query, batch if raw else None), {}
    for slug in slugs:
        metric = METRICS[slug]
        assert isinstance(metric, FormulaMetric)
        try:
            reading = metric.read(view)
        except NoResultError:
            reading = None
        found[slug] = (
            {"value": None} if reading is None else {"value": reading.value, **reading.extra}
        )
    return found
