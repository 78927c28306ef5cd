"""Retries of a partition's first entry: its number of failures alone, and the pause before the next try.

Only the first entry can fail alone: entries are consumed in order, and a failed run of several entries is retried one
by one. The count is in memory. After a restart it begins again, which only costs further tries.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from calibrant_server.workers.store.commit import FIRST_ID, id_order
from calibrant_server.workers.store.transient_errors import is_transient

log = logging.getLogger(__name__)

MAX_TRIES = 10
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
MAX_TRANSIENT_PAUSE_S = 0.5


class Tries:
    """Failures since the last success of one partition."""

    def __init__(self) -> None:
        self._one_by_one_to = FIRST_ID
        self._failing = ""
        self._n_alone = 0
        self._n_transient = 0
        self.why = ""

    def is_single(self, entry_id: str) -> bool:
        """Return whether an entry belongs to a failed run, and is to be committed alone."""
        return id_order(entry_id) <= id_order(self._one_by_one_to)

    @property
    def spent_id(self) -> str:
        """The entry that has reached the maximum number of failures alone; empty if there is none."""
        return self._failing if self._n_alone >= MAX_TRIES else ""

    def succeeded(self) -> None:
        """Reset the count after a written commit."""
        self._failing, self._n_alone, self._n_transient = "", 0, 0

    def failed(self, entry_ids: Sequence[str], error: BaseException) -> float:
        """Record a failure of these entries; return the pause in seconds before the next try."""
        if is_transient(error):
            self._n_transient += 1
            return _pause_s(self._n_transient, MAX_TRANSIENT_PAUSE_S)
        if len(entry_ids) != 1 or not self.is_single(entry_ids[0]):
            # Another entry may be the cause, or the reading of further ones.
            self._one_by_one_to = entry_ids[-1] if entry_ids else self._one_by_one_to
            return FIRST_PAUSE_S
        if entry_ids[0] != self._failing:
            self._failing, self._n_alone = entry_ids[0], 0
        self._n_alone += 1
        self.why = f"{type(error).__name__}: {error}"[:500]
        log.warning(
            "entry_failed_alone entry_id=%s try=%d error=%s", self._failing, self._n_alone, self.why
        )
        return _pause_s(self._n_alone, MAX_PAUSE_S)


def _pause_s(n: int, longest_s: float) -> float:
    return min(longest_s, FIRST_PAUSE_S * 2.0 ** min(n - 1, 20))
