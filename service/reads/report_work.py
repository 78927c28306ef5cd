"""Bound of the work of one request that archives a report: what is left is computed by the next request.

A report reads the panes of its window and of each subgroup completely. Their results are cached in the store, so the same request, sent
again, continues with the others while the state is the same. Where data arrive between two requests, the second would start again
each time: then it is not bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachetools import LRUCache

from calibrant_server.workers.queries.ask import QueryResult
from calibrant_server.workers.queries.serve import MAX_CACHED_BYTES

# Units of one request, about milliseconds of CPU on a core that needs 0.6 of them to read a pane completely.
MAX_WORK = 700.0
OF_A_PANE, OF_A_SUBGROUP, OF_DRIFT = 0.6, 24.0, 0.15
MAX_UNFINISHED = 256


def work_of_panes(n_panes: float) -> float:
    """Return the units of reading the complete panes of a window or of a subgroup."""
    return OF_A_SUBGROUP + OF_A_PANE * n_panes


def work_of_drift(n_panes: float) -> float:
    """Return the units of the query `drift`, which reads the panes of the window again."""
    return OF_DRIFT * n_panes


@dataclass
class ReportWork:
    """Work of one request.

    Attributes
    ----------
    done : units
    is_bounded : False once a result is not cached, as a further request could not use it
    """

    done: float = 0.0
    is_bounded: bool = True

    def has_room(self, units: float) -> bool:
        """Whether this request may do so much more; the first of its work is always done."""
        return not (self.is_bounded and self.done) or self.has_room_again(units)

    def has_room_again(self, units: float) -> bool:
        """Whether this request may do so much more after its work was done in vain, as the state has changed meanwhile."""
        return self.done + units <= MAX_WORK

    def charge(self, result: QueryResult, units: float) -> None:
        """Count a result, unless it was cached."""
        if len(result.body) > MAX_CACHED_BYTES:
            self.is_bounded = False
        elif result.is_new:
            self.done += units


class UnfinishedReports:
    """Reports that the last request left unfinished, with the state of the window that they had."""

    def __init__(self) -> None:
        self._states: LRUCache[bytes, str] = LRUCache(MAX_UNFINISHED)

    def leave(self, name: bytes, state_version: str) -> None:
        """Remember a report that is left to the next request."""
        self._states[name] = state_version

    def continues(self, name: bytes, state_version: str) -> bool:
        """Whether a request may leave a part to the next one: unless one has done so, and the state has changed since."""
        return self._states.pop(name, state_version) == state_version
