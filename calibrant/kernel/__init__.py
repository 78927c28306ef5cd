"""Compiled kernel in C: filling the accumulators of a pane in one pass, reading JSON columns of numbers, isotonic gains.

This module exports only the status. The numpy code is the specification of the kernel. If the shared library is missing or switched
off, numpy gives the same results, slower. An accumulator, or one block of it, that the kernel does not know is filled by numpy as well.
"""

from __future__ import annotations

from calibrant.kernel.library import VARIABLE, Status, status

__all__ = ["VARIABLE", "Status", "status"]
