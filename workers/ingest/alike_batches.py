"""Small batches of one commit, read and stored together: each alone costs more than its rows.

The rows are the same as one by one, in the same order, and each keeps the number of its own batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import TASKS, Batch, Ratings
from calibrant.core.packing import Alike, unpack_alike
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestEntry

# Of a payload, packed and in memory: larger ones gain nothing.
MAX_PAYLOAD_BYTES, MAX_CONTENT_BYTES = 4096, 64 * 1024
MAX_ROWS = 64
# Batches with other columns are unpacked one by one.
_PLAIN = {"scores", "vote_row", "vote_class", "vote_count"}


def unpacked_together(entries: Sequence[IngestEntry], batch_class: type[Batch]) -> dict[str, Batch]:
    """Return the batches of small plain payloads by the id of their entry; any other is left out, also a damaged one."""
    some = [
        entry
        for entry in entries
        if entry.kind == PREDICTIONS and len(entry.payload) <= MAX_PAYLOAD_BYTES
    ]
    if len(some) < 2 or batch_class is not Batch:
        return {}
    found: dict[str, Batch] = {}
    for alike in unpack_alike([entry.payload for entry in some], largest=MAX_CONTENT_BYTES):
        for place, batch in _batches(alike):
            found[some[place].id] = batch
    return found


def _batches(alike: Alike) -> Iterator[tuple[int, Batch]]:
    """Yield the batches whose columns fit each other, with their places."""
    arrays, about = alike.arrays, alike.about
    if arrays.keys() != _PLAIN or about.keys() != {"task", "is_logits"}:
        return
    task, scores = about["task"], arrays["scores"]
    ratings = (arrays["vote_row"], arrays["vote_class"], arrays["vote_count"])
    if task not in TASKS or not _shapes_fit(scores, ratings):
        return
    fits, shape = _are_within(scores, ratings), None
    for at, place in enumerate(alike.places):
        if not fits[at]:
            continue
        own = Ratings(*(each[at] for each in ratings))
        batch = Batch(task=task, scores=scores[at], ratings=own, is_logits=about["is_logits"])
        shape = batch.__dict__["shape_key"] = shape or batch.shape_key
        yield place, batch


def _shapes_fit(scores: NDArray[Any], ratings: tuple[NDArray[Any], ...]) -> bool:
    is_matrix = scores.ndim == 3 and scores.dtype == np.float64
    are_lists = all(each.ndim == 2 and each.dtype == np.int64 for each in ratings)
    return is_matrix and are_lists and len({each.shape for each in ratings}) == 1


def _are_within(scores: NDArray[Any], ratings: tuple[NDArray[Any], ...]) -> NDArray[np.bool_]:
    """Return for each batch whether its ratings are sorted and within its rows and classes."""
    _, n, n_classes = scores.shape
    bounds = zip(ratings, (0, 0, 1), (n, n_classes, 2**53), strict=True)
    within = [((each >= low) & (each < high)).all(axis=1) for each, low, high in bounds]
    place = ratings[0] * n_classes + ratings[1]
    return np.asarray(np.all(within, axis=0) & (np.diff(place, axis=1) > 0).all(axis=1))


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
