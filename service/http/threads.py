"""Threads for work that would block the event loop: few at a time, which bounds memory.

Parsing a large body takes several times its size. More threads would not be faster, since most of the
work holds the interpreter's lock. One of several tenants has one of them: the interpreter is then shared by as many threads
as there are tenants, and the work of another never waits behind all that the first has sent.

On Linux, these threads have a lower priority than the event loop, which serves small requests meanwhile. The difference is small:
a thread that has the interpreter's lock and waits for a core delays the event loop too.
"""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from anyio import CapacityLimiter, Lock, to_thread

T = TypeVar("T")
N_THREADS = 4
AT_ONCE = CapacityLimiter(N_THREADS)
NICE = 5  # added to the nice value of the threads: they have a third of the event loop's weight

# The tenant of the request that runs, if there are several.
tenant_of_request: ContextVar[str | None] = ContextVar("tenant_of_request", default=None)
_turns: defaultdict[str, Lock] = defaultdict(Lock)
_lowered = threading.local()


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Call `work` in a thread as soon as one is free."""
    tenant = tenant_of_request.get()
    if tenant is None:
        return await to_thread.run_sync(_at_low_priority, work, *arguments, limiter=AT_ONCE)
    async with _turns[tenant]:
        return await to_thread.run_sync(_at_low_priority, work, *arguments, limiter=AT_ONCE)


def _at_low_priority(work: Callable[..., T], *arguments: object) -> T:
    """Call `work` in a thread of low priority; the thread keeps that priority, because raising it needs a privilege."""
    if sys.platform == "linux" and not getattr(_lowered, "is_done", False):
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread) + NICE
        os.setpriority(os.PRIO_PROCESS, thread, min(nice, 19))
        _lowered.is_done = True
    return work(*arguments)
