"""Additive hash of the rows of a batch; the specification of the kernel's `content_digest.c`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.content_digest import MODULUS, SOURCES, case_hashes
from calibrant.core.hashing import U64, fmix, mix

# Words of a row before its scores: header, weight, prediction, unit, case.
N_HEAD_WORDS = 5
_FIRST_RATING_KEY = 1 << 32
# Words hashed at a time: they and their intermediate values fit in the processor's second-level cache.
_WORDS_TOGETHER = 1 << 16
Mix = Callable[[U64], U64]
_LANES: tuple[Mix, Mix] = (mix, fmix)


def rows_digest(batch: Batch, *, with_cases: bool) -> int:
    """Add up the hashes of a batch's rows, modulo 2^128.

    Parameters
    ----------
    batch : Batch
    with_cases : whether the pane keeps statistics by case, so that a row's case is part of its content

    Examples
    --------
    >>> one = Batch.from_columns({"confidences": [0.9, 0.2], "labels": [1, 0]}).batch
    >>> other = one.take(np.array([1, 0]))
    >>> rows_digest(one, with_cases=False) == rows_digest(other, with_cases=False)
    True
    """
    high, low = row_hashes(batch, with_cases=with_cases)
    # The low lane is summed in halves, whose sums cannot overflow, so that its carry reaches the high lane.
    upper, lower = (
        int(half.sum(dtype=np.uint64))
        for half in (low >> np.uint64(32), low & np.uint64(0xFFFFFFFF))
    )
    return ((int(high.sum(dtype=np.uint64)) << 64) + (upper << 32) + lower) % MODULUS


def row_hashes(batch: Batch, *, with_cases: bool) -> tuple[U64, U64]:
    """Return the high and low half of each row's hash; uint64 (n,)."""
    head = _head_words(batch, with_cases)
    high, low = (_lane(lane, batch, head) for lane in range(2))
    if batch.unit_source in ("unit", "case"):
        index = np.unique(batch.unit_key, return_inverse=True)[1].reshape(-1)
        return _final(mix, high, index), _final(fmix, low, index)
    return _final(mix, high, None), _final(fmix, low, None)


def _head_words(batch: Batch, with_cases: bool) -> U64:
    """Return the words of each row before its scores, uint64 (`N_HEAD_WORDS`, n)."""
    words = np.zeros((N_HEAD_WORDS, batch.n), np.uint64)
    words[0] = batch.n_classes | batch.is_logits << 32 | SOURCES[batch.unit_source] << 33
    words[1] = _bits(np.ones(1) if batch.weights is None else batch.weights)
    words[2], words[3] = batch.prediction_hash, batch.unit_hash
    if with_cases and batch.cases is not None:
        words[4] = case_hashes(batch)
    return words


def _lane(lane: int, batch: Batch, head: U64) -> U64:
    """Add up the hashes of a row's words and label counts, each with the key of its place; uint64 (n,)."""
    mixed = _LANES[lane]
    keys = _keys(lane, 0, N_HEAD_WORDS + batch.n_classes)[:, None]
    total = np.empty(batch.n, np.uint64)
    step = max(1, _WORDS_TOGETHER // len(keys))
    for start in range(0, batch.n, step):
        rows = slice(start, start + step)
        words = np.concatenate([head[:, rows], _bits(batch.scores[rows]).T])
        total[rows] = mixed(words ^ keys).sum(axis=0, dtype=np.uint64)
    ratings = batch.ratings
    rating_keys = _keys(lane, _FIRST_RATING_KEY, batch.n_classes)
    by_rating = mixed(rating_keys[ratings.class_index] + ratings.count.astype(np.uint64))
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(by_rating, dtype=np.uint64)])
    bounds = np.concatenate([[0], np.cumsum(np.bincount(ratings.row, minlength=batch.n))])
    return np.asarray(total + np.diff(before[bounds]))


def _final(mixed: Mix, lane: U64, unit_index: NDArray[np.int64] | None) -> U64:
    """Mix each row with its unit: rows of a named unit share its weight, so each depends on the others' content."""
    if unit_index is None:
        return mixed(lane + mixed(np.zeros(1, np.uint64)))
    of_unit = np.zeros(int(unit_index.max(initial=-1)) + 1, np.uint64)
    np.add.at(of_unit, unit_index, lane)
    return mixed(lane + mixed(of_unit)[unit_index])


def _keys(lane: int, first: int, n: int) -> U64:
    keys = mix(np.arange(first, first + n, dtype=np.uint64))
    return keys if lane == 0 else fmix(keys)


def _bits(values: NDArray[np.float64]) -> U64:
    """Return the bits of float64 values, with -0.0 as 0.0."""
    return (values + 0.0).view(np.uint64)
