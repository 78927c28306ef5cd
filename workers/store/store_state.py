"""State of the store as one process meets it, logged once per change in the store's own words."""

from __future__ import annotations

import logging
import threading
import time

from calibrant_server.workers.store.transient_errors import code_of, store_message

log = logging.getLogger(__name__)

UNREACHABLE = "unreachable"
# A change of role ends blocking reads with this; the next request meets the new role.
_ENDED_A_WAIT = "UNBLOCKED"


# Where one node of a cluster is away and others serve, the problem ends with each request that succeeds.
_SAME_AGAIN_S = 10.0


class StoreState:
    """Last problem that requests met, shared by all tasks or threads of a process.

    A store that rejects writes may still serve reads. So only an accepted write, or a later problem, ends a rejection.
    A problem that returns within seconds is logged as one.

    Attributes
    ----------
    problem : code of the store, or `unreachable`; empty while it serves
    """

    def __init__(self) -> None:
        self.problem = ""
        self._logged: dict[str, float] = {}
        self._lock = threading.Lock()

    def failed(self, error: BaseException) -> None:
        """Note a problem; log it unless it is the one that is known."""
        problem = code_of(error) or UNREACHABLE
        if problem == _ENDED_A_WAIT:
            return
        with self._lock:
            known, self.problem = self.problem, problem
            is_new = problem != known and self._is_due(problem)
        if is_new:
            log.warning("store_%s error=%s", _event(problem), store_message(error))

    def responded(self, wrote: bool = False) -> None:
        """Note a request that succeeded; log that a problem ended."""
        if not self.problem or (self.problem != UNREACHABLE and not wrote):
            return
        with self._lock:
            known, self.problem = self.problem, ""
            is_new = bool(known) and self._is_due(f"after {known}")
        if is_new:
            log.info("store_serves_again after=%s", known)

    def _is_due(self, event: str) -> bool:
        now = time.monotonic()
        if now - self._logged.get(event, -_SAME_AGAIN_S) < _SAME_AGAIN_S:
            return False
        self._logged[event] = now
        return True


def _event(problem: str) -> str:
    return problem if problem == UNREACHABLE else "rejects"
