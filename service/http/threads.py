"""Threads for work that would block the event loop: a few at a time, so that memory stays bounded.

Reading a large body takes several times its size; more at once would not be faster, since most of it
holds the interpreter's lock.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")
AT_ONCE = CapacityLimiter(4)


async def aside(work: Callable[..., T], *arguments: object) -> T:
    """Call `work` in a thread, when one of the few is free."""
    return await to_thread.run_sync(work, *arguments, limiter=AT_ONCE)
