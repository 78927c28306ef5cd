"""The scenarios: every public coroutine function of the modules of this folder."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any


def scenarios() -> dict[str, Any]:
    """Return the scenarios by name, `module.function`."""
    found = {}
    for each in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{each.name}")
        for name, function in vars(module).items():
            is_own = getattr(function, "__module__", None) == module.__name__
            if inspect.iscoroutinefunction(function) and is_own and not name.startswith("_"):
                found[f"{each.name}.{name}"] = function
    return found
