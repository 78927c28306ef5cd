"""Threads of one call: ctypes releases the interpreter, so that the kernel runs on several processors.

`CALIBRANT_THREADS` is their number. Default: the processors that this process may use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

VARIABLE = "CALIBRANT_THREADS"
T = TypeVar("T")


def n_threads() -> int:
    """Return the number of threads of a call.

    Raises
    ------
    ValueError
        The variable is not a positive integer.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not given.isdecimal() or not int(given):
        raise ValueError(f"Received {VARIABLE}={given}; expected a positive integer.")
    return int(given)


def in_threads(call: Callable[[int], T], places: Sequence[int]) -> Iterator[T]:
    """Yield the result of a call for each place, in their order; as many run at once as there are threads.

    Examples
    --------
    >>> list(in_threads(abs, [-3, 2]))
    [3, 2]
    """
    n = min(n_threads(), len(places))
    if n <= 1:
        yield from map(call, places)
        return
    # Imported where it is used: few rows need one thread, and it loads logging.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(n) as pool:
        # A few at a time: each result takes memory until it is read.
        for first in range(0, len(places), n):
            yield from pool.map(call, places[first : first + n])
