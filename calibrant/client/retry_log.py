"""One readable line for a request that is repeated, in place of one record of stamina for each attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from stamina.instrumentation import (
    RetryDetails,
    RetryHook,
    get_on_retry_hooks,
    set_on_retry_hooks,
)

logger = logging.getLogger("calibrant.client")

Wait = Callable[[Exception], bool | float]
_OWN: ContextVar[bool] = ContextVar("calibrant_repeats_a_request", default=False)


# Where stamina's hooks that write a record for each attempt are defined. Other hooks, such as counters, are not touched.
_LOGGING = ("stamina.instrumentation._logging", "stamina.instrumentation._structlog")


class _Quiet:
    """A hook of stamina that is skipped for requests of this client, and called for everything else."""

    def __init__(self, hook: RetryHook) -> None:
        self._hook = hook

    def __call__(self, details: RetryDetails) -> AbstractContextManager[None] | None:
        return None if _OWN.get() else self._hook(details)


@contextmanager
def one_line() -> Iterator[None]:
    """Skip stamina's own records while a request of this client is repeated."""
    hooks = get_on_retry_hooks()
    if any(_writes(each) for each in hooks):
        set_on_retry_hooks([_Quiet(each) if _writes(each) else each for each in hooks])
    token = _OWN.set(True)
    try:
        yield
    finally:
        _OWN.reset(token)


def _writes(hook: RetryHook) -> bool:
    return getattr(hook, "__module__", "") in _LOGGING


class Announced:
    """Decides whether a request is repeated, and says so once.

    Parameters
    ----------
    wait : whether an error is worth a repeat, and after how many seconds if that is known
    timeout_s : how long the request is repeated
    """

    def __init__(self, wait: Wait, timeout_s: float | None) -> None:
        self._wait, self._timeout_s, self._said = wait, timeout_s, False

    def __call__(self, error: Exception) -> bool | float:
        found = self._wait(error)
        if found is not False and not self._said:
            self._said = True
            logger.warning("%s. Trying again%s.", str(error).rstrip("."), _limit(self._timeout_s))
        return found


def _limit(seconds: float | None) -> str:
    """Return how long a request is repeated.

    >>> _limit(None), _limit(30.0), _limit(43200.0)
    ('', ' for up to 30 s', ' for up to 12 h')
    """
    if seconds is None:
        return ""
    return f" for up to {seconds / 3600:g} h" if seconds >= 3600 else f" for up to {seconds:g} s"
