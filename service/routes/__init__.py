"""One file per subject. Every module of this folder must define `router`: it is discovered and served."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from fastapi import APIRouter


def routers() -> Iterator[APIRouter]:
    """Return the router of each module of this folder, by name."""
    for found in sorted(iter_modules(__path__), key=lambda module: module.name):
        router: APIRouter = import_module(f"{__name__}.{found.name}").router
        yield router
