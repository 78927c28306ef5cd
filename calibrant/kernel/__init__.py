"""Compiled kernel in C: filling the accumulators of a pane in one pass, reading JSON columns of numbers, isotonic gains.

It is loaded when this package is imported; without it the import fails and says what to do. The numpy fills of `tests/oracle` are
its specification.
"""

from __future__ import annotations

from calibrant.kernel import threads
from calibrant.kernel.library import VARIABLE, KernelError, Status, status

# Environment variables that are read here.
VARIABLES = frozenset({VARIABLE, threads.VARIABLE})

status()

__all__ = ["VARIABLE", "VARIABLES", "KernelError", "Status", "status"]
