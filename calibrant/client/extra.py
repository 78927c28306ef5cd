"""Import of modules that need the optional dependencies `calibrant[client]`; the error names what to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from calibrant.core.extras import pip_install


def imported(name: str) -> ModuleType:
    """Return a module of this package that needs those dependencies.

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
            f"The client needs {error.name}. Install it with: {pip_install('client')}"
        ) from error
