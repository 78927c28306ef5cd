"""numpy fills, by the name of the accumulator."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from calibrant.accumulators.accumulator import Accumulator

FILLED: dict[str, type[Accumulator]] = {}
for each in iter_modules(__path__):
    made = import_module(f"{__name__}.{each.name}").Filled
    FILLED[made.name] = made
