"""Columns of sampled rows for `packing.pack`, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Ratings
from calibrant.core.float32 import pack_scores, unpack_scores
from calibrant.core.sampled_rows import COLUMNS, SampledRows

Columns = Mapping[str, NDArray[Any]]
_PLAIN = tuple(name for name in COLUMNS if name != "scores")


def packed_columns(rows: SampledRows) -> dict[str, NDArray[Any]]:
    """Return rows as arrays: scores in four bytes where these restore the same bits."""
    columns = {name: getattr(rows, name) for name in _PLAIN}
    return (
        columns
        | pack_scores(rows.scores, rows.narrow)
        | {
            "n_votes": np.bincount(rows.ratings.row, minlength=len(rows)),
            "vote_class": rows.ratings.class_index,
            "vote_count": rows.ratings.count,
        }
    )


def unpacked_columns(arrays: Columns) -> SampledRows:
    """Return the rows that `packed_columns` wrote. Their values are not checked.

    A missing array is a KeyError; arrays of other lengths are a ValueError or an IndexError.
    """
    n = len(arrays["ids"])
    ratings = Ratings(
        np.repeat(np.arange(n), arrays["n_votes"]), arrays["vote_class"], arrays["vote_count"]
    )
    columns: dict[str, Any] = {name: arrays[name] for name in _PLAIN}
    scores, narrow = unpack_scores(arrays, n)
    return SampledRows(**columns, scores=scores, ratings=ratings).knowing(narrow)


def first_format(arrays: Columns) -> SampledRows:
    """Return rows of format 1: eight bytes a score, a row number for each rating."""
    ratings = Ratings(*(arrays[f"vote_{name}"] for name in ("row", "class", "count")))
    columns: dict[str, Any] = {name: arrays[name] for name in COLUMNS}
    return SampledRows(**columns, ratings=ratings)
