"""Probabilities that were sent as float32: a record stores four bytes each, and their sum.

The output of a float32 network sums to 1 within some 1e-7 and is divided by its sum before it is filled. The filled values
are then not float32 any more. The values sent are, and dividing them again gives the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.packing import PackingError
from calibrant.kernel.declarations import structures
from calibrant.kernel.library import library

Narrowed = tuple[NDArray[np.bool_], NDArray[np.float32], NDArray[np.float64]]


def narrow_scores(scores: NDArray[np.float64], logits: NDArray[np.bool_]) -> Narrowed:
    """Return which rows four bytes a score restore to the same bits, these scores, and the sum that each is divided by.

    Parameters
    ----------
    scores : float64 (n, n_classes), as filled
    logits : bool (n,); logits are never divided
    """
    n, n_columns = scores.shape
    wide, is_logits = np.ascontiguousarray(scores), np.ascontiguousarray(logits)
    fits, totals = np.empty(n, np.bool_), np.empty(n)
    narrow = np.empty((n, n_columns), np.float32)
    rows = structures()["Narrowing"](n, n_columns, wide.ctypes.data, is_logits.ctypes.data)
    library().calibrant_kernel_narrow(
        ctypes.byref(rows), fits.ctypes.data, narrow.ctypes.data, totals.ctypes.data
    )
    return fits, narrow, totals


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
