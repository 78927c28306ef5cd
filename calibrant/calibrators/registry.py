"""Calibration maps defined in this folder."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from pathlib import Path

from calibrant.calibrators.base import MapMethod


@lru_cache(maxsize=1)
def map_methods() -> dict[str, MapMethod]:
    """Return every map of the folder by its slug, sorted by slug."""
    maps: dict[str, MapMethod] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        found = importlib.import_module(f"calibrant.calibrators.{module.name}")
        maps |= {each.slug: each for each in getattr(found, "MAPS", ())}
    return dict(sorted(maps.items()))
