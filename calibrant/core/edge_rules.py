"""Rules by which a score counts as on an edge of bins. A rule is a property of the row and stays with it.

A score of 0.4 of a float32 network is 0.4000000059604645, and of a float16 network 0.39990234375. Both are on the edge 0.4, not in
the bin beside it. Only the position of a score changes, never a sum. Rows that were filled before this rule existed are
`EXACT`, and have to be subtracted from the cells that they were added to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats

# x is on the edge e if x = e; or also if x = float32(e), for any number; or also if x = e rounded to the type that x had.
EXACT, FLOAT32, FLOAT16, BFLOAT16 = range(4)
N_RULES = 4
_RULES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
# A float32 differs from the number that it rounds by at most this share; the factor two covers the product's own rounding.
FLOAT32_ROUNDING = 2.0**-23

Rules = NDArray[np.uint8]


def rule_of_type(name: str) -> int:
    """Return the rule of scores whose array has a type of this name.

    Examples
    --------
    >>> rule_of_type("bfloat16"), rule_of_type("float64")
    (3, 1)
    """
    return _RULES.get(name, FLOAT32)


def on_edges(score: Floats, n_bins: int, rules: Rules | None = None) -> Floats:
    """Return scores, with the edge k / n_bins instead of those that count as on it.

    Parameters
    ----------
    score : float64 (..., n), in [0, 1]
    n_bins : int, at least 1
    rules : uint8 (n,), of each row; None for `FLOAT32`

    Examples
    --------
    >>> on_edges(np.array([np.float32(0.3), 0.3 + 1e-9], np.float64), 10).tolist()
    [0.3, 0.300000001]
    >>> half = np.array([np.float16(0.7)] * 2, np.float64)
    >>> on_edges(half, 10, np.array([FLOAT32, FLOAT16], np.uint8)).tolist()
    [0.7001953125, 0.7]
    """
    nearest = np.rint(score * n_bins)
    near = np.abs(score * n_bins - nearest) <= nearest * FLOAT32_ROUNDING
    if rules is not None:
        near &= rules != EXACT
    if near.any():
        edge = nearest / n_bins
        near &= edge.astype(np.float32).astype(np.float64) == score
        score = np.where(near, edge, score)
    if rules is not None:
        for rule in (FLOAT16, BFLOAT16):
            score = _on_typed_edges(score, n_bins, rule, rules == rule)
    return score


def on_given_edges(score: Floats, edges: Floats, rules: Rules | None = None) -> Floats:
    """Return scores, with one of these increasing edges instead of those that count as on it; as `on_edges`.

    Examples
    --------
    >>> on_given_edges(np.array([np.float32(0.9), 0.91], np.float64), np.array([0.0, 0.9, 1.0])).tolist()
    [0.9, 0.91]
    """
    exact = np.zeros(len(score), np.bool_) if rules is None else np.asarray(rules == EXACT)
    score = _replaced(score, edges.astype(np.float32).astype(np.float64), edges, ~exact)
    if rules is not None:
        score = _replaced(score, _float16(edges), edges, rules == FLOAT16)
        score = _replaced(score, _bfloat16(edges), edges, rules == BFLOAT16)
    return score


def _replaced(score: Floats, values: Floats, edges: Floats, own: NDArray[np.bool_]) -> Floats:
    """Return scores with the edge whose rounded value they equal, where `own`; both increase."""
    if not own.any():
        return score
    place = np.minimum(np.searchsorted(values, score), len(values) - 1)
    return np.where((values[place] == score) & own, edges[place], score)


def _on_typed_edges(score: Floats, n_bins: int, rule: int, own: NDArray[np.bool_]) -> Floats:
    return _replaced(score, *_typed_edges(n_bins, rule), own) if own.any() else score


@lru_cache(maxsize=64)
def _typed_edges(n_bins: int, rule: int) -> tuple[Floats, Floats]:
    """Return the rounded edges, and of the edges that each one rounds that of the fewest bins: 7 / 10 before 2521 / 3600."""
    k = np.arange(n_bins + 1)
    edges = k / n_bins
    rounded = _float16(edges) if rule == FLOAT16 else _bfloat16(edges)
    order = np.lexsort((-np.gcd(k, n_bins), rounded))
    values, first = np.unique(rounded[order], return_index=True)
    return values, edges[order][first]


def _float16(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float64)


def _bfloat16(values: Floats) -> Floats:
    """Round to float32, as its conversions do, and then to the nearest multiple of 2^16 of its bits, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(
        0xFFFF0000
    )
    return bits.view(np.float32).astype(np.float64)


def rules_of(n: int, rule: int) -> Rules | None:
    """Return the rules of n rows of one rule; None for `FLOAT32`."""
    return None if rule == FLOAT32 else np.full(n, rule, np.uint8)


def known_rules(rules: Any, n: int) -> Rules:
    """Return the rules of n rows, which have `FLOAT32` where a batch states none."""
    return np.full(n, FLOAT32, np.uint8) if rules is None else rules


def stated_rules(rules: Rules) -> Rules | None:
    """Return the rules as a batch states them: None where all are `FLOAT32`."""
    return None if (rules == FLOAT32).all() else rules
