"""Comparison of the numbers of two panes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.accumulators.block import Block


def close_blocks(mine: Mapping[str, Block], theirs: Mapping[str, Block], rtol: float) -> bool:
    """Compare the cells of an accumulator: the same counts, and sums within the tolerance."""
    return mine.keys() == theirs.keys() and all(
        _close(mine[key].filled(), theirs[key].filled(), rtol) for key in mine
    )


def _close(mine: tuple[Any, Any, Any], theirs: tuple[Any, Any, Any], rtol: float) -> bool:
    if not (np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])):
        return False
    largest = np.abs(mine[2]).max(axis=1, initial=0.0, keepdims=True)
    return bool((np.abs(mine[2] - theirs[2]) <= rtol * largest).all())
