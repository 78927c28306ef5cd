"""A small JSON document of scores and labels, read and checked by one call of the kernel."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.kernel.declarations import structures
from calibrant.kernel.json_columns import powers_of_five
from calibrant.kernel.library import library

# Of a document in bytes. Numbers of a larger one cost more than what is saved.
MAX_BYTES = 4096


class SmallColumns(NamedTuple):
    """What a document holds.

    Attributes
    ----------
    batch_id : None without
    columns : scores, then row, class and count of each rating; 8 bytes a number
    packed : the same as `calibrant.core.packing` shuffles and narrows them
    """

    n: int
    n_ratings: int
    is_logits: bool
    batch_id: str | None
    columns: bytes
    packed: bytes


class _Memory:
    """A structure of the kernel with the memory that it refers to."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {
            "values": np.empty(MAX_BYTES),
            "ends": np.empty(MAX_BYTES, np.int64),
            "ratings": np.empty(3 * MAX_BYTES, np.uint8),
            "columns": np.empty(3 * MAX_BYTES, np.int64),
            "packed": np.empty(8 * MAX_BYTES, np.uint8),
        }
        addresses = {name: array.ctypes.data for name, array in self._arrays.items()}
        self.structure: Any = structures()["SmallBatch"](
            capacity=MAX_BYTES, powers=powers_of_five().ctypes.data, **addresses
        )
        self.place = ctypes.byref(self.structure)


# Memory that no thread uses at present.
_FREE: list[_Memory] = []


def read_small(data: bytes, n_classes: int) -> SmallColumns | None:
    """Return the columns of a document; None where it must be read and checked in full."""
    if len(data) > MAX_BYTES:
        return None
    try:
        memory = _FREE.pop()
    except IndexError:
        memory = _Memory()
    batch = memory.structure
    batch.text, batch.length, batch.n_classes = data, len(data), n_classes
    found = _columns(data, batch) if library().calibrant_kernel_small_batch(memory.place) else None
    batch.text = None
    _FREE.append(memory)
    return found


def _columns(data: bytes, batch: Any) -> SmallColumns:
    n, n_ratings, first = batch.n, batch.n_ratings, batch.id
    n_scores = n * batch.n_classes
    return SmallColumns(
        n,
        n_ratings,
        bool(batch.is_logits),
        data[first : batch.id_end].decode() if first else None,
        ctypes.string_at(batch.columns, 8 * (n_scores + 3 * n_ratings)),
        ctypes.string_at(batch.packed, 8 * n_scores + 3 * n_ratings),
    )
