"""Accumulators of a pane, one per file. Each declares what it stores; blocks add and subtract it.

An accumulator that a file of this folder defines as `ACCUMULATOR` is discovered and stored in every pane that it applies to.
Files without `ACCUMULATOR` have what several share: the base class, blocks, cells, ranges, and arithmetic of the temperature grid.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from calibrant.accumulators.accumulator import Accumulator


@lru_cache(maxsize=1)
def accumulators() -> dict[str, type[Accumulator]]:
    """Return every accumulator of the folder by name, in the order of names."""
    found: dict[str, type[Accumulator]] = {}
    for module in pkgutil.iter_modules(__path__):
        kind = getattr(importlib.import_module(f"{__name__}.{module.name}"), "ACCUMULATOR", None)
        if kind is not None:
            found[kind.name] = kind
    return dict(sorted(found.items()))


__all__ = ["Accumulator", "accumulators"]
