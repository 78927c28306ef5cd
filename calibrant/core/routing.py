"""Pane of each row, by time and slice, and batch sizes of fills.

Panes are aligned to 1970-01-01 UTC. Every row fills the pane of all rows of its time, and one pane for each of its slice
columns. The engine and `fill_by` use these functions, so that a pane filled at the edge equals the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch

MICROSECONDS = 1_000_000
ALL_ROWS = ""
# A fill costs milliseconds, and microseconds per row. Beyond some thousand rows the columns do not fit in the
# processor's cache, and a row costs twice as much (measured: 4000 to 8000 rows are cheapest).
ROWS_TOGETHER = 8000
Times = NDArray[np.int64]
Rows = NDArray[np.intp]


class Place(NamedTuple):
    """A pane: its slice (`""` for all rows, else `key:value`) and its start in seconds since 1970."""

    slice: str
    start_s: int


def pane_start(at_us: int, pane_s: int) -> int:
    """Return the start, in seconds, of the pane of a timestamp in microseconds since 1970.

    >>> pane_start(7_200_000_001, 3600)
    7200
    """
    return int(at_us) // (pane_s * MICROSECONDS) * pane_s


def rows_by_pane(batch: Any, pane_s: int, default_us: int) -> Iterator[tuple[Place, Rows | None]]:
    """Yield each pane that a batch fills with its row numbers in order; `None` means all rows.

    Parameters
    ----------
    batch : Batch, or anything with its `n`, `event_times` and `slices`
    pane_s : length of a pane in seconds
    default_us : event time of a batch without event times, in microseconds since 1970

    Examples
    --------
    >>> columns = {"confidences": [0.1, 0.2, 0.3], "slices": {"site": ["A", "B", "A"]}}
    >>> for place, rows in rows_by_pane(Batch.from_columns(columns).batch, 3600, 0):
    ...     print(place, rows)
    Place(slice='', start_s=0) None
    Place(slice='site:A', start_s=0) [0 2]
    Place(slice='site:B', start_s=0) [1]
    """
    starts, which = _starts(batch.n, batch.event_times, default_us, pane_s)
    for position, start in enumerate(starts):
        rows = None if len(starts) == 1 else np.flatnonzero(which == position)
        yield Place(ALL_ROWS, start), rows
    for key, column in sorted((batch.slices or {}).items()):
        values, value_of = np.unique(np.asarray(column).astype(str), return_inverse=True)
        for number, value in enumerate(values):
            in_slice = value_of.reshape(-1) == number
            for position, start in enumerate(starts):
                rows = np.flatnonzero(in_slice & (which == position))
                if len(rows):
                    yield Place(f"{key}:{value}", start), rows


def split_batch(batch: Batch) -> Iterator[Batch]:
    """Divide a batch into batches of the size that is filled fastest, if that changes no number.

    Rows of one named unit stay together, regardless of their number. Their order changes.
    """
    if batch.n <= ROWS_TOGETHER:
        yield batch
        return
    if not batch.has_units:
        for start in range(0, batch.n, ROWS_TOGETHER):
            yield batch.part(start, min(start + ROWS_TOGETHER, batch.n))
        return
    order = np.argsort(batch.unit_hash, kind="stable")
    hashes = batch.unit_hash[order]
    cuts = np.arange(ROWS_TOGETHER, batch.n, ROWS_TOGETHER)
    cuts = np.unique(np.searchsorted(hashes, hashes[cuts]))
    for rows in np.split(order, cuts[cuts > 0]):
        yield batch.take(rows)


def _starts(n: int, times: Times | None, default_us: int, pane_s: int) -> tuple[list[int], Rows]:
    if times is None:
        return [pane_start(default_us, pane_s)], np.zeros(n, dtype=np.intp)
    pane_us = pane_s * MICROSECONDS
    panes, which = np.unique(np.asarray(times, dtype=np.int64) // pane_us, return_inverse=True)
    return [int(pane) * pane_s for pane in panes], which.reshape(-1)
