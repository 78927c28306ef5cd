"""Rows on which libraries differ: scores on bin edges, exact zeros and ones, ties, gaps of both signs."""

from __future__ import annotations

import numpy as np

from calibrant.peers import ScoredRows


def binary(seed: int, n: int, form: str) -> ScoredRows:
    """Scores of class 1: `plain`, on the `edges` of bins, or rounded to ten values (`tied`)."""
    rng = np.random.default_rng(seed)
    score = rng.beta(1.2, 0.9, n)
    if form == "edges":
        score = np.where(rng.random(n) < 0.6, np.round(score * 20) / 20, score)
    elif form == "tied":
        score = np.round(score, 1)
    chance = np.clip(score + 0.25 * np.sin(7 * score), 0.02, 0.98)
    label = (rng.random(n) < chance).astype(np.int64)
    return ScoredRows(
        np.column_stack([1 - score, score]), label, score, label.astype(float), one_class=True
    )


def top_class(seed: int, n: int, n_classes: int, form: str) -> ScoredRows:
    """Rows of several classes; with `edges` a tenth of them are certain."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(n_classes, 0.7), n)
    p = truth ** rng.uniform(0.4, 2.0, (n, 1))
    p /= p.sum(axis=1, keepdims=True)
    label = (rng.random((n, 1)) > truth.cumsum(axis=1)[:, :-1]).sum(axis=1)
    if form == "edges":
        certain = rng.random(n) < 0.1
        p[certain] = np.eye(n_classes)[p[certain].argmax(axis=1)]
    top = p.argmax(axis=1)
    correct = (top == label).astype(float)
    return ScoredRows(p, label, p[np.arange(n), top], correct, one_class=False)


CASES = {
    f"{kind}-{form}-{n}-{bins}": (kind, form, n, bins)
    for kind in ("binary", "top")
    for form, n, bins in [
        ("plain", 700, 15),
        ("edges", 400, 20),
        ("edges", 90, 10),
        ("tied", 300, 10),
    ]
    if kind == "binary" or form != "tied"
}


def rows_of(case: str) -> tuple[ScoredRows, int]:
    """Return the rows of a case and its number of bins."""
    kind, form, n, bins = CASES[case]
    made = binary(n + bins, n, form) if kind == "binary" else top_class(n + bins, n, 4, form)
    return made, bins
