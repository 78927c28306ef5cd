"""Retained record of one prediction: its scores and its raters' labels, independent of their order of arrival.

A retained record stores exactly the values that were filled, so that a change is a subtraction of the old values and an addition
of the new ones. The final record does not depend on the order in which predictions, ratings and deletions arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from calibrant.input.labels import MAX_NAMED, WITHDRAWN
from calibrant_server.workers.ingest.entries import FIELD_OVERHEAD_BYTES
from calibrant_server.workers.join.record_format import (
    DIVIDED,
    FORMATS,
    LONG_NAMES,
    LONG_RATERS,
    MAX_SHORT,
    PLAIN,
    RecordError,
    rules_in_format,
    with_rules,
)
from tests.workers.oracle.retained_prediction import Prediction

NEW, DUPLICATE, STALE, CONFLICT, GONE = "new", "duplicate", "stale", "conflict", "deleted"
EXPIRED, REVISED, FULL = "expired", "revised", "full"
# Maximum ratings of a class that labels may add; those sent with the prediction also fit in the four bytes.
MAX_RATINGS_OF_CLASS = 2**31 - 1
RECORD_HEAD = struct.Struct("<BBIHHHHH")
# Flags of the head; the others describe the prediction (`retained_prediction`).
PREDICTED, DELETED = 1, 8
COUNT_STRUCT = struct.Struct("<HI")
RATER_STRUCT = struct.Struct("<iiq")


@dataclass(frozen=True)
class Rating:
    """A named rater's latest rating: a class, or `WITHDRAWN`; `order` sorts ratings of one revision."""

    class_index: int
    revision: int
    order: int


@dataclass(frozen=True)
class RetainedRecord:
    """All that is stored of one prediction id.

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
        if not (self.unnamed or self.ratings):
            return False
        if any(self.unnamed.values()):
            return True
        return any(each.class_index != WITHDRAWN for each in self.ratings.values())

    def predicted(
        self, prediction: Prediction, unnamed: Mapping[int, int]
    ) -> tuple[RetainedRecord, str]:
        """Return the record after a prediction with the unnamed ratings sent with it."""
        if self.deleted:
            return self, GONE
        if self.prediction is not None:
            return self, DUPLICATE if self.prediction.sent == prediction.sent else CONFLICT
        total = _added(self.unnamed, unnamed)
        return RetainedRecord(self.since_s, prediction, total, self.ratings, False, self.delay), NEW

    def with_unnamed(self, unnamed: Mapping[int, int]) -> tuple[RetainedRecord, str]:
        """Return the record after unnamed ratings, which add."""
        if self.deleted:
            return self, GONE
        total = _added(self.unnamed, unnamed)
        if max(total.values(), default=0) > MAX_RATINGS_OF_CLASS:
            return self, FULL
        return RetainedRecord(
            self.since_s, self.prediction, total, self.ratings, False, self.delay
        ), NEW

    def rated(
        self, rater: str, class_index: int, revision: int | None, order: int
    ) -> tuple[RetainedRecord, str]:
        """Return the record after a named rater's rating.

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
        ratings = {**self.ratings, rater: Rating(class_index, number, order)}
        return RetainedRecord(
            self.since_s, self.prediction, self.unnamed, ratings, False, self.delay
        ), NEW

    def timed(self, delay: int) -> RetainedRecord:
        """Return the record with the delay of its first label, if this is the first one."""
        if self.delay is not None or not self.counts or not self.is_labelled:
            return self
        return RetainedRecord(
            self.since_s, self.prediction, self.unnamed, self.ratings, False, delay
        )

    def removed(self) -> tuple[RetainedRecord, str]:
        """Return the record after its deletion: nothing contributes, and nothing later restores the id."""
        if self.deleted:
            return self, DUPLICATE
        return RetainedRecord(self.since_s, deleted=True), NEW

    def pack(self) -> bytes:
        """Return the stored bytes."""
        one = self.prediction
        flags = DELETED if self.deleted else 0
        unnamed = [
            COUNT_STRUCT.pack(class_index, n)
            for class_index, n in (sorted(self.unnamed.items()) if self.unnamed else ())
            if n
        ]
        raters = {rater: rater.encode() for rater in sorted(self.ratings)}
        is_long = max(map(len, raters.values()), default=0) > MAX_SHORT
        number = PLAIN + LONG_RATERS * is_long
        ratings = [
            len(name).to_bytes(1 + is_long, "little") + _packed(self.ratings[rater]) + name
            for rater, name in raters.items()
        ]
        delay = 0 if self.delay is None else self.delay + 1
        numbers = (len(unnamed), len(ratings))
        if one is None:
            head = RECORD_HEAD.pack(number, flags, self.since_s, 0, *numbers, 0, delay)
            return b"".join([head, *unnamed, *ratings])
        head = RECORD_HEAD.pack(
            number
            + DIVIDED * one.is_divided
            + LONG_NAMES * one.is_long
            + rules_in_format(one.flags),
            flags | PREDICTED | one.flags & 255,
            self.since_s,
            one.n_scores,
            *numbers,
            len(one.slices),
            delay,
        )
        return b"".join([head, *unnamed, *ratings, one.packed])

    @classmethod
    def unpack(cls, data: bytes) -> RetainedRecord:
        """Return the record that `pack` wrote; raises RecordError."""
        try:
            number, flags, since_s, n_scores, n_unnamed, n_ratings, n_slices, delay = (
                RECORD_HEAD.unpack_from(data)
            )
            if number not in FORMATS:
                raise RecordError(f"record format {number} is not known")
            at = RECORD_HEAD.size
            unnamed: dict[int, int] = {}
            for _ in range(n_unnamed):
                class_index, n = COUNT_STRUCT.unpack_from(data, at)
                unnamed[class_index] = n
                at += COUNT_STRUCT.size
            ratings: dict[str, Rating] = {}
            form = number - PLAIN
            width = 2 if form & LONG_RATERS else 1
            for _ in range(n_ratings):
                length = int.from_bytes(data[at : at + width], "little")
                class_index, revision, order = RATER_STRUCT.unpack_from(data, at + width)
                at += width + RATER_STRUCT.size
                ratings[data[at : at + length].decode()] = Rating(class_index, revision, order)
                at += length
            prediction = None
            if flags & PREDICTED:
                described = with_rules(flags & ~(PREDICTED | DELETED), number)
                shape = (described, n_scores, bool(form & DIVIDED), n_slices)
                prediction = Prediction.unpack(data, at, *shape, bool(form & LONG_NAMES))
            known = delay - 1 if delay else None
            return cls(since_s, prediction, unnamed, ratings, bool(flags & DELETED), known)
        except (struct.error, IndexError, ValueError) as error:
            raise RecordError(f"a record cannot be read: {error}") from error


def _packed(rating: Rating) -> bytes:
    return RATER_STRUCT.pack(rating.class_index, rating.revision, rating.order)


def _added(unnamed: Mapping[int, int], more: Mapping[int, int]) -> Mapping[int, int]:
    if not unnamed:
        return more
    total = dict(unnamed)
    for class_index, n in more.items():
        total[class_index] = total.get(class_index, 0) + n
    return total


def count_record(
    tallies: dict[str, int], name: str, record: RetainedRecord, n_bytes: int, sign: int
) -> None:
    """Count a record in (or out) by its current state."""
    tallies["records"] += sign
    tallies["bytes"] += sign * (n_bytes + len(name) + FIELD_OVERHEAD_BYTES)
    if record.deleted:
        state = "deleted"
    elif record.prediction is None:
        state = "waiting"
    else:
        state = "joined" if record.is_labelled else "pending"
    tallies[state] += sign
