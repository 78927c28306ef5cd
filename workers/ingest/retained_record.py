"""Retained record of one prediction: its scores and its raters' labels, independent of their order of arrival.

A retained record stores exactly the values that were filled, so that a change is a subtraction of the old values and an addition
of the new ones. The final record does not depend on the order in which its facts arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import delay_bin
from calibrant.core.float32 import Narrow
from calibrant.input.labels import MAX_NAMED, WITHDRAWN

NEW, DUPLICATE, STALE, CONFLICT, GONE = "new", "duplicate", "stale", "conflict", "deleted"
EXPIRED, REVISED, FULL = "expired", "revised", "full"
# Maximum ratings of a class that labels may add; those sent with the prediction also fit in the four bytes.
MAX_RATINGS_OF_CLASS = 2**31 - 1
# In the second format scores are followed by the sum that they are divided by once they are read (`calibrant.core.float32`).
_FORMAT, _DIVIDED = 1, 2
_HEAD = struct.Struct("<BBIHHHHH")
_PREDICTED, _LOGITS, _NARROW, _DELETED, _WEIGHTED, _UNIT, _CASE, _SLICED = (
    1 << i for i in range(8)
)
COUNT_STRUCT = struct.Struct("<HI")
_RATER = struct.Struct("<Biiq")
_TIME = struct.Struct("<q8s")
_TOTAL = struct.Struct("<d")


class RecordError(ValueError):
    """The bytes are not a record of a known format."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """One row as it is filled. `sent` is a digest of its content, to distinguish a repeat from a conflict; `narrow` is the
    original input if that was float32 and the scores are it divided by its sum."""

    scores: NDArray[np.float64]
    is_logits: bool
    event_us: int
    sent: bytes
    weight: float | None = None
    unit: str | None = None
    case: str | None = None
    slices: tuple[tuple[str, str], ...] = ()
    narrow: Narrow | None = None

    @property
    def group(self) -> str | None:
        """Name of the unit that it shares, or None if it is a separate unit."""
        if self.unit is not None:
            return f"u{self.unit}"
        return None if self.case is None else f"c{self.case}"


@dataclass(frozen=True)
class Rating:
    """A named rater's latest rating: a class, or `WITHDRAWN`; `order` sorts ratings of one revision."""

    class_index: int
    revision: int
    order: int


@dataclass(frozen=True)
class RetainedRecord:
    """All facts about one prediction id.

    Attributes
    ----------
    prediction : None while labels wait for it
    unnamed : class to number of unnamed ratings
    ratings : rater to their latest rating
    deleted : the prediction was removed permanently
    since_s : time of the first fact about the id
    delay : delay of its first label, as a bin of `calibrant.accumulators.delays`; None without labels
    """

    since_s: int
    prediction: Prediction | None = None
    unnamed: Mapping[int, int] = field(default_factory=dict)
    ratings: Mapping[str, Rating] = field(default_factory=dict)
    deleted: bool = False
    delay: int | None = None

    @property
    def counts(self) -> bool:
        """Whether it contributes to a pane."""
        return self.prediction is not None and not self.deleted

    @property
    def totals(self) -> dict[int, int]:
        """Ratings by class, unnamed and named together."""
        totals = dict(self.unnamed)
        for rating in self.ratings.values():
            if rating.class_index != WITHDRAWN:
                totals[rating.class_index] = totals.get(rating.class_index, 0) + 1
        return totals

    @property
    def is_labelled(self) -> bool:
        return any(self.unnamed.values()) or any(
            r.class_index != WITHDRAWN for r in self.ratings.values()
        )

    def predicted(
        self, prediction: Prediction, unnamed: Mapping[int, int]
    ) -> tuple[RetainedRecord, str]:
        """Return the facts after a prediction with the unnamed ratings sent with it."""
        if self.deleted:
            return self, GONE
        if self.prediction is not None:
            return self, DUPLICATE if self.prediction.sent == prediction.sent else CONFLICT
        return replace(self, prediction=prediction, unnamed=_added(self.unnamed, unnamed)), NEW

    def with_unnamed(self, unnamed: Mapping[int, int]) -> tuple[RetainedRecord, str]:
        """Return the facts after unnamed ratings, which add."""
        if self.deleted:
            return self, GONE
        total = _added(self.unnamed, unnamed)
        return (
            (self, FULL)
            if max(total.values(), default=0) > MAX_RATINGS_OF_CLASS
            else (replace(self, unnamed=total), NEW)
        )

    def rated(
        self, rater: str, class_index: int, revision: int | None, order: int
    ) -> tuple[RetainedRecord, str]:
        """Return the facts after a named rater's rating.

        A higher revision replaces a lower one, in any order of arrival. Without a revision the later rating of the stream replaces
        the earlier, and the later row of a batch the one before it. The same explicit revision with another class is a conflict.
        """
        if self.deleted:
            return self, GONE
        last = self.ratings.get(rater)
        explicit = revision is not None
        number = revision if revision is not None else (last.revision if last else 0)
        if last is not None:
            if number < last.revision or (not explicit and order < last.order):
                return self, STALE
            if number == last.revision and class_index == last.class_index:
                return self, DUPLICATE
            if explicit and number == last.revision:
                return self, REVISED
        elif len(self.ratings) >= MAX_NAMED:
            return self, FULL
        return replace(
            self, ratings={**self.ratings, rater: Rating(class_index, number, order)}
        ), NEW

    def timed(self, labelled_ms: int) -> RetainedRecord:
        """Return the facts with the delay of its first label, if this is the first one."""
        if self.delay is not None or not self.counts or not self.is_labelled:
            return self
        assert self.prediction is not None
        return replace(
            self, delay=int(delay_bin(labelled_ms / 1000 - self.prediction.event_us / 1e6))
        )

    def removed(self) -> tuple[RetainedRecord, str]:
        """Return the facts after its deletion: nothing contributes, and no later fact restores the id."""
        if self.deleted:
            return self, DUPLICATE
        return RetainedRecord(self.since_s, deleted=True), NEW

    def pack(self) -> bytes:
        """Return the stored bytes; scores as float32 if that loses nothing."""
        flags = _DELETED if self.deleted else 0
        tail = b""
        n_scores = 0
        if self.prediction is not None:
            one, more = _pack_prediction(self.prediction)
            flags |= one
            tail += more
            n_scores = len(self.prediction.scores)
        unnamed = b"".join(
            COUNT_STRUCT.pack(class_index, n)
            for class_index, n in sorted(self.unnamed.items())
            if n
        )
        ratings = b"".join(
            _RATER.pack(len(rater), rating.class_index, rating.revision, rating.order)
            + rater.encode()
            for rater, rating in sorted(self.ratings.items())
        )
        n_unnamed = len(unnamed) // COUNT_STRUCT.size
        n_slices = len(self.prediction.slices) if self.prediction else 0
        delay = 0 if self.delay is None else self.delay + 1
        number = (
            _DIVIDED
            if self.prediction is not None and self.prediction.narrow is not None
            else _FORMAT
        )
        head = _HEAD.pack(
            number, flags, self.since_s, n_scores, n_unnamed, len(self.ratings), n_slices, delay
        )
        return head + unnamed + ratings + tail

    @classmethod
    def unpack(cls, data: bytes) -> RetainedRecord:
        """Return the facts that `pack` wrote; raises FactsError."""
        try:
            number, flags, since_s, n_scores, n_unnamed, n_ratings, n_slices, delay = (
                _HEAD.unpack_from(data)
            )
            if number not in (_FORMAT, _DIVIDED):
                raise RecordError(f"record format {number} is not known")
            at = _HEAD.size
            unnamed: dict[int, int] = {}
            for _ in range(n_unnamed):
                class_index, n = COUNT_STRUCT.unpack_from(data, at)
                unnamed[class_index] = n
                at += COUNT_STRUCT.size
            ratings: dict[str, Rating] = {}
            for _ in range(n_ratings):
                length, class_index, revision, order = _RATER.unpack_from(data, at)
                at += _RATER.size
                ratings[data[at : at + length].decode()] = Rating(class_index, revision, order)
                at += length
            shape = (n_scores, number == _DIVIDED, n_slices)
            prediction = _unpack_prediction(data, at, flags, *shape) if flags & _PREDICTED else None
            known = delay - 1 if delay else None
            return cls(since_s, prediction, unnamed, ratings, bool(flags & _DELETED), known)
        except (struct.error, IndexError, ValueError) as error:
            raise RecordError(f"a record cannot be read: {error}") from error


