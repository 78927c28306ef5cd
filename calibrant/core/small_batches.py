"""Packed batch and digest of a small JSON document, without a batch in between: its objects cost more than its numbers.

The result is that of `Batch.from_columns`, `pack` and `digest`, to the bit. Whatever is unusual or invalid is left to them.
"""

from __future__ import annotations

import ctypes
import json
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch_packing import FAST_LEVEL
from calibrant.core.packing import pack_content
from calibrant.input.one_hot import look_one_hot
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


_BYTE, _DOUBLE = "|i1", "<f8"
# Headers of batches of few rows: of each task and number of classes, some dozens.
_KNOWN_HEADERS = 4096
_ROW, _CLASS = 1, 2  # numbers of these arrays in a packed batch


class SmallBatch(NamedTuple):
    """A checked batch without optional columns, each row with a label."""

    n: int
    batch_id: str | None
    payload: bytes
    digest: bytes


def small_batch(data: bytes, task: str, n_classes: int) -> SmallBatch | None:
    """Return the batch of a JSON document of scores and labels; None where it must be read and checked in full.

    >>> small_batch(b'{"probabilities": [[0.25, 0.5]], "labels": [0]}', "multiclass", 2) is None
    True
    """
    found = read_small(data, n_classes)
    if found is None or _looks_one_hot(found, n_classes):
        return None
    shape = f"{task} {found.is_logits} ({found.n}, {n_classes}) {found.n_ratings}"
    # Neither weights nor event times.
    digest = blake2b(b"%b%b--" % (shape.encode(), found.columns), digest_size=16).digest()
    return SmallBatch(found.n, found.batch_id, _packed(found, task, n_classes), digest)


def _looks_one_hot(found: SmallColumns, n_classes: int) -> bool:
    """Return whether the rows look one-hot, which is refused or a warning."""
    if found.n_ratings != 2 * found.n:
        return False
    ratings = np.frombuffer(found.columns, np.int64, offset=8 * found.n * n_classes)
    row, class_index, count = ratings.reshape(3, -1)
    return look_one_hot(row, class_index, count, n_classes)


def _packed(found: SmallColumns, task: str, n_classes: int) -> bytes:
    """Return the packed batch; an array that equals an earlier one refers to it."""
    n, first = found.n_ratings, 8 * found.n * n_classes
    content = found.packed
    rows, classes = content[first : first + n], content[first + n : first + 2 * n]
    counts = content[first + 2 * n :]
    class_code: int | str = _ROW if classes == rows else _BYTE
    count_code: int | str = _ROW if counts == rows else _CLASS if counts == classes else _BYTE
    if class_code != _BYTE or count_code != _BYTE:
        kept = (classes if class_code == _BYTE else b"", counts if count_code == _BYTE else b"")
        content = content[: first + n] + b"".join(kept)
    header = _header(
        task, found.is_logits, found.n, n_classes, found.n_ratings, class_code, count_code
    )
    return pack_content(header, content, level=FAST_LEVEL)


@lru_cache(_KNOWN_HEADERS)
def _header(
    task: str,
    is_logits: bool,
    n: int,
    n_classes: int,
    n_ratings: int,
    class_code: int | str,
    count_code: int | str,
) -> bytes:
    ratings = (("vote_row", _BYTE), ("vote_class", class_code), ("vote_count", count_code))
    arrays = [
        ["scores", "f", [n, n_classes], _DOUBLE],
        *([name, "i", [n_ratings], code] for name, code in ratings),
    ]
    about = {"task": task, "is_logits": is_logits}
    return json.dumps({"about": about, "arrays": arrays}, separators=(",", ":")).encode()
