"""Threads for work that would block the event loop: few at a time, which bounds memory.

Parsing a large body takes several times its size. More threads would not be faster, since most of the
work holds the interpreter's lock.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
AT_ONCE = CapacityLimiter(4)


async def aside(work: Callable[..., T], *arguments: object) -> T:
    """Call `work` in a thread as soon as one is free."""
    return await to_thread.run_sync(work, *arguments, limiter=AT_ONCE)
