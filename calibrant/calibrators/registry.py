"""The maps that the folder holds."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from pathlib import Path

from calibrant.calibrators.base import CalibrationMap


@lru_cache(maxsize=1)
def found() -> dict[str, CalibrationMap]:
    """Every map of the folder by its slug, in the order of slugs."""
    maps = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        given = getattr(
            importlib.import_module(f"calibrant.calibrators.{module.name}"), "MAP", None
        )
        if isinstance(given, CalibrationMap):
            maps[given.slug] = given
    return dict(sorted(maps.items()))
