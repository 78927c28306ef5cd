"""A batch as bytes, and the digest of its content."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Ints
from calibrant.core.documents import Columns, Header
from calibrant.core.packing import PackingError, pack, unpack

if TYPE_CHECKING:
    from calibrant.core.batch import Batch

TEXTS = ("ids", "units", "cases")
# Of zstandard: packed batches are read and dropped within moments, and scores hardly compress.
FAST_LEVEL = -5


def pack_batch(batch: Batch) -> bytes:
    """Return the batch as bytes, with its numbers exact."""
    arrays: dict[str, NDArray[Any]] = {
        "scores": batch.scores,
        "vote_row": batch.ratings.row,
        "vote_class": batch.ratings.class_index,
        "vote_count": batch.ratings.count,
    }
    if batch.weights is not None:
        arrays["weights"] = batch.weights
    if batch.event_times is not None:
        arrays["event_times"] = batch.event_times
    if batch.edge_rules is not None:
        arrays["edge_rules"] = batch.edge_rules
    about: Header = {"task": batch.task, "is_logits": batch.is_logits}
    for name in TEXTS:
        if getattr(batch, name) is not None:
            arrays[name] = _as_bytes(getattr(batch, name))
    if batch.slices is not None:
        about["slices"] = list(batch.slices)
        arrays |= {f"slice {key}": _as_bytes(values) for key, values in batch.slices.items()}
    return pack(arrays, about, level=FAST_LEVEL)


def unpack_fields(data: bytes) -> tuple[tuple[Ints, Ints, Ints], Columns]:
    """Return the ratings of a packed batch (rows, classes, counts), and its other attributes by name.

    Raises
    ------
    PackingError
        Not a packed batch, or damaged.
    """
    arrays, about = unpack(data)
    try:
        slices = about.get("slices")
        ratings = arrays["vote_row"], arrays["vote_class"], arrays["vote_count"]
        return ratings, {
            "task": about["task"],
            "scores": arrays["scores"],
            "is_logits": about["is_logits"],
            "weights": arrays.get("weights"),
            "event_times": arrays.get("event_times"),
            "edge_rules": arrays.get("edge_rules"),
            "slices": None
            if slices is None
            else {key: _as_texts(arrays[f"slice {key}"]) for key in slices},
            **{name: _as_texts(arrays[name]) for name in TEXTS if name in arrays},
        }
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise PackingError(f"not a packed batch: {error}") from error


def columns_fit(batch: Batch) -> bool:
    """Return whether columns have the required lengths, and ratings are sorted and within its rows and classes."""
    if batch.scores.ndim != 2 or batch.scores.dtype != np.float64:
        return False
    named = [getattr(batch, name) for name in (*TEXTS, "weights", "event_times", "edge_rules")]
    columns = [column for column in (*named, *(batch.slices or {}).values()) if column is not None]
    ratings = (batch.ratings.row, batch.ratings.class_index, batch.ratings.count)
    if any(c.shape != (batch.n,) for c in columns) or len({v.shape for v in ratings}) != 1:
        return False
    if any(rating.dtype != np.int64 or rating.ndim != 1 for rating in ratings):
        return False
    inside = [(v >= low) & (v < high) for v, low, high in zip(
        ratings, (0, 0, 1), (batch.n, batch.n_classes, 2**53), strict=True)]  # fmt: skip
    place = batch.ratings.row * batch.n_classes + batch.ratings.class_index
    return bool(np.all(inside) and (np.diff(place) > 0).all())


def batch_digest(batch: Batch) -> bytes:
    """Return 16 bytes that identify the content of a batch."""
    state = hashlib.blake2b(digest_size=16)
    state.update(
        f"{batch.task} {batch.is_logits} {batch.scores.shape} {len(batch.ratings.row)}".encode()
    )
    arrays = (
        batch.scores,
        batch.ratings.row,
        batch.ratings.class_index,
        batch.ratings.count,
        batch.weights,
        batch.event_times,
    )
    for array in arrays:
        state.update(b"-" if array is None else np.ascontiguousarray(array).data)
    for name in TEXTS:
        _update_texts(state, name, getattr(batch, name))
    for key in sorted(batch.slices or {}):
        _update_texts(state, f"slice {key}", (batch.slices or {})[key])
    return state.digest()


def _as_bytes(column: NDArray[Any]) -> NDArray[np.uint8]:
    """Return names, none of which contains a newline, each followed by a newline."""
    return np.frombuffer("".join(f"{text}\n" for text in column).encode(), np.uint8)


def _as_texts(data: NDArray[np.uint8]) -> NDArray[Any]:
    return np.array(data.tobytes().decode().split("\n")[:-1], dtype=object)


def _update_texts(state: Any, name: str, column: NDArray[Any] | None) -> None:
    if column is not None:
        state.update(f"\x00{name}\x00".encode() + "\x1f".join(column).encode())
