"""Probabilities that were sent as float32: a record stores four bytes each, and their sum.

The output of a float32 network sums to 1 within some 1e-7 and is divided by its sum before it is filled. The filled values
are then not float32 any more. The values sent are, and dividing them again gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import PackingError

Floats = NDArray[np.float64]
Narrowed = tuple[NDArray[np.bool_], NDArray[np.float32], Floats]
# The sum of a float32 softmax deviates by a few of its rounding units: the search range for the largest score, likely ones first.
_UNITS = (0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7, -8, 8)
_ROUNDING = 2.0**-51
# Scores that are narrowed at a time: what is computed from them stays in the cache of a core.
BLOCK = 2**17


def narrow_scores(scores: Floats, logits: NDArray[np.bool_]) -> Narrowed:
    """Return which rows four bytes a score restore to the same bits, these scores, and the sum that each is divided by.

    Parameters
    ----------
    scores : float64 (n, n_classes), as filled
    logits : bool (n,); logits are never divided
    """
    n, n_classes = scores.shape
    step = max(BLOCK // n_classes, 1)
    parts = [
        _narrowed(scores[first : first + step], logits[first : first + step])
        for first in range(0, max(n, 1), step)
    ]
    fits, narrow, totals = map(np.concatenate, zip(*parts, strict=True))
    return fits, narrow, totals


def _narrowed(scores: Floats, logits: NDArray[np.bool_]) -> Narrowed:
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


def _divided(scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.float32], Floats]:
    """Return the rows that are float32 divided by their sum, these values and the sums."""
    second, top = np.partition(scores, -2, axis=1)[:, -2:].T
    rows, totals = _likely_totals(top, second)
    chosen = scores[rows]
    sent = (chosen * totals[:, None]).astype(np.float32)
    wide = sent.astype(np.float64)
    sums = wide.sum(axis=1)
    same = (wide / sums[:, None] == chosen).all(axis=1)
    return rows[same], sent[same], sums[same]


def _likely_totals(top: Floats, second: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return rows, and for each of them a sum that makes both of its largest scores float32, up to rounding."""
    near = top.astype(np.float32)
    units, near = np.spacing(near).astype(np.float64), near.astype(np.float64)
    left, totals = np.arange(len(top)), np.zeros(len(top))
    for n_units in _UNITS:
        tried = (near[left] + n_units * units[left]) / top[left]
        wanted = second[left] * tried
        fits = np.abs(wanted - wanted.astype(np.float32)) <= _ROUNDING * wanted
        totals[left[fits]] = tried[fits]
        left = left[~fits]
        if not len(left):
            break
    rows = np.flatnonzero(totals)
    return rows, totals[rows]


def pack_scores(scores: NDArray[np.float64], narrowed: Narrowed) -> dict[str, NDArray[Any]]:
    """Return arrays that restore scores, in four bytes where these restore the same bits (`narrow_scores`)."""
    fits, narrow, totals = narrowed
    arrays: dict[str, NDArray[Any]] = {"narrow": narrow[fits], "wide": scores[~fits]}
    if not fits.all() and fits.any():
        arrays["is_narrow"] = fits.astype(np.uint8)
    if (totals != 1.0).any():
        arrays["totals"] = totals[fits]
    return arrays


def unpack_scores(
    arrays: Mapping[str, NDArray[Any]], n: int
) -> tuple[NDArray[np.float64], Narrowed]:
    """Return the scores of n rows that `pack_scores` wrote, and how they narrow.

    Raises
    ------
    PackingError
        The arrays do not fit each other. A missing array is a KeyError, other lengths a ValueError or IndexError.
    """
    narrow, wide = arrays["narrow"], arrays["wide"]
    if narrow.dtype != np.float32 or wide.dtype != np.float64 or narrow.ndim != 2:
        raise PackingError("Received rows without scores.")
    fits = np.full(n, len(narrow) > 0)
    if "is_narrow" in arrays:
        fits = arrays["is_narrow"].astype(np.bool_)
    scores, as_received = np.empty((n, narrow.shape[1])), np.zeros((n, narrow.shape[1]), np.float32)
    values, totals = narrow.astype(np.float64), np.ones(n)
    if "totals" in arrays:
        totals[fits] = arrays["totals"]
        values = values / arrays["totals"][:, None]
    scores[fits], scores[~fits], as_received[fits] = values, wide, narrow
    return scores, (fits, as_received, totals)
