"""Ranges of labels and deletions in entries, checked by columns before any of an entry counts.

The API rejects such values before it appends a batch, and names field and row. Entries also come from elsewhere: from other writers
of the stream, and from other versions. A class outside the model would be stored with the record, and fail only when its pane is filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import or_
from typing import Any

from calibrant.input.labels import MAX_NAMED, MAX_REVISION, WITHDRAWN
from calibrant.input.names import NAME_RULE, are_names, name_of
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.join.record_format import MAX_RATINGS_OF_CLASS


def check_labels(rows: Sequence[Any], n_classes: int) -> None:
    """Raise EntryError unless every id, class, number, rater and revision of the rows is in range."""
    if not _are_valid(rows, n_classes):
        raise EntryError(
            f"received labels out of range; expected rows with an id and ratings, classes from 0 to {n_classes - 1} "
            f"({WITHDRAWN}: withdrawn), each class and each rater once, and at most {MAX_NAMED} raters"
        )


def check_removal(ids: Any) -> None:
    """Raise EntryError unless the ids of a deletion are names."""
    for name in ids if type(ids) is list and ids else [ids]:
        if type(name) is not str or name_of(name) != name:
            raise EntryError(f"received the id {name!r:.40}; expected {NAME_RULE}")


def _are_valid(rows: Sequence[Any], n_classes: int) -> bool:
    """Return whether all rows are valid."""
    if not rows:
        return True
    ids, unnamed, named = zip(*rows, strict=True)
    counts, ratings = list(chain.from_iterable(unnamed)), list(chain.from_iterable(named))
    return (
        all(map(or_, map(bool, unnamed), map(bool, named)))
        and max(map(len, named)) <= MAX_NAMED
        and _are_lists(counts, 2)
        and _are_lists(ratings, 3)
        and are_names(ids)
        and _counts_fit(counts, n_classes)
        and _ratings_fit(ratings, n_classes)
        and not any(map(_repeats, chain(unnamed, named)))
    )


def _are_lists(values: Sequence[Any], n: int) -> bool:
    return {*map(type, values)} <= {list} and {*map(len, values)} <= {n}


def _counts_fit(counts: Sequence[Any], n_classes: int) -> bool:
    classes, n = zip(*counts, strict=True) if counts else ((), ())
    return _are_whole(classes, 0, n_classes - 1) and _are_whole(n, 1, MAX_RATINGS_OF_CLASS)


def _ratings_fit(ratings: Sequence[Any], n_classes: int) -> bool:
    raters, classes, revisions = zip(*ratings, strict=True) if ratings else ((), (), ())
    given = [each for each in revisions if each is not None]
    return (
        are_names(raters)
        and _are_whole(classes, WITHDRAWN, n_classes - 1)
        and _are_whole(given, 0, MAX_REVISION)
    )


def _are_whole(values: Sequence[Any], lowest: int, highest: int) -> bool:
    if not values:
        return True
    return {*map(type, values)} == {int} and lowest <= min(values) and max(values) <= highest


def _repeats(row: Sequence[Any]) -> bool:
    """Whether a row has a class or a rater twice."""
    return len(row) > 1 and len({first for first, *_ in row}) < len(row)