def _added(unnamed: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    total = dict(unnamed)
    for class_index, n in more.items():
        total[class_index] = total.get(class_index, 0) + n
    return total


def _pack_prediction(prediction: Prediction) -> tuple[int, bytes]:
    values, is_narrow, total = prediction.scores.astype(np.float32), True, b""
    if prediction.narrow is not None:
        values, total = prediction.narrow.sent, _TOTAL.pack(prediction.narrow.total)
    elif not np.array_equal(values.astype(np.float64), prediction.scores):
        is_narrow = False
    flags = _PREDICTED | (_LOGITS if prediction.is_logits else 0) | (_NARROW if is_narrow else 0)
    parts = [_TIME.pack(prediction.event_us, prediction.sent)]
    parts.append((values if is_narrow else prediction.scores).tobytes() + total)
    if prediction.weight is not None:
        flags |= _WEIGHTED
        parts.append(struct.pack("<d", prediction.weight))
    texts: list[str] = []
    for flag, text in ((_UNIT, prediction.unit), (_CASE, prediction.case)):
        if text is not None:
            flags |= flag
            texts.append(text)
    if prediction.slices:
        flags |= _SLICED
        texts += [part for pair in prediction.slices for part in pair]
    parts += [bytes([len(text.encode())]) + text.encode() for text in texts]
    return flags, b"".join(parts)


def _unpack_prediction(
    data: bytes, at: int, flags: int, n_scores: int, is_divided: bool, n_slices: int
) -> Prediction:
    event_us, sent = _TIME.unpack_from(data, at)
    at += _TIME.size
    dtype = np.dtype("<f4" if flags & _NARROW else "<f8")
    values, narrow = np.frombuffer(data, dtype, n_scores, at), None
    at += dtype.itemsize * n_scores
    if is_divided:
        (total,) = _TOTAL.unpack_from(data, at)
        at += _TOTAL.size
        if not 0.5 < total < 2.0:
            raise ValueError(f"probabilities do not sum to {total}")
        narrow = Narrow(values, total)
    scores = values.astype(np.float64) if narrow is None else narrow.scores
    weight = None
    if flags & _WEIGHTED:
        (weight,) = struct.unpack_from("<d", data, at)
        at += 8

    def text() -> str:
        nonlocal at
        length = data[at]
        at += 1 + length
        return data[at - length : at].decode()

    unit = text() if flags & _UNIT else None
    case = text() if flags & _CASE else None
    slices = tuple((text(), text()) for _ in range(n_slices)) if flags & _SLICED else ()
    return Prediction(
        scores, bool(flags & _LOGITS), event_us, sent, weight, unit, case, slices, narrow
    )
