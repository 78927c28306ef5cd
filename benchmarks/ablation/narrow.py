"""Which rows four bytes a score restore, by numpy: what `calibrant.core.float32.narrow_scores` must equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.float32 import Narrowed

# The sum of a float32 softmax deviates by a few of its rounding units: the search range for the largest score, likely ones first.
_UNITS = (0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7, -8, 8)
_ROUNDING = 2.0**-51


def _divided(
    scores: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
    """Return the rows that are float32 divided by their sum, these values and the sums."""
    second, top = np.partition(scores, -2, axis=1)[:, -2:].T
    rows, totals = _likely_totals(top, second)
    chosen = scores[rows]
    sent = (chosen * totals[:, None]).astype(np.float32)
    wide = sent.astype(np.float64)
    found_totals = wide.sum(axis=1)
    same = wide / found_totals[:, None] == chosen
    if same.all():
        return rows, sent, found_totals
    good = same.all(axis=1)
    return rows[good], sent[good], found_totals[good]


def _likely_totals(
    top: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return rows, and for each of them a sum that makes both of its largest scores float32, up to rounding."""
    near = top.astype(np.float32)
    units, near = np.spacing(near).astype(np.float64), near.astype(np.float64)
    left, totals = np.arange(len(top)), np.empty(len(top))
    for n_units in _UNITS:
        tried = (near[left] + n_units * units[left]) / top[left]
        wanted = second[left] * tried
        fits = np.abs(wanted - wanted.astype(np.float32)) <= _ROUNDING * wanted
        totals[left[fits]] = tried[fits]
        left = left[~fits]
        if not len(left):
            break
    has_total = np.ones(len(top), np.bool_)
    has_total[left] = False
    rows = np.flatnonzero(has_total)
    return rows, totals[rows]


def narrowed(scores: NDArray[np.float64], logits: NDArray[np.bool_]) -> Narrowed:
    totals = np.ones(len(scores))
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32)
    # A comparison by row takes longer than all else, and most rows differ in their first score.
    fits = narrow[:, 0] == scores[:, 0]
    alike = np.flatnonzero(fits)
    fits[alike] = np.all(narrow[alike] == scores[alike], axis=1)
    rest = np.flatnonzero(~fits & ~logits)
    if len(rest):
        places, sent, sums = _divided(scores[rest])
        rows = rest[places]
        narrow[rows], totals[rows], fits[rows] = sent, sums, True
    return fits, narrow, totals
