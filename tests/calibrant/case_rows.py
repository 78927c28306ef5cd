"""Rows of cases for tests, and the naive versions of their errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from tests.calibrant.data import edge_scores

GOLDEN = Path(__file__).parent / "golden" / "cases.1.calb"
SPEC = PaneSpec("segmentation", 3)
SOFT_EMPTY = 0.01


def rows(
    seed: int, n: int, n_classes: int = 3, sharp: float = 1.4
) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident probabilities, some on edges, and one rating each."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=1.5, size=(n, n_classes))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    said = np.exp(sharp * logits) / np.exp(sharp * logits).sum(axis=1, keepdims=True)
    edge = rng.random(n) < 0.2
    said[edge] = 0.0
    said[edge, 0] = rng.choice(edge_scores(600), edge.sum())
    said[edge, 1] = 1.0 - said[edge, 0]
    return said, (true.cumsum(axis=1) > rng.random(n)[:, None]).argmax(axis=1)


def batch_of(
    parts: dict[str, tuple[np.ndarray, np.ndarray]], *, task: str = "segmentation", **columns: Any
) -> Batch:
    given = {
        "probabilities": np.concatenate([p for p, _ in parts.values()]),
        "labels": [
            y if isinstance(y, list) else int(y) for _, labels in parts.values() for y in labels
        ],
        "cases": [name for name, (p, _) in parts.items() for _ in p],
    }
    return Batch.from_columns(
        given | columns,
        task=task,
        n_classes=given["probabilities"].shape[1],  # type: ignore[attr-defined]
    ).batch


def golden_batch() -> Batch:
    return batch_of({name: rows(i, 9) for i, name in enumerate(("knee", "spine"))})


def pane_of(*batches: Batch, spec: PaneSpec = SPEC) -> Pane:
    pane = Pane(spec)
    for batch in batches:
        pane.fill_batch(batch)
    return pane


def view_of(
    pane: Pane, bins: int = 20, edges: Any = "right", raters: str = "pooled", **options: Any
) -> View:
    return View(pane, PaneQuery(bins=bins, edges=edges, raters=raters, options=options))


def some_parts(n_cases: int = 5) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    parts = {f"case-{i}": rows(i, 60 + 17 * i) for i in range(n_cases)}
    p, y = parts["case-1"]
    parts["case-1"] = p, np.where(y == 2, 0, y)  # a class that does not occur
    return parts


# The naive version.


def psi(x: float, m: int, bins: int) -> float:
    """Triangular membership of x in bin m, with flat ends."""
    centre = (m + 0.5) / bins
    if (m == 0 and x < centre) or (m == bins - 1 and x > centre):
        return 1.0
    return max(0.0, 1.0 - bins * abs(x - centre))


def naive_gaps(
    x: np.ndarray, y: np.ndarray, bins: int, membership: str, edges: str = "right"
) -> Iterator[tuple[float, float, float]]:
    """(weight, e, o) of the bins that are not empty, row by row."""
    for m in range(bins):
        weight = confidence = correct = 0.0
        for score, hit in zip(x.tolist(), y.tolist(), strict=True):
            if membership == "soft":
                share = psi(score, m, bins)
            elif edges == "right":
                share = float(m / bins < score <= (m + 1) / bins or (m == 0 and score == 0.0))
            else:
                share = float(
                    m / bins <= score < (m + 1) / bins or (m == bins - 1 and score == 1.0)
                )
            weight, confidence, correct = (
                weight + share,
                confidence + share * score,
                correct + share * hit,
            )
        if weight >= SOFT_EMPTY if membership == "soft" else weight > 0:
            yield weight, confidence / weight, correct / weight


def naive_errors(
    x: np.ndarray, y: np.ndarray, bins: int, membership: str, edges: str = "right"
) -> dict[str, float]:
    found = list(naive_gaps(x, y, bins, membership, edges))
    gaps = [abs(o - e) for _, e, o in found]
    return {
        "ece": sum(w * g for (w, _, _), g in zip(found, gaps, strict=True)) / len(x),
        "ace": float(np.mean(gaps)),
        "mce": max(gaps),
        "ace_all_bins": sum(gaps) / bins,
    }


def naive_micro(
    parts: dict[str, Any], class_index: int, bins: int, membership: str
) -> dict[str, float]:
    """Plain mean over cases of e_m, frequency and counts of all predictions."""
    n = sum(len(p) for p, _ in parts.values())
    gaps, weights = [], []
    for m in range(bins):
        means = []
        totals = np.zeros(2)
        for p, labels in parts.values():
            share = np.array([_member(s, m, bins, membership) for s in p[:, class_index]])
            if share.sum() > (SOFT_EMPTY if membership == "soft" else 0):
                means.append((share * p[:, class_index]).sum() / share.sum())
            totals += [share.sum(), (share * (labels == class_index)).sum()]
        if means:
            gaps.append(abs(totals[1] / totals[0] - np.mean(means)))
            weights.append(totals[0])
    return {"ece": float(np.dot(weights, gaps) / n), "ace": float(np.mean(gaps)), "mce": max(gaps)}


def _member(score: float, m: int, bins: int, membership: str) -> float:
    if membership == "soft":
        return psi(score, m, bins)
    return float(m / bins < score <= (m + 1) / bins or (m == 0 and score == 0.0))
