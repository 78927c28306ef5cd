"""Attempts of a partition's entries: which are committed alone, the pause before the next attempt, and which are parked.

Entries are consumed in order. Those of a failed group, and those that may have ended a reader, are committed one by one, so that only
the first entry can fail alone. Failures are counted in memory, ends of readers in the cursor. After a restart the failures are counted
again, which only costs further attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from calibrant_server.workers.store.commit import FIRST_ID, Cursor, id_order
from calibrant_server.workers.store.transient_errors import is_transient

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
# Readers that end while an entry is alone, before it is parked: one end may be that of another partition's entry.
MAX_ENDS_ALONE = 2
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
MAX_TRANSIENT_PAUSE_S = 0.5


class FailedAloneError(RuntimeError):
    """An entry in a commit of its own failed with an unexpected error; it is tried again, then parked."""


class Attempts:
    """Failures since the last success of one partition."""

    def __init__(self) -> None:
        self._one_by_one_to = FIRST_ID
        self._failing = ""
        self._n_alone = 0
        self._n_transient = 0
        self._why = ""

    def is_alone(self, entry_id: str, cursor: Cursor) -> bool:
        """Return whether an entry is committed alone: its group failed, or a reader ended that may have reached it."""
        limits = (self._one_by_one_to, cursor.danger_id)
        return id_order(entry_id) <= max(map(id_order, limits))

    def spent(self, cursor: Cursor) -> tuple[str, str] | None:
        """Return the id of an entry that is to be parked ("" for the next one), and why; None without one."""
        if cursor.ends_alone >= MAX_ENDS_ALONE:
            return "", f"its reader died {cursor.ends_alone} times while it was alone"
        return (self._failing, self._why) if self._n_alone >= MAX_ATTEMPTS else None

    def succeeded(self) -> None:
        """Reset the count after a written commit."""
        self._failing, self._n_alone, self._n_transient = "", 0, 0

    def failed(self, entry_ids: Sequence[str], error: BaseException, cursor: Cursor) -> float:
        """Record a failure of these entries; return the pause in seconds before the next try."""
        if is_transient(error):
            self._n_transient += 1
            return _pause_s(self._n_transient, MAX_TRANSIENT_PAUSE_S)
        if len(entry_ids) != 1 or not self.is_alone(entry_ids[0], cursor):
            # Another entry may be the cause, or the reading of further ones.
            self._one_by_one_to = entry_ids[-1] if entry_ids else self._one_by_one_to
            return FIRST_PAUSE_S
        if entry_ids[0] != self._failing:
            self._failing, self._n_alone = entry_ids[0], 0
        self._n_alone += 1
        self._why = f"{type(error).__name__}: {error}"[:500]
        log.warning(
            "entry_failed_alone entry_id=%s attempt=%d error=%s",
            self._failing,
            self._n_alone,
            self._why,
        )
        return _pause_s(self._n_alone, MAX_PAUSE_S)


def _pause_s(n: int, longest_s: float) -> float:
    return min(longest_s, FIRST_PAUSE_S * 2.0 ** min(n - 1, 20))
