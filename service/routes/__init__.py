"""One file per subject. Every module of this folder must define `router`: it is discovered and served.

A module may define `DIRECT`: functions that take a batch before the router, by operation.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from fastapi import APIRouter

from calibrant_server.service.ingest.direct import Take


def routers() -> Iterator[APIRouter]:
    """Return the router of each module of this folder, by name."""
    return (module.router for module in _modules())


def direct() -> dict[str, Take]:
    """Return the functions that take a batch before the router, by operation."""
    return {
        name: take for module in _modules() for name, take in getattr(module, "DIRECT", {}).items()
    }


def _modules() -> Iterator[ModuleType]:
    for found in sorted(iter_modules(__path__), key=lambda module: module.name):
        yield import_module(f"{__name__}.{found.name}")
