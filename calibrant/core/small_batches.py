"""Packed batch and digest of a small JSON document, without a batch in between: its objects cost more than its numbers.

The result is that of `Batch.from_columns`, `pack` and `digest`, to the bit. Whatever is unusual or invalid is left to them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from calibrant.core.batch_packing import FAST_LEVEL
from calibrant.core.packing import pack_content
from calibrant.input.one_hot import look_one_hot
from calibrant.kernel.small_batches import SmallColumns, read_small

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
