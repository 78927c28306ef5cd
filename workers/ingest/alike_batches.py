"""Small batches of one commit, filled and stored together: each alone costs more than its rows.

The rows are the same as one by one, in the same order, and each keeps the number of its own batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from calibrant.core.batch import Batch

# Larger batches gain nothing.
MAX_ROWS = 64


def alike_together(batches: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield small neighbouring batches of one shape as one, with those that it consists of; others alone."""
    for shape, neighbours in groupby(batches, _shape):
        some = list(neighbours)
        if shape is None or len(some) == 1:
            for batch in some:
                yield batch, [batch]
        else:
            yield Batch.concatenate(some), some


def _shape(batch: Any) -> tuple[Any, ...] | None:
    return batch.shape_key if type(batch) is Batch and batch.n <= MAX_ROWS else None


def rows_of_batches(kind: Any, batches: Sequence[Any], part: int) -> list[Any]:
    """Return the rows that batches add, in pieces; the batches are numbered from `part` on."""
    pieces: list[Any] = []
    for whole, some in alike_together(batches):
        rows = kind.of_batch(whole, part)
        if len(some) > 1:
            numbers = np.arange(part, part + len(some))
            rows = replace(rows, part=np.repeat(numbers, [each.n for each in some]))
        pieces.append(rows)
        part += len(some)
    return pieces
