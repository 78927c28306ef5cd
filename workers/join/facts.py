"""Facts about ids that a group of entries brings: predictions, labels and deletions, in the order of the stream, as columns.

Of several outcomes of one row, the first of this list is its outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from calibrant.core.batch import Batch
from calibrant_server.workers.join.predictions import Predictions
from calibrant_server.workers.join.ratings import coded
from calibrant_server.workers.join.sent_predictions import sent_predictions
from calibrant_server.workers.segments.ragged import Ints, owners

PREDICTION, LABELS, DELETION = range(3)
NO_REVISION = -1
_NONE = np.zeros(0, np.int64)


class Rated(NamedTuple):
    """Ratings of named raters: the fact that brings each, the rater, their class and revision (`NO_REVISION` for none)."""

    fact: Ints
    rater: list[bytes]
    class_index: Ints
    revision: Ints


class Counted(NamedTuple):
    """Unnamed ratings: the fact that brings them, class and number."""

    fact: Ints
    class_index: Ints
    n: Ints


_NO_COUNTS = Counted(_NONE, _NONE, _NONE)
_NO_RATINGS = Rated(_NONE, [], _NONE, _NONE)


@dataclass(frozen=True, eq=False)
class EntryFacts:
    """Facts of one entry, one per row.

    Attributes
    ----------
    entry : id of the entry
    kind : `PREDICTION`, `LABELS` or `DELETION`
    ids : of each row
    order : of the entry's ratings along the stream
    predictions : of an entry of predictions
    """

    entry: str
    kind: int
    ids: list[str]
    received_ms: int
    order: int = 0
    predictions: Predictions | None = None
    counted: Counted = _NO_COUNTS
    rated: Rated = _NO_RATINGS

    @classmethod
    def of_predictions(
        cls, entry: str, batch: Batch, received_ms: int, sent: Batch | None = None
    ) -> EntryFacts:
        """Return the facts of a batch with ids; `sent` is the batch as the client sent it, where slices were renamed."""
        assert batch.ids is not None
        ratings = batch.ratings
        return cls(
            entry,
            PREDICTION,
            list(map(str, batch.ids.tolist())),
            received_ms,
            predictions=sent_predictions(batch, received_ms, sent),
            counted=Counted(ratings.row, ratings.class_index, ratings.count),
        )

    @classmethod
    def of_labels(cls, entry: str, rows: Sequence[Any], received_ms: int, order: int) -> EntryFacts:
        """Return the facts of labels; each row has an id, unnamed ratings (class, number), named ones (rater, class, revision)."""
        if not rows:
            return cls(entry, LABELS, [], received_ms, order)
        ids, unnamed, named = zip(*rows, strict=True)
        counts = np.array(list(chain.from_iterable(unnamed)), np.int64).reshape(-1, 2)
        counted = Counted(owners(_lengths(unnamed)), counts[:, 0], counts[:, 1])
        return cls(entry, LABELS, list(ids), received_ms, order, None, counted, _rated(named))

    @classmethod
    def of_deletion(cls, entry: str, ids: list[str], received_ms: int) -> EntryFacts:
        """Return the facts that predictions are deleted."""
        return cls(entry, DELETION, ids, received_ms)


def _rated(named: Sequence[Any]) -> Rated:
    flat = list(chain.from_iterable(named))
    if not flat:
        return _NO_RATINGS
    raters, classes, revisions = zip(*flat, strict=True)
    numbers = [NO_REVISION if each is None else each for each in revisions]
    names = [name.encode() for name in raters]
    return Rated(owners(_lengths(named)), names, np.array(classes), np.array(numbers, np.int64))


def _lengths(values: Sequence[Any]) -> Ints:
    return np.fromiter(map(len, values), np.int64, len(values))


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts of several entries, in order.

    Attributes
    ----------
    ids : different ids, in the order of their first fact
    kind, id_place, received_ms, order : int64 (n,)
    entry : int64 (n,), place of the fact's entry
    predictions : of the facts that are predictions, in order
    prediction : int64 (n,), place in these; -1 of other facts
    rated : with places in `raters` instead of names
    raters : different names, in ascending order
    """

    ids: list[str]
    kind: Ints
    id_place: Ints
    received_ms: Ints
    order: Ints
    entry: Ints
    predictions: Predictions | None
    prediction: Ints
    counted: Counted
    rated: tuple[Ints, Ints, Ints, Ints]
    raters: list[bytes]

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def together(cls, entries: Sequence[EntryFacts]) -> Facts:
        """Concatenate the facts of entries, at least one."""
        sizes = np.array([len(each.ids) for each in entries])
        entry = owners(sizes)
        first = np.cumsum(sizes) - sizes
        names = list(chain.from_iterable(each.ids for each in entries))
        ids = list(dict.fromkeys(names))
        place = dict(zip(ids, range(len(ids)), strict=True))
        kind = np.array([each.kind for each in entries])[entry]
        predictions = [each.predictions for each in entries if each.predictions is not None]
        is_prediction = kind == PREDICTION
        rater, raters = coded(list(chain.from_iterable(each.rated.rater for each in entries)))
        return cls(
            ids,
            kind,
            np.fromiter(map(place.__getitem__, names), np.int64, len(names)),
            np.array([each.received_ms for each in entries])[entry],
            np.array([each.order for each in entries])[entry],
            entry,
            Predictions.together(predictions) if predictions else None,
            np.where(is_prediction, np.cumsum(is_prediction) - 1, -1),
            Counted(*_shifted([each.counted for each in entries], first)),
            _rated_together([each.rated for each in entries], first, rater),
            raters,
        )


def _shifted(parts: Sequence[Counted], first: Ints) -> tuple[Ints, Ints, Ints]:
    facts = [each.fact + at for each, at in zip(parts, first.tolist(), strict=True)]
    classes, n = (np.concatenate([each[k] for each in parts]) for k in (1, 2))
    return np.concatenate(facts), classes, n


def _rated_together(
    parts: Sequence[Rated], first: Ints, rater: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    facts = [each.fact + at for each, at in zip(parts, first.tolist(), strict=True)]
    classes = np.concatenate([each.class_index for each in parts])
    return np.concatenate(facts), rater, classes, np.concatenate([each.revision for each in parts])


GONE, CONFLICT, REVISED, FULL, NEW, STALE, DUPLICATE, EXPIRED = range(8)
NAMES = ("deleted", "conflict", "revised", "full", "new", "stale", "duplicate", "expired")
