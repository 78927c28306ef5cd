"""Compiled kernel: fills the accumulators of a pane in one pass over a batch.

The numpy accumulators are its specification. Where the shared library is missing or switched off, they fill with the same
results, slower. An accumulator, or one block of it, that the kernel does not know is filled by numpy as well.
"""

from __future__ import annotations

from calibrant.kernel.library import VARIABLE, Status, status

__all__ = ["VARIABLE", "Status", "status"]
