"""Ratings of named raters: which of a rater's ratings of an id is the latest.

A higher revision replaces a lower one, in any order of arrival. Without a revision the later rating of the stream replaces the
earlier, and the later row of a batch the one before it. The same explicit revision with another class is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.input.labels import MAX_NAMED, WITHDRAWN
from calibrant_server.workers.join.facts import (
    DUPLICATE,
    FULL,
    NEW,
    NO_REVISION,
    REVISED,
    STALE,
    Facts,
)
from calibrant_server.workers.join.ratings import NamedRatings, coded
from calibrant_server.workers.segments.ragged import Ints, numbered

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RatedFacts:
    """Ratings that count, and what each of the new ones did.

    Attributes
    ----------
    latest : of each id and rater
    fact : int64 (m,), fact that brings each new rating
    outcome : int64 (m,)
    n_active : int64 (m,), +1 for a rating more that is not withdrawn, -1 for one less
    """

    latest: NamedRatings
    fact: Ints
    outcome: Ints
    n_active: Ints


@dataclass(eq=False)
class _Latest:
    """Latest rating by place of an id and a rater."""

    exists: Mask
    class_index: Ints
    revision: Ints
    order: Ints

    def apply(self, at: Ints, class_index: Ints, revision: Ints, order: Ints) -> tuple[Ints, Ints]:
        """Apply ratings of different places; return outcomes and changes of the number of active ratings."""
        exists, is_explicit = self.exists[at], revision != NO_REVISION
        last = self.revision[at]
        number = np.where(is_explicit, revision, np.where(exists, last, 0))
        is_stale = exists & ((number < last) | (~is_explicit & (order < self.order[at])))
        is_same = exists & ~is_stale & (number == last)
        is_repeat = is_same & (class_index == self.class_index[at])
        is_revised = is_same & ~is_repeat & is_explicit
        is_new = ~(is_stale | is_repeat | is_revised)
        was_active = exists & (self.class_index[at] != WITHDRAWN)
        n_active = is_new * ((class_index != WITHDRAWN).astype(np.int64) - was_active)
        own = at[is_new]
        self.exists[own] = True
        self.class_index[own], self.revision[own] = class_index[is_new], number[is_new]
        self.order[own] = order[is_new]
        outcome = np.select([is_stale, is_repeat, is_revised], [STALE, DUPLICATE, REVISED], NEW)
        return outcome, n_active


def apply_ratings(stored: NamedRatings, facts: Facts, is_live: Mask) -> RatedFacts:
    """Apply the ratings of facts, in order, to the stored ones.

    Parameters
    ----------
    stored : of the ids of `facts`, in their order
    is_live : bool (n,), facts that are not of a deleted id
    """
    fact, rater, class_index, revision = facts.rated
    if not len(fact):
        return RatedFacts(stored, fact, fact, fact)
    chosen = is_live[fact]
    fact, rater, class_index, revision = (
        each[chosen] for each in (fact, rater, class_index, revision)
    )
    place, raters = coded([*stored.raters, *facts.raters])
    stored_rater, own_rater = place[: len(stored.raters)], place[len(stored.raters) :]
    keys = np.concatenate(
        [stored.row * len(raters) + stored_rater[stored.rater],
         facts.id_place[fact] * len(raters) + own_rater[rater]]
    )  # fmt: skip
    different, at = np.unique(keys, return_inverse=True)
    n_stored = len(stored.row)
    latest = _latest(stored, at[:n_stored], len(different))
    at = at[n_stored:]
    outcome, n_active = np.full(len(fact), FULL), np.zeros(len(fact), np.int64)
    has_room = _has_room(latest.exists, at, different // max(len(raters), 1))
    turn = np.where(has_room, numbered(at), -1)
    for k in range(int(turn.max(initial=-1)) + 1):
        own = np.flatnonzero(turn == k)
        outcome[own], n_active[own] = latest.apply(
            at[own], class_index[own], revision[own], facts.order[fact[own]]
        )
    kept = np.flatnonzero(latest.exists)
    row, rater_of = np.divmod(different[kept], max(len(raters), 1))
    found = NamedRatings(
        row, rater_of, latest.class_index[kept], latest.revision[kept], latest.order[kept], raters
    )
    return RatedFacts(found, fact, outcome, n_active)


def _latest(stored: NamedRatings, at: Ints, n: int) -> _Latest:
    found = _Latest(np.zeros(n, np.bool_), *np.zeros((3, n), np.int64))
    found.exists[at] = True
    found.class_index[at], found.revision[at] = stored.class_index, stored.revision
    found.order[at] = stored.order
    return found


def _has_room(exists: Mask, at: Ints, row: Ints) -> Mask:
    """Return which new ratings are of raters for whom a record has room, in the order in which raters come.

    Parameters
    ----------
    exists, row : by place of an id and a rater: whether a rating is stored, and place of the id
    at : such a place of each new rating
    """
    n_stored = np.bincount(row[exists])
    room = np.ones(len(exists), np.bool_)
    new = np.flatnonzero(~exists)
    if len(new) and np.bincount(row).max() > MAX_NAMED:
        first = np.full(len(exists), len(at))
        np.minimum.at(first, at, np.arange(len(at)))
        new = new[np.argsort(first[new])]
        before = np.zeros(int(row.max()) + 1, np.int64)
        before[: len(n_stored)] = n_stored
        room[new] = before[row[new]] + numbered(row[new]) < MAX_NAMED
    return room[at]
