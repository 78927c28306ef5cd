"""One file per subject. Routers of the modules of this folder are discovered and served; each module has at least one."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from fastapi import APIRouter


def routers() -> Iterator[APIRouter]:
    """Return the routers of each module of this folder, by name of the module."""
    for found in sorted(iter_modules(__path__), key=lambda module: module.name):
        module = import_module(f"{__name__}.{found.name}")
        yield from (each for each in vars(module).values() if isinstance(each, APIRouter))
