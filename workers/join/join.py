"""The join: facts about ids and their stored records in, outcomes of the facts and new records out.

The records do not depend on the order in which predictions, ratings and deletions arrive. Of a prediction that is sent twice the
first is stored; unnamed ratings add; of a named rater the latest rating counts; nothing restores a deleted id.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import delay_bin
from calibrant_server.workers.join.facts import (
    CONFLICT,
    DELETION,
    DUPLICATE,
    EXPIRED,
    FULL,
    GONE,
    LABELS,
    NEW,
    PREDICTION,
    Facts,
)
from calibrant_server.workers.join.named_ratings import RatedFacts, apply_ratings
from calibrant_server.workers.join.predictions import Predictions
from calibrant_server.workers.join.ratings import Counts, summed
from calibrant_server.workers.join.record_format import HEAD, MAX_RATINGS_OF_CLASS, PLAIN
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.segments.ragged import Ints

Mask = NDArray[np.bool_]
_LATER = 2**62


def _empty_record() -> bytes:
    head = np.zeros(1, HEAD)
    head["format"] = PLAIN
    return head.tobytes()


# Read for an id that has no record.
EMPTY = _empty_record()


@dataclass(frozen=True, eq=False)
class Joined:
    """Records of the ids of some facts before and after these.

    Attributes
    ----------
    outcome : int64 (n_facts,), of `outcomes`
    has_prediction : bool (n_facts,), whether the id has its prediction after the fact
    is_changed : bool (n,), records to be written
    """

    before: Records
    after: Records
    outcome: Ints
    has_prediction: Mask
    is_changed: Mask


def join(facts: Facts, before: Records, is_known: Mask, kept_from_us: int) -> Joined:
    """Apply facts to records.

    Parameters
    ----------
    before : of the ids of `facts`, in their order; `EMPTY` of an id without one
    is_known : bool (n,), ids that have a record
    kept_from_us : predictions of earlier events have outlived their retention
    """
    return _Join(facts, before, is_known, kept_from_us).joined()


class _Join:
    """One join; arrays of facts are in their order, arrays of ids in the order of `facts.ids`."""

    def __init__(self, facts: Facts, before: Records, is_known: Mask, kept_from_us: int) -> None:
        self.facts = facts
        self.before = before
        self.is_known = is_known
        self.number = np.arange(len(facts))
        self.event_us = self._event_us()
        self.is_expired = (facts.kind == PREDICTION) & (self.event_us < kept_from_us)
        self.deleted_at = self._deleted_at()
        is_gone = self.number > self.deleted_at[facts.id_place]
        self.is_live = ~self.is_expired & ~is_gone & (facts.kind != DELETION)
        self.outcome = np.full(len(facts), DUPLICATE)
        self.outcome[is_gone & (facts.kind != DELETION)] = GONE
        self.outcome[self.is_expired] = EXPIRED
        self.outcome[self.number == self.deleted_at[facts.id_place]] = NEW

    def joined(self) -> Joined:
        facts = self.facts
        predicted_at, predictions, prediction = self._predict()
        rated = apply_ratings(self.before.ratings, facts, self.is_live)
        np.minimum.at(self.outcome, rated.fact, rated.outcome)
        counts, n_counted = self._count(predicted_at)
        has_prediction = self.number >= predicted_at[facts.id_place]
        n_active = n_counted.copy()
        np.add.at(n_active, rated.fact, rated.n_active)
        delay = self._delay(has_prediction, n_active, predictions, prediction)
        since_s = self._since_s()
        is_kept = self.deleted_at == _LATER
        after = Records(
            since_s,
            ~is_kept,
            np.where(is_kept, delay, -1),
            _counts_of(counts, is_kept),
            rated.latest.take(is_kept[rated.latest.row]),
            predictions,
            np.where(is_kept, prediction, -1),
        )
        is_changed = self._changed(rated, n_counted) | (after.delay != self.before.delay)
        return Joined(self.before, after, self.outcome, has_prediction, is_changed)

    def _event_us(self) -> Ints:
        event_us = np.zeros(len(self.facts), np.int64)
        if self.facts.predictions is not None:
            event_us[self.facts.kind == PREDICTION] = self.facts.predictions.event_us
        return event_us

    def _first(self, chosen: Mask) -> Ints:
        """Return the number of the first chosen fact of each id, `_LATER` without one."""
        first = np.full(len(self.before), _LATER)
        own = np.flatnonzero(chosen)
        np.minimum.at(first, self.facts.id_place[own], own)
        return first

    def _deleted_at(self) -> Ints:
        first = self._first(self.facts.kind == DELETION)
        return np.where(self.before.is_deleted, -1, first)

    def _predict(self) -> tuple[Ints, Predictions, Ints]:
        """Decide about predictions; return when each id has its own, and the predictions with the place of each id's."""
        facts, before = self.facts, self.before
        has_one = before.has_prediction
        sent = self.is_live & (facts.kind == PREDICTION)
        first = self._first(sent)
        predicted_at = np.where(has_one, -1, first)
        if facts.predictions is None:
            return predicted_at, before.predictions, before.prediction
        both = Predictions.together([before.predictions, facts.predictions])
        own = facts.prediction + len(before.predictions)
        is_new = ~has_one & (first != _LATER)
        place = before.prediction.copy()
        place[is_new] = own[first[is_new]]
        again = np.flatnonzero(sent)
        id_place = facts.id_place[again]
        is_same = both.sent[own[again]] == both.sent[place[id_place]]
        self.outcome[again] = np.where(is_same, DUPLICATE, CONFLICT)
        self.outcome[first[is_new]] = NEW
        return predicted_at, both, place

    def _count(self, predicted_at: Ints) -> tuple[Counts, Ints]:
        """Add unnamed ratings; return their sums by id and class, and how many each fact adds."""
        facts = self.facts
        fact, _, n = facts.counted
        n_counted = np.zeros(len(facts), np.int64)
        if not len(fact):
            return self.before.counts, n_counted
        is_first = predicted_at[facts.id_place] == self.number
        counts_here = self.is_live & ((facts.kind == LABELS) | is_first)
        total = self._total(counts_here[fact])
        over = np.unique(total.row[total.n > MAX_RATINGS_OF_CLASS])
        is_full = self._full(counts_here, over)
        labels = fact[(facts.kind[fact] == LABELS) & self.is_live[fact]]
        np.minimum.at(self.outcome, labels, np.where(is_full[labels], FULL, NEW))
        chosen = (counts_here & ~is_full)[fact]
        np.add.at(n_counted, fact[chosen], n[chosen])
        return self._total(chosen) if len(over) else total, n_counted

    def _total(self, chosen: Mask) -> Counts:
        """Return sums of the stored unnamed ratings and of chosen ones."""
        before, (fact, class_index, n) = self.before.counts, self.facts.counted
        return summed(
            np.concatenate([before.row, self.facts.id_place[fact[chosen]]]),
            np.concatenate([before.class_index, class_index[chosen]]),
            np.concatenate([before.n, n[chosen]]),
        )

    def _full(self, counts_here: Mask, over: Ints) -> Mask:
        """Return the facts whose labels would exceed what a record can count.

        Parameters
        ----------
        over : ids for which the ratings of all facts would
        """
        facts, before = self.facts, self.before.counts
        fact, class_index, n = facts.counted
        is_full = np.zeros(len(facts), np.bool_)
        for row in over.tolist():
            stored = before.row == row
            total = dict(
                zip(before.class_index[stored].tolist(), before.n[stored].tolist(), strict=True)
            )
            for each in np.flatnonzero(counts_here & (facts.id_place == row)).tolist():
                own = fact == each
                more = dict(zip(class_index[own].tolist(), n[own].tolist(), strict=True))
                if not more:
                    continue
                added = total | {k: total.get(k, 0) + m for k, m in more.items()}
                is_full[each] = (
                    facts.kind[each] == LABELS and max(added.values()) > MAX_RATINGS_OF_CLASS
                )
                total = total if is_full[each] else added
        return is_full

    def _delay(
        self, has_prediction: Mask, n_active: Ints, predictions: Predictions, prediction: Ints
    ) -> Ints:
        """Return the delay of the first label of each id, as a bin; -1 without one."""
        facts, before = self.facts, self.before
        if (before.delay >= 0).all():
            return before.delay
        order = np.argsort(facts.id_place, kind="stable")
        id_place = facts.id_place[order]
        sums = np.cumsum(n_active[order])
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = id_place[1:] != id_place[:-1]
        start = (sums - n_active[order])[np.flatnonzero(is_first)]
        after = np.empty(len(facts), np.int64)
        after[order] = sums - np.repeat(start, np.diff(np.flatnonzero(is_first), append=len(order)))
        after += before.n_active[facts.id_place]
        first = self._first(self.is_live & has_prediction & (after > 0))
        own = np.flatnonzero((before.delay < 0) & (first != _LATER))
        fact = first[own]
        had_labels = (after - n_active)[fact] > 0
        # Labels that waited arrived when the id was first received.
        waited = (facts.kind[fact] == PREDICTION) & had_labels
        received_s = np.where(
            waited, self._since_s()[own].astype(np.float64), facts.received_ms[fact] / 1000
        )
        event_us = np.where(
            facts.kind[fact] == PREDICTION,
            self.event_us[fact],
            predictions.event_us[prediction[own]],
        )
        delay = before.delay.copy()
        delay[own] = delay_bin(received_s - event_us / 1e6)
        return delay

    def _since_s(self) -> Ints:
        first = self._first(~self.is_expired)
        found = np.where(
            first == _LATER,
            0,
            self.facts.received_ms[np.minimum(first, len(self.facts) - 1)] // 1000,
        )
        return np.where(self.is_known, self.before.since_s, found)

    def _changed(self, rated: RatedFacts, n_counted: Ints) -> Mask:
        """Return the ids whose record changes: by a fact that counts, or because it is the first."""
        changes = self.outcome == NEW
        changes |= n_counted > 0
        changes[rated.fact[rated.outcome == NEW]] = True
        changed: Mask = ~self.is_known & (self._first(~self.is_expired) != _LATER)
        changed[self.facts.id_place[changes]] = True
        return changed


def _counts_of(counts: Counts, is_kept: Mask) -> Counts:
    chosen = is_kept[counts.row] & (counts.n > 0)
    return Counts(counts.row[chosen], counts.class_index[chosen], counts.n[chosen])
