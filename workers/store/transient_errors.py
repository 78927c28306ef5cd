"""Errors that say nothing about an entry's content, in one place.

A store that is away, read-only or full, a disk or a machine that refuses an operation: each ends by itself or by the
hand of an operator, and the same entry then succeeds. Code that decides the outcome of data re-raises `NO_VERDICT`.
The partition loop alone catches them: it discards what is in memory, reads the cursor again and retries.
"""

from __future__ import annotations

from redis.exceptions import (
    AskError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import TimeoutError as StoreTimeoutError

# `except NO_VERDICT: raise` comes before every other handler between reading an entry and its commit.
NO_VERDICT = (RedisError, OSError, MemoryError)

# States of the store, or rights that the deployment lacks. Each rejects every command alike, whatever the entry is.
TRANSIENT_CODES = frozenset({
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOGOODSLAVE", "NOPERM",
    "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE", "WRONGPASS",
})  # fmt: skip

_TRANSIENT_CLASSES = (
    StoreConnectionError, StoreTimeoutError, OSError, OutOfMemoryError, ReadOnlyError, NoPermissionError,
    ClusterDownError, TryAgainError, AskError,
)  # fmt: skip
_OF_A_PIPELINE = " caused error: "


def is_transient(error: BaseException) -> bool:
    """Whether an error ends without a change of the entry: the entry stays unconsumed and is retried.

    Not transient are other rejections by the store and MemoryError: where one entry alone meets them ten times, it is
    parked.
    """
    # The client library strips the code from the text of those rejections that it has a class for.
    if isinstance(error, _TRANSIENT_CLASSES):
        return True
    return isinstance(error, ResponseError) and _code(error) in TRANSIENT_CODES


def _code(error: ResponseError) -> str:
    """The store's code of a rejection, alone or in a pipeline."""
    return str(error).rpartition(_OF_A_PIPELINE)[2].partition(" ")[0]
