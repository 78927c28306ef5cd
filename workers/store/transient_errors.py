"""Errors that say nothing about an entry's content, in one place.

A store that is away, read-only or full, a disk or a machine that rejects an operation: each ends by itself or by the
hand of an operator, and the same entry then succeeds. Code that decides the outcome of data re-raises `NO_VERDICT`.
The partition loop alone catches them: it discards what is in memory, reads the cursor again and retries.

Each process logs the state of the store once per change, in the store's own words.
"""

from __future__ import annotations

import logging
import re
import threading
import time

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import TimeoutError as StoreTimeoutError

from calibrant_server.workers.store.file_store import FilesUnavailable

# `except NO_VERDICT: raise` comes before every other handler between reading an entry and its commit.
NO_VERDICT = (RedisError, OSError, MemoryError, FilesUnavailable)

# States of the store, or rights that the deployment lacks. Each rejects every command alike, whatever the entry is.
TRANSIENT_CODES = frozenset({
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOGOODSLAVE", "NOPERM",
    "NOREPLICAS", "OOM", "READONLY", "SCHEMA", "TRYAGAIN", "UNBLOCKED", "UNKILLABLE", "WRONGPASS",
})  # fmt: skip

_TRANSIENT_CLASSES = (
    StoreConnectionError, StoreTimeoutError, OSError, OutOfMemoryError, ReadOnlyError, NoPermissionError,
    ClusterDownError, TryAgainError, AskError,
)  # fmt: skip
_UNREACHABLE_CLASSES = (StoreConnectionError, StoreTimeoutError, OSError)
# For errors that the client library raises without the code.
_CODE_OF_CLASS: dict[type, str] = {
    OutOfMemoryError: "OOM", ReadOnlyError: "READONLY", BusyLoadingError: "LOADING", NoPermissionError: "NOPERM",
    MasterDownError: "MASTERDOWN", ClusterDownError: "CLUSTERDOWN", TryAgainError: "TRYAGAIN",
}  # fmt: skip
_OF_A_PIPELINE = " caused error: "

# Another server, or the same one after a failover, would not reject the request: connect again.
_MOVED_ROLE = frozenset(
    {"CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "READONLY"}
)
# Rights: no repeat within one request helps.
CONFIGURED_CODES = frozenset({"NOAUTH", "NOPERM", "WRONGPASS"})
_CODE = re.compile(r"[A-Z][A-Z]+\Z")


def is_transient(error: BaseException) -> bool:
    """Whether an error ends without a change of the entry: the entry stays unconsumed and is retried.

    Not transient are other rejections by the store, MemoryError, and a store of files that is away (the entries of other days
    must not wait for it): where one entry alone meets them ten times, it is parked.
    """
    # The client library strips the code from the text of those rejections that it has a class for.
    if isinstance(error, _TRANSIENT_CLASSES):
        return True
    return isinstance(error, ResponseError) and code_of(error) in TRANSIENT_CODES


def is_worth_repeating(error: BaseException) -> bool:
    """Whether the same request may succeed within seconds. A full memory, missing rights and an upgrade take longer."""
    return is_transient(error) and code_of(error) not in CONFIGURED_CODES | {"OOM", "SCHEMA"}


def is_of_the_connection(error: BaseException) -> bool:
    """Whether to connect again: the server does not respond, or no longer has the role to serve."""
    code = code_of(error)
    return code in _MOVED_ROLE if code else isinstance(error, _UNREACHABLE_CLASSES)


def code_of(error: BaseException) -> str:
    """Return the store's code of a rejection (`READONLY`), alone or in a pipeline; empty if it sent none."""
    if not isinstance(error, RedisError):
        return ""
    code = getattr(error, "status_code", None) or _CODE_OF_CLASS.get(type(error), "")
    if not code and isinstance(error, ResponseError):
        code = str(error).rpartition(_OF_A_PIPELINE)[2].partition(" ")[0]
    return code if _CODE.match(code) else ""


def store_message(error: BaseException) -> str:
    """Return the store's own message with its code, on one line and of bounded length."""
    code, text = code_of(error), str(error).rpartition(_OF_A_PIPELINE)[2]
    if code and not text.startswith(code):
        text = f"{code} {text}"
    return " ".join(text.split())[:300]


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
