"""Imports of the extra `client`, with an error that names it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def imported(name: str) -> ModuleType:
    """Return a module of this package that needs the extra.

    Raises
    ------
    ImportError
        httpx or stamina is not installed.
    """
    try:
        return import_module(f"calibrant.client.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("calibrant"):
            raise
        raise ImportError(
            f"The client needs {error.name}. Install it with: pip install 'calibrant[client]'"
        ) from error
